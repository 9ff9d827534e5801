package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Options say what is measured, and how. Zero fields take their defaults.
type Options struct {
	// Command returns the command that starts the second process: one that
	// calls Serve. Needed unless From is given.
	Command func(context.Context) *exec.Cmd
	// From is a server elsewhere, HOST:PORT or a task, to receive from. There
	// are no baselines there, so only what is ours is measured, with the
	// published tensors that are nearest to Sizes.
	From string
	// Client is how that server is dialed.
	Client config.Client
	// Transports are the wires to measure; grpc when empty. With verbs, the
	// devices are those of Client.
	Transports []string
	// PeerDevice is the RDMA device of the second process, as
	// config.RDMA.Device; that of Client when empty.
	PeerDevice string
	// Only are the names of the benchmarks to run; all when empty.
	Only []string
	// Sizes of the receives, in bytes, and how many are under way at once.
	Sizes    []int64
	Inflight []int
	// Pairs is how many pairs a contest has, PairTime how long one run.
	Pairs    int
	PairTime time.Duration
	// Pin keeps the two processes whose latency is measured, those of a baseline as
	// well, on a processor each: Linux would else put threads of both on one now and then,
	// which on a machine with two processors is every other moment.
	Pin bool
	// Row is told each row as soon as it is measured, and Progress what is
	// being measured, or why something is not. Nil for nobody.
	Row      func(Row)
	Progress func(string)
	// Profile is a directory for CPU profiles of this process, first-*.pprof, and of
	// each second one, second-*.pprof, from the start of each to its end; none when
	// empty.
	Profile string

	many, waiting int           // receives and keys at once; fewer in tests
	idle          time.Duration // that a channel is watched while it is idle; less in tests
	polls         []string      // ways of waiting whose latency is measured; fewer in tests
	pool          *tensor.Pool  // of what is received; one for each benchmark when nil, as tests look at theirs
	loadFile      string        // of the load average; another in tests
}

// benchmark is one thing that can be measured.
type benchmark struct {
	name      string
	transport string // the wire that it measures; local for none
	run       func(*suite, context.Context) error
}

// local is what is said in place of a wire where nothing leaves the process.
const local = "local"

// recvName is the benchmark of receives, the one that needs no second process of
// our own.
const recvName = "recv"

// benchmarks are all of them, in the order in which they run: first those that
// look at the memory of this process, before it has had a hundred thousand
// goroutines.
func benchmarks() []benchmark {
	return []benchmark{
		{"local-match", local, (*suite).localMatch},
		{"local-gain", local, (*suite).localGain},
		{"waiting-value", local, (*suite).waitingValue},
		{"waiting-receive", local, (*suite).waitingReceive},
		{"waiting-kept", local, (*suite).waitingKept},
		{recvName, grpctransport.Name, (*suite).recv},
		{"recv-udp-loop", grpctransport.Name, (*suite).besideUDP},
		{"recv-many", grpctransport.Name, (*suite).recvMany},
		{"recv-whole", grpctransport.Name, (*suite).recvWhole},
		{"waiting-remote", grpctransport.Name, (*suite).waitingRemote},
		{"verbs-beside-grpc", verbstransport.Name, (*suite).besideGRPC},
		{"verbs-small", verbstransport.Name, (*suite).smallBesideGRPC},
		{"verbs-udp-loop", verbstransport.Name, (*suite).besideUDP},
		{"verbs-recv", verbstransport.Name, (*suite).recvVerbs},
		{"verbs-latency", verbstransport.Name, func(s *suite, ctx context.Context) error { return s.pinned(ctx, (*suite).latencyVerbs) }},
		{"verbs-idle", verbstransport.Name, (*suite).idleVerbs},
	}
}

// Names returns the names of all benchmarks.
func Names() []string {
	var names []string
	for _, b := range benchmarks() {
		names = append(names, b.name)
	}
	return names
}

