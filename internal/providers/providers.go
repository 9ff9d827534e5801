// Package providers has the table of the providers that Tryst opens itself. A new provider is a
// folder below verbs/ and a row here: settings, choice, defaults, inventory, metrics and the texts of
// tryst doctor come from the row, and no other package names a provider.
//
// What two processes have to agree on is no part of it: the link layer of a device decides how peers
// reach it (internal/handshake), and which route they prefer (transport/verbs/internal/route).
package providers

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

// Row is what distinguishes a provider.
type Row struct {
	// Name is the name in the setting provider, in logs, reports and metrics.
	Name string
	// Help describes it in the help of the setting provider; may be empty.
	Help string

	// Link is the link layer of its only device, which stays from the start to the end of a process:
	// LinkTCP, LinkShared. LinkUnspecified is for RDMA: of all devices one is chosen, which may go and
	// be replaced, and its ports say what link layer they have.
	Link verbs.LinkLayer
	// Order is the place among the routes to a peer, the preferred one first (package route).
	Order int
	// Kernel reports whether the devices belong to the kernel. They are preferred to RDMA in user space,
	// and peers need not dial the addresses of their ports.
	Kernel bool

	// Timeout is the default of the setting rdma.timeout, and QueuePairs that of rdma.queue-pairs; 0 for
	// that of NICs.
	Timeout    time.Duration
	QueuePairs int
	// Throughput estimates the bytes a second over a path of which a share of packets is lost, for
	// devices that send less then; nil for those that do not.
	Throughput func(mtu verbs.MTU, roundTrip time.Duration, loss float64) float64

	// New returns the provider.
	New func(Options) verbs.Provider
	// Inventory lists the devices, before one is opened; nil: as they describe themselves.
	Inventory func(verbs.Provider) (discovery.Inventory, error)
	// WrongSetting returns the error for a setting that the provider cannot use, which ends the start
	// also with auto, and nil for other errors of its device; nil if there is no such setting.
	WrongSetting func(Options, error) error
	// Metrics are the numbers that it counts.
	Metrics []Metric

	// Doctor has its texts in tryst doctor. RDMA devices have checks of their own.
	Doctor Texts
}

// Options are what providers get, as far as they need it.
type Options struct {
	// Addresses are those at which peers dial the process, as "host:port"; none for one that only dials.
	Addresses []string
	// Dial connects to a peer for a queue pair over TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Directory is where processes of this host meet for shared memory: the setting shm-dir. Trusted
	// reports whether mutual TLS proves their names.
	Directory string
	Trusted   bool
	// Busy reports whether goroutines spin for longer before they sleep: the setting poll is busy.
	Busy bool
	// Logger receives what an operator may want to change; nil discards.
	Logger *slog.Logger
}

// Metric is a number that a provider counts.
type Metric struct {
	Name, Help string
	Gauge      bool // it may fall
	Read       func(verbs.Provider) float64
}

// Texts are those of tryst doctor.
type Texts struct {
	Device    string // what its device is
	Unreached string // what to do about a peer that it does not reach
	Missed    string // what to do if it has no device here
}

// RDMA reports whether the devices are RDMA devices, of which one is chosen.
func (r Row) RDMA() bool { return r.Link == verbs.LinkUnspecified }

// Local reports whether the device reaches only processes of this host.
func (r Row) Local() bool { return r.Link == verbs.LinkShared }

// Of returns the row of a provider. ok is false, and all but the name is zero, for one that the table
// does not have: a program has passed it, and it gets the defaults of NICs.
func Of(name string) (row Row, ok bool) { return In(table, name) }

// In is Of for another table.
func In(rows []Row, name string) (row Row, ok bool) {
	if i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name }); i >= 0 {
		return rows[i], true
	}
	return Row{Name: name}, false
}

// All returns the table. The setting provider lists the names in its order.
func All() []Row { return slices.Clone(table) }

// Preferred returns rows in the order in which routes are preferred.
func Preferred(rows []Row) []Row {
	return slices.SortedStableFunc(slices.Values(rows), func(a, b Row) int { return a.Order - b.Order })
}
