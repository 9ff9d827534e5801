package transporttest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// Suite is what a transport's test gives to Run.
type Suite struct {
	// New returns a cluster of the given tasks, none of which runs yet. What
	// it needs beyond the nodes it gives back when t ends.
	New func(t testing.TB, tasks []cluster.Task) Cluster
	// MaxSize is the size in bytes of the largest tensor to move; 1 MiB when
	// 0. Cases with larger ones are left out.
	MaxSize int64
	// Only names the groups of cases to run ("Cut", "Size"); all when empty.
	// It is for a second run of a transport with other settings.
	Only []string
	// TimeScale multiplies every wait: 1 on a real machine, which 0 means too; 40
	// in an emulated one.
	TimeScale int
	// Registered says that tensors arrive in memory that the transport has of
	// its own; NodeOptions.Allocator gives that of the others. The cases that
	// make it give all memory, or none, are left out.
	Registered bool
	// Blocking says that receives are calls that wait, each on a goroutine of the
	// case, and not calls with a callback.
	Blocking bool
	// Virtual runs each case on virtual time (testing/synctest), for a
	// transport without sockets.
	Virtual bool
	// Parallel runs the suite in parallel with other tests, and its cases with
	// each other, since most of them wait; those with large tensors run one
	// after the other. A goroutine that is left cannot be told from another
	// case's then: the package's TestMain must check for them.
	Parallel bool
}

// Cluster is a set of processes that know each other's addresses. Its methods
// may be called from any goroutine.
type Cluster interface {
	// Start starts the process of a task. After a Kill it is a new process
	// at the old address.
	Start(task cluster.Task, o NodeOptions) Node
	// Link is what carries the bytes between a task and those who ask it,
	// whether the task runs or not. Nil says that the transport has no way
	// to disturb it; the cases that do are then skipped.
	Link(task cluster.Task) Link
}

// NodeOptions is what a case decides about a process.
type NodeOptions struct {
	// Incarnation is the process's, and that of its one device, CPU:0.
	Incarnation uint64
	// Allocator gives the memory of the tensors that it receives.
	Allocator tensor.Allocator
	// PeerTimeout is how long no wire may reach a peer before its receives
	// end with Unavailable.
	PeerTimeout time.Duration
	// Kept bounds its table of answers.
	Cache transport.CacheOptions
}

// Node is a process that runs.
type Node interface {
	// Manager holds its steps. Their remote receives go over the transport.
	Manager() *rendezvous.Manager
	// Kept is its table of answers.
	Cache() *transport.ResponseCache
	// Stop ends it in order: its receives end, and the peers hear what they
	// have to know. It returns when nothing of it runs any more.
	Stop(ctx context.Context) error
	// Kill ends it without a word to anybody, as when the process died.
	Kill()
}

// Link disturbs the connections over which a task is asked. Bytes are counted
// from the task to its askers, over all connections together.
type Link interface {
	// CutAfter breaks every connection when n more bytes have been carried,
	// at once when n is 0. The channel is closed when it has happened. New
	// connections are possible immediately.
	CutAfter(n int64) <-chan struct{}
	// HoldAfter stops the flow in both directions when n more bytes have been
	// carried, at once when n is 0, until Release. The connections live, and
	// nobody is told. The channel is closed when it has happened.
	HoldAfter(n int64) <-chan struct{}
	// Release ends a hold, and a cut or hold that has not happened yet.
	Release()
	// Throttle limits the flow to bytes per second; 0 for no limit.
	Throttle(bytesPerSecond int64)
}

// group is a part of the suite, a subtest of its own.
type group struct {
	name  string
	cases []testCase
}

// testCase is one behaviour.
type testCase struct {
	name string
	run  func(w *world)
	size int64 // of the largest tensor that it moves, when above 1 MiB
	heap bool  // for a transport whose memory is all the allocator's
}

// defaultMaxSize is MaxSize when it is not given.
const defaultMaxSize = 1 << 20

func (s Suite) groups() []group {
	return []group{
		{"Order", orderCases()},
		{"Content", contentCases()},
		{"Size", sizeCases()},
		{"Memory", memoryCases()},
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
		{"Stop", stopCases()},
	}
}

// Run runs the suite, each case as a subtest with a cluster of its own. What is
// larger than MaxSize is left out.
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
