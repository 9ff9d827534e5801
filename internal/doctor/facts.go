package doctor

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/server"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// Facts are the input of Examine. An error field is nil if the fact could be read.
type Facts struct {
	// Required reports whether the settings require RDMA. Missing RDMA is then a
	// FAIL, otherwise at most a WARN.
	Required bool
	// Auto reports whether verbs is taken where both sides have it, and nobody has asked for it: what a host without
	// RDMA or a peer without verbs lacks is in order.
	Auto bool
	// NoFallback reports whether the settings forbid gRPC for tensors.
	NoFallback bool
	// Settings are the settings of RDMA that are not the defaults.
	Settings []config.Entry
	// Provider is the provider of the RDMA device by the settings (config.ProviderSet); "" for
	// none.
	Provider string
	// NamesUserSpace reports whether the setting provider names RDMA in user space.
	NamesUserSpace bool
	// Fixed are the devices that are no RDMA.
	Fixed []FixedDevice
	// Rows are the providers; nil: those of this build.
	Rows []providers.Row
	// Want has the settings for the choice of a device.
	Want discovery.Want

	// NoDiscovery is why the RDMA devices could not be listed; if it is nil, the
	// fields below are valid.
	NoDiscovery error
	Inventory   discovery.Inventory
	Kernel      discovery.Kernel
	Choice      discovery.Choice
	NoChoice    error

	// Selected is the device that a process with these settings takes.
	Selected Selected

	// Software has the facts about the device in user space.
	Software Software
	// Library has the facts about libibverbs.
	Library Library
	// Memlock is how much memory the process may lock, and NoMemlock why that
	// is not known.
	Memlock   verbstransport.Memlock
	NoMemlock error
	// RegisterLeast is how much memory is registered at the start (an arena for
	// sending and one for receiving), and RegisterMost the limit, in bytes; 0:
	// not known.
	RegisterLeast, RegisterMost uint64
	// Messages is how much memory the messages of channels with all peers take in
	// addition, in bytes.
	Messages  uint64
	HugePages HugePages
	// Counters are those of the chosen port, and NoCounters why some are
	// missing.
	Counters   map[string]uint64
	NoCounters error
	// PFC is the state of PFC on the chosen netdev; nil if its driver does not
	// report it. TrafficClass is that of our packets.
	PFC          *discovery.PFC
	TrafficClass uint8
	// ECN is, for priorities 0 to 7, whether the chosen netdev's NIC reacts to
	// marked packets; nil if its driver does not report it.
	ECN map[int]bool
	// Peers are the other tasks of the cluster.
	Peers []Peer
}

// Selected is the device that a process takes (server.SelectFor).
type Selected struct {
	// Asked reports whether it was selected; if not, the other fields are zero.
	Asked bool
	// Provider has the device of Choice, and Why is the reason for it.
	Provider, Why string
	Choice        discovery.Choice
	// Err is why there is none.
	Err error
}

// Library has the facts about libibverbs.
type Library struct {
	// Asked reports whether it was opened; if not, the other fields are zero.
	Asked bool
	// Err is why its devices could not be listed, for example because it is not
	// installed.
	Err error
	// Devices are the devices that it has.
	Devices []verbs.DeviceInfo
	// Port is the chosen port as the open device reports it, if OpenErr is nil
	// and a device was chosen.
	Port    verbs.PortInfo
	OpenErr error
}

// HugePages are the huge pages of the system.
type HugePages struct {
	Pools []HugePool
	// Transparent is the mode of transparent huge pages: "always", "madvise" or
	// "never"; "" if it is not known.
	Transparent string
	Err         error
}

// HugePool are the huge pages of one size.
type HugePool struct {
	Size        uint64 // bytes of one
	Total, Free uint64 // pages
}

// Peer is another task, and whether it is reachable.
type Peer struct {
	Task    string
	Address string
	// GRPC is the result over gRPC.
	GRPC Reached
	// Verbs is the result by RDMA; nil if it was not tried.
	Verbs *Reached
	// Fixed are the results of the devices that are no RDMA.
	Fixed []FixedReached
}

// FixedReached is the result of a device that is no RDMA.
type FixedReached struct {
	Provider string
	Reached
}

// FixedDevice is a device over TCP or shared memory, which stays (devices.Fixed).
type FixedDevice struct {
	Provider, Device string
	// Named reports whether the setting provider names it; otherwise auto works without the device.
	Named bool
	// Err is why it cannot be used.
	Err error
}

// Reached is the result of an attempt to reach a peer.
type Reached struct {
	Took time.Duration
	// Text describes the peer; may be empty.
	Text string
	Err  error
	// Path has what was measured; nil if nothing was. Unmeasured is then why.
	Path       *server.Measured
	Unmeasured error
	// Rate is the bandwidth of a pull in bytes a second; 0 if none was made. NoRate is why.
	Rate   float64
	NoRate error
	// WithoutDevice is set if the peer has no device for now.
	WithoutDevice bool
}

// rows returns the providers.
func (f *Facts) rows() []providers.Row {
	if f.Rows == nil {
		return providers.All()
	}
	return f.Rows
}

// row returns the row of a provider; all but its name is zero for one that is not known.
func (f *Facts) row(provider string) providers.Row {
	row, _ := providers.In(f.rows(), provider)
	return row
}

// inUserSpace reports whether a provider has RDMA devices in user space.
func (f *Facts) inUserSpace(provider string) bool {
	row, known := providers.In(f.rows(), provider)
	return known && row.RDMA() && !row.Kernel
}