// suite is one run of the benchmarks.
type suite struct {
	Options
	now benchmark // the one that runs
	// second is where the second process of the benchmark is; nil for anywhere.
	second *pin
	load   float64 // of the machine, before the first benchmark
	rows   []Row
}

// Run measures and returns the rows. On an error they are those measured so far.
// It returns when the second process has ended.
func Run(ctx context.Context, o Options) (_ []Row, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	stop, err := profile(o.Profile, firstProfile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s := &suite{Options: o}
	s.measureLoad()
	if o.From != "" {
		for _, wire := range o.Transports {
			s.now = benchmark{name: recvName, transport: wire}
			if err := s.recvFrom(ctx); err != nil {
				return s.rows, err
			}
		}
		return s.rows, nil
	}
	for _, b := range benchmarks() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, b.name) ||
			b.transport != local && !slices.Contains(o.Transports, b.transport) {
			continue
		}
		s.now = b
		if err := b.run(s, ctx); err != nil {
			return s.rows, status.From(err).WithPrefix(b.name)
		}
	}
	return s.rows, nil
}

// Validate refuses, with InvalidArgument, what Run could not do.
func (o Options) Validate() error { return o.complete() }

// complete puts the defaults in and refuses what cannot be.
func (o *Options) complete() error {
	known := config.Transports()
	for _, name := range o.Transports {
		if !slices.Contains(known, name) {
			return status.Errorf(status.InvalidArgument, "no transport %q; there is %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return status.Errorf(status.InvalidArgument, "no benchmark %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	if len(o.Transports) == 0 {
		o.Transports = []string{grpctransport.Name}
	}
	if len(o.Sizes) == 0 {
		o.Sizes = DefaultSizes
	}
	if len(o.Inflight) == 0 {
		o.Inflight = DefaultInflight
	}
	if o.Pairs == 0 {
		o.Pairs = DefaultPairs
	}
	if o.PairTime == 0 {
		o.PairTime = DefaultPairTime
	}
	if o.many == 0 {
		o.many, o.waiting, o.idle = manyReceives, waitingKeys, idleTime
	}
	if o.loadFile == "" {
		o.loadFile = "/proc/loadavg"
	}
	switch {
	case slices.Min(o.Sizes) < 0:
		return status.Errorf(status.InvalidArgument, "a size of %d bytes is none", slices.Min(o.Sizes))
	case slices.Min(o.Inflight) < 1:
		return status.Errorf(status.InvalidArgument, "%d receives under way at once are too few", slices.Min(o.Inflight))
	case o.Pairs < 1 || o.PairTime <= 0:
		return status.Errorf(status.InvalidArgument, "%d pairs of %v measure nothing", o.Pairs, o.PairTime)
	case o.From != "" && len(o.Only) > 0 && !slices.Equal(o.Only, []string{recvName}):
		return status.Errorf(status.InvalidArgument, "from a server elsewhere only %s can be measured", recvName)
	case o.Command == nil && o.From == "":
		return status.New(status.InvalidArgument, "bench.Options says neither how to start the second process nor where another server is")
	}
	return nil
}

// client returns how servers are dialed for the wire that is measured. No other
// wire takes its place.
func (s *suite) client() config.Client {
	c := config.Config{Client: s.Client}
	c.FillDefaults()
	c.Transport = grpctransport.Name
	if s.now.transport == verbstransport.Name {
		c.Transport, c.Fallback = verbstransport.Name, "none"
	}
	return c.Client
}

func (s *suite) contest() contest { return contest{pairs: s.Pairs, time: s.PairTime} }

// add reports a row.
func (s *suite) add(r Row) {
	r.file, r.Load = s.now.transport, s.load
	s.rows = append(s.rows, r)
	if s.Row != nil {
		s.Row(r)
	}
}

func (s *suite) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(s.now.name + ": " + fmt.Sprintf(format, args...))
	}
}
