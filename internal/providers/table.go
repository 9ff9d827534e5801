package providers

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/tcp"
)

// The defaults of rdma.timeout: codes 14 and 16 of the specification. With six retries a NIC
// detects a dead peer after half a second. A device in user space shares the processors with the
// program, so it gets two seconds.
const (
	NICTimeout      = 67 * time.Millisecond
	softwareTimeout = 268 * time.Millisecond
)

// The defaults of rdma.queue-pairs. With one queue pair rxe uses one processor, and a fabric one
// path (GOTCHAS.md). RDMA in user space is slower with two.
const (
	NICQueuePairs      = 2
	softwareQueuePairs = 1
)

// table has all providers. Nobody changes it.
var table = []Row{
	{
		Name: libibverbs.Name, Help: "NICs and Soft-RoCE of the kernel", Order: 2, Kernel: true,
		New:       func(Options) verbs.Provider { return libibverbs.New(libibverbs.Options{}) },
		Inventory: func(verbs.Provider) (discovery.Inventory, error) { return hostInventory() },
	},
	{
		Name: roce.Name, Help: "RoCE in user space, over UDP", Order: 4,
		Timeout: softwareTimeout, QueuePairs: softwareQueuePairs,
		Throughput: func(mtu verbs.MTU, roundTrip time.Duration, loss float64) float64 {
			return roce.Throughput(mtu, roundTrip, loss, 0)
		},
		New:       func(o Options) verbs.Provider { return roce.New(roce.Options{Logger: o.Logger}) },
		Inventory: func(p verbs.Provider) (discovery.Inventory, error) { return onInterfaces(p, roce.Name, roce.Interface) },
	},
	{
		Name: tcp.Name, Link: verbs.LinkTCP, Order: 3,
		Timeout: softwareTimeout,
		New: func(o Options) verbs.Provider {
			return tcp.New(tcp.Options{Listen: o.Addresses, Dial: o.Dial, Busy: o.Busy, Logger: o.Logger})
		},
		Doctor: Texts{
			Device:    "queue pairs over TCP, to the port that gRPC listens on",
			Unreached: "name tcp in --provider there, or auto; if something between the hosts ends TLS or forwards HTTP/2 only, let TCP connections through",
			Missed:    "do what the text asks for, or leave tcp out of --provider",
		},
	},
	{
		Name: shm.Name, Help: "shared memory within a host", Link: verbs.LinkShared, Order: 1,
		Timeout: softwareTimeout,
		New: func(o Options) verbs.Provider {
			return shm.New(shm.Options{Dir: o.Directory, Trusted: o.Trusted, Busy: o.Busy, Logger: o.Logger})
		},
		WrongSetting: wrongDirectory,
		Metrics: []Metric{
			{
				Name: "tryst_shm_refused_connections_total",
				Help: "Connections to the socket of shared memory that passed descriptors without a proof. Since Linux 6.16 the kernel refuses these.",
				Read: func(p verbs.Provider) float64 { return float64(shmStats(p).Refused) },
			},
			{
				Name:  "tryst_shm_closing_descriptors",
				Help:  "Connections and descriptors of other processes whose close has not ended.",
				Gauge: true,
				Read:  func(p verbs.Provider) float64 { return float64(shmStats(p).Closing) },
			},
		},
		Doctor: Texts{
			Device:    "shared memory with processes of this host",
			Unreached: "for processes of one host: name shm in --provider there, or auto; give processes in several network namespaces one --shm-dir; run both as one user, or use mutual TLS",
			Missed:    "do what the text asks for, or set --shm off: processes of this host are then reached over tcp",
		},
	},
}

// wrongDirectory returns the error for a setting shm-dir that cannot be used.
func wrongDirectory(o Options, err error) error {
	if wrong, ok := errors.AsType[*shm.DirError](err); ok {
		return status.Errorf(status.InvalidArgument, "shm-dir %s: %s", o.Directory, wrong.Why)
	}
	return nil
}

// shmStats returns the numbers of shared memory; zeros of another provider.
func shmStats(p verbs.Provider) shm.Stats {
	if s, ok := p.(*shm.Provider); ok {
		return s.Stats()
	}
	return shm.Stats{}
}
