package transporttest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// Suite configures Run for a transport.
type Suite struct {
	// New returns a cluster of the given tasks, none of which runs yet. It releases its
	// resources when t ends.
	New func(t testing.TB, tasks []cluster.Task) Cluster
	// MaxSize is the size in bytes of the largest tensor; 1 MiB when 0. Cases with larger
	// tensors do not run.
	MaxSize int64
	// Only names the groups of cases to run ("Cut", "Size"); all when empty. It is for a
	// second run of a transport with other settings.
	Only []string
	// TimeScale multiplies all timeouts. 0 means 1, for a real machine; an emulated machine
	// needs 40.
	TimeScale int
	// Registered means that the transport receives tensors into memory of its own, and uses
	// NodeOptions.Allocator only for the others. Cases that expect all memory from the
	// allocator do not run.
	Registered bool
	// Blocking makes receives by blocking calls, each on a goroutine of the case, instead of
	// calls with a callback.
	Blocking bool
	// Virtual runs each case on virtual time (testing/synctest), for a transport without
	// sockets.
	Virtual bool
	// Parallel runs the suite in parallel with other tests, and its cases in parallel, since
	// most of them wait. Cases with large tensors run one after the other. A case cannot
	// check for leaked goroutines then; the package's TestMain must.
	Parallel bool
}

// Cluster is a set of processes that know each other's addresses. Its methods may be called
// from any goroutine.
type Cluster interface {
	// Start starts the process of a task. After a Kill it is a new process at the same
	// address.
	Start(task cluster.Task, o NodeOptions) Node
	// Faults returns what disturbs the connections between a task and its requesters; the task
	// need not run. Nil means that nothing can; cases that need it are skipped.
	Faults(task cluster.Task) Faults
}

// NodeOptions are a case's options for a process.
type NodeOptions struct {
	// Incarnation is that of the process and of its one device, CPU:0.
	Incarnation uint64
	// Allocator allocates the tensors that the process receives.
	Allocator tensor.Allocator
	// PeerTimeout is how long a peer may be unreachable before receives from it end with
	// Unavailable.
	PeerTimeout time.Duration
	// Cache configures its response cache.
	Cache delivery.CacheOptions
}

// Node is a running process.
type Node interface {
	// Manager has its steps. Their remote receives use the transport.
	Manager() *rendezvous.Manager
	// Cache is its response cache.
	Cache() *delivery.ResponseCache
	// Stop ends it in order: its receives end, and pending acks and cancels are sent to the
	// peers. It returns when no goroutine of it is left.
	Stop(ctx context.Context) error
	// Kill ends it without a message to its peers, as when the process died.
	Kill()
}

// Faults disturbs the connections between a task and its requesters. It counts the bytes from
// the task to the requesters, over all connections together.
type Faults interface {
	// CutAfter breaks every connection after n more bytes, at once when n is 0. The channel
	// is closed when it has happened. New connections are possible immediately.
	CutAfter(n int64) <-chan struct{}
	// HoldAfter stops the flow in both directions after n more bytes, at once when n is 0,
	// until Release. The connections stay open, without an error. The channel is closed when
	// it has happened.
	HoldAfter(n int64) <-chan struct{}
	// Release ends a hold, and cancels a cut or hold that has not happened yet.
	Release()
	// Throttle limits the flow to bytes per second; 0 for no limit.
	Throttle(bytesPerSecond int64)
}

// group is a part of the suite, with a subtest of its own.
type group struct {
	name  string
	cases []testCase
}

// testCase is one behaviour.
type testCase struct {
	name string
	run  func(w *world)
	size int64 // size of its largest tensor in bytes, if above 1 MiB
	heap bool  // needs a transport that allocates all memory from the allocator
}

// defaultMaxSize is the default of MaxSize.
const defaultMaxSize = 1 << 20

func (s Suite) groups() []group {
	return []group{
		{"Order", orderCases()},
		{"Content", contentCases()},
		{"Size", sizeCases()},
		{"Memory", memoryCases()},
		{"Into", intoCases()},
		{"Abort", abortCases()},
		{"Cancel", cancelCases()},
		{"Cut", cutCases()},
		{"Peer", peerCases()},
		{"Step", stepCases()},
		{"Publication", publicationCases()},
		{"Limit", limitCases()},
		{"Slow", slowCases()},
		{"Many", manyCases()},
		{"Callback", callbackCases()},
		{"Delivery", deliveryCases()},
		{"Stop", stopCases()},
	}
}

// Run runs the suite. Each case is a subtest with a cluster of its own.
func Run(t *testing.T, s Suite) {
	if s.MaxSize == 0 {
		s.MaxSize = defaultMaxSize
	}
	s.TimeScale = max(s.TimeScale, 1)
	if s.Parallel {
		t.Parallel()
	}
	for _, g := range s.groups() {
		if len(s.Only) > 0 && !slices.Contains(s.Only, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			if s.Parallel {
				t.Parallel()
			}
			for _, c := range g.cases {
				if c.size <= s.MaxSize && (!c.heap || !s.Registered) {
					t.Run(c.name, func(t *testing.T) { s.run(t, c) })
				}
			}
		})
	}
}

func (s Suite) run(t *testing.T, c testCase) {
	if s.Parallel && c.size == 0 {
		t.Parallel()
	}
	if !s.Parallel {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() { // runs last
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
		})
	}
	body := func(t *testing.T) { c.run(newWorld(t, s, c.size)) }
	if s.Virtual {
		synctest.Test(t, body)
		return
	}
	body(t)
}
