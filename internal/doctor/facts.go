package doctor

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// Facts are all that Examine judges. A nil error is "it could be found out".
type Facts struct {
	// Required says that tensors are to go by RDMA: then what RDMA lacks is a
	// FAIL, else at most a WARN.
	Required bool
	// Settings are those of RDMA that are not the defaults.
	Settings []config.Entry
	// Provider is the setting: where the device is to come from.
	Provider string
	// Want is what was asked for of the choice of a device.
	Want discovery.Want

	// NoDiscovery is why nothing is known of RDMA here; nil: what follows is.
	NoDiscovery error
	Inventory   discovery.Inventory
	Kernel      discovery.Kernel
	Choice      discovery.Choice
	NoChoice    error

	// Software is the device in software.
	Software Software
	// Library is what libibverbs says.
	Library Library
	// Memlock is how much memory the process may lock, and NoMemlock why that
	// is not known.
	Memlock   verbstransport.Memlock
	NoMemlock error
	// RegisterLeast is how much memory is registered before anything moves (an
	// arena to send and one to receive), and RegisterMost what all of it may
	// grow to, in bytes; 0 is not known.
	RegisterLeast, RegisterMost uint64
	// Messages is how much the messages of channels with all peers take beside that.
	Messages  uint64
	HugePages HugePages
	// Counters are those of the chosen port, and NoCounters why they are not
	// all there.
	Counters   map[string]uint64
	NoCounters error
	// PFC is how the chosen netdev pauses priorities; nil when it does not tell.
	// TrafficClass is that of our packets.
	PFC          *discovery.PFC
	TrafficClass uint8
	// ECN is, for priorities 0 to 7, whether the chosen netdev's NIC answers
	// marked packets; nil when it does not tell.
	ECN map[int]bool
	// Peers are the tasks of the cluster but this one.
	Peers []Peer
}

// Library is what libibverbs says. Not asked: the zero Library, but for Err.
type Library struct {
	// Asked says that it was asked.
	Asked bool
	// Err is why it has no devices for us: it is not installed, say.
	Err error
	// Devices are those that it knows.
	Devices []verbs.DeviceInfo
	// Port is the chosen port as the open device has it, when OpenErr is nil
	// and something was chosen.
	Port    verbs.PortInfo
	OpenErr error
}

// HugePages are the system's.
type HugePages struct {
	Pools []HugePool
	// Transparent is the mode of transparent ones: "always", "madvise", "never";
	// "" unknown.
	Transparent string
	Err         error
}

// HugePool are the huge pages of one size.
type HugePool struct {
	Size        uint64 // bytes of one
	Total, Free uint64 // pages
}

// Peer is another task and whether it was reached.
type Peer struct {
	Task    string
	Address string
	// GRPC is the answer over gRPC.
	GRPC Reached
	// Verbs is the answer by RDMA; nil when it was not tried.
	Verbs *Reached
}

// Reached is how a peer was reached.
type Reached struct {
	Took time.Duration
	// Said is what it is, in words; may be empty.
	Said string
	Err  error
}
