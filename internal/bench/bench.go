package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Options are what to measure, and how. Zero fields take their defaults.
type Options struct {
	// Command returns the command that starts the second process, which calls
	// Serve. It is required unless From is set.
	Command func(context.Context) *exec.Cmd
	// From is a remote server, HOST[:PORT] or a task, to receive from. It has no
	// baselines, so only Tryst is measured, with the published tensors whose
	// sizes are nearest to Sizes.
	From string
	// Client has the settings for dialing that server.
	Client server.Config
	// Transports are the transports to measure; empty: grpc. The device of verbs
	// is that of Client.
	Transports []string
	// PeerDevice is the RDMA device of the second process, as
	// server.RDMA.Device; empty: that of Client.
	PeerDevice string
	// Only has the names of the benchmarks to run; empty: all but those of routes.
	Only []string
	// Routes measures the routes between two processes of one host, and nothing else, whatever
	// Transports has.
	Routes bool
	// Peers is a virtual environment of Python with the packages of internal/bench/peers. When
	// it is set, receives over the routes are measured beside the programs there, and nothing
	// else is.
	Peers string
	// TorchPython is a Python that has torch, for the rows of all-reduces beside gloo; empty: that
	// of Peers, if it has torch.
	TorchPython string
	// Sizes has the sizes of receives in bytes, Inflight how many are concurrent.
	Sizes    []int64
	Inflight []int
	// Pairs is the number of pairs in a contest, PairTime the duration of one run.
	Pairs    int
	PairTime time.Duration
	// Pin keeps each of the two processes whose latency is measured, and those of a
	// baseline, on a processor of its own. Otherwise Linux sometimes runs threads of both
	// on one processor, on a machine with two processors often.
	Pin bool
	// Row is called with each row as soon as it is measured, and Progress with what
	// is being measured, or why something is skipped. Both may be nil.
	Row      func(Row)
	Progress func(string)
	// Profile is a directory for CPU profiles of this process, first-*.pprof, and of
	// each second process, second-*.pprof, over its whole life. Empty: none.
	Profile string

	many, waiting int               // concurrent receives, waiting keys; fewer in tests
	idle          time.Duration     // for which an idle channel is watched; less in tests
	settle        time.Duration     // before it; less in tests
	silence       time.Duration     // the longest before a call; less in tests
	idlePeers     int               // idle peers whose memory is measured; fewer in tests
	standIns      map[string]string // providers that stand in for those of routes, in tests
	polls         []string          // values of the setting poll to measure; fewer in tests
	pool          *tensor.Pool      // for received tensors; nil: one for each benchmark. Tests set it to check it
	loadFile      string            // file with the load average; another one in tests
}

// benchmark is one benchmark.
type benchmark struct {
	name      string
	transport string // that it measures, or local
	run       func(*suite, context.Context) error
	takes     estimate
	group     string // with which it runs, routesFile or peersFile; "" for those of transports
	route     *route // that it measures; nil outside of groups
}

// local is the transport of benchmarks within one process.
const local = "local"

// recvName is the benchmark of receives, the only one that works with a remote server.
const recvName = "recv"

// benchmarks lists all benchmarks in the order in which they run. Those that measure the memory of
// this process come first, before it has had a hundred thousand goroutines.
func benchmarks() []benchmark {
	return slices.Concat(ofTransports(), ofRoutes(), ofPeers())
}

func ofTransports() []benchmark {
	return append([]benchmark{
		{"local-match", local, (*suite).localMatch, contests(1), "", nil},
		{"local-gain", local, (*suite).localGain, contests(2), "", nil},
		{"waiting-value", local, (*suite).waitingValue, constant(waitingTime), "", nil},
		{"waiting-receive", local, (*suite).waitingReceive, constant(waitingTime), "", nil},
		{"waiting-kept", local, (*suite).waitingKept, constant(waitingTime), "", nil},
		{recvName, grpctransport.Name, (*suite).recv, perReceive(3), "", nil},
		{"recv-udp-loop", grpctransport.Name, (*suite).besideUDP, perReceive(1), "", nil},
		{"recv-many", grpctransport.Name, (*suite).recvMany, constant(manyTime), "", nil},
		{"recv-whole", grpctransport.Name, (*suite).recvWhole, constant(wholeTime), "", nil},
		{"waiting-remote", grpctransport.Name, (*suite).waitingRemote, constant(remoteWaitingTime), "", nil},
		{"verbs-beside-grpc", verbstransport.Name, (*suite).besideGRPC, perReceive(1), "", nil},
		{"verbs-small", verbstransport.Name, (*suite).smallBesideGRPC, func(s *suite) time.Duration { return secondTime + contests(1)(s) }, "", nil},
		{"verbs-udp-loop", verbstransport.Name, (*suite).besideUDP, perReceive(1), "", nil},
		{"verbs-recv", verbstransport.Name, (*suite).recvVerbs, perReceive(2), "", nil},
		{"verbs-latency", verbstransport.Name, func(s *suite, ctx context.Context) error { return s.pinned(ctx, (*suite).latencyVerbs) }, perWay(2), "", nil},
		{"verbs-idle", verbstransport.Name, (*suite).idleVerbs, func(s *suite) time.Duration { return secondTime + s.idle }, "", nil},
	}, ofSteps("verbs", benchmark{transport: verbstransport.Name})...)
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
	now benchmark // the current one
	// second is where the second process of the benchmark is; nil for anywhere.
	second *pin
	load   float64 // of the machine, before the first benchmark
	// processor names its processors.
	processor string
	rows      []Row
}

// Run runs the benchmarks and returns the rows; after an error, those measured so far. It returns
// when the second process has ended.
func Run(ctx context.Context, o Options) (_ []Row, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	stop, err := profile(o.Profile, firstProfile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s := &suite{Options: o, processor: processorText(cpuInfo)}
	s.measureLoad()
	if o.From != "" {
		rows := len(o.Transports) * len(o.Sizes) * len(o.Inflight)
		s.progress("%d %s will take about %v", rows, plural("measurement", rows), rough(time.Duration(rows)*s.contest().takesAlone()))
		for _, transport := range o.Transports {
			s.now = benchmark{name: recvName, transport: transport}
			if err := s.recvFrom(ctx); err != nil {
				return s.rows, err
			}
		}
		return s.rows, nil
	}
	all := s.chosen()
	s.announce(all)
	for i, b := range all {
		s.now = b
		if len(all) > 1 {
			s.announceNext(all, i)
		}
		if err := b.run(s, ctx); err != nil {
			return s.rows, status.From(err).WithPrefix(b.name)
		}
	}
	return s.rows, nil
}

// chosen returns the benchmarks of the options.
func (s *suite) chosen() []benchmark {
	group := ""
	switch {
	case s.Routes:
		group = routesFile
	case s.Peers != "":
		group = peersFile
	}
	return slices.DeleteFunc(benchmarks(), func(b benchmark) bool {
		named := slices.Contains(s.Only, b.name)
		switch {
		case len(s.Only) > 0 && !named, strings.HasPrefix(b.name, peerPrefix) && s.Peers == "":
			return true
		case b.group != "":
			return b.group != group && !named
		}
		return group != "" || b.transport != local && !slices.Contains(s.Transports, b.transport)
	})
}

// Validate checks the options. An error is InvalidArgument.
func (o Options) Validate() error { return o.complete() }

// Transports returns the transports that can be measured. What the setting auto takes is one of them.
func Transports() []string { return []string{grpctransport.Name, verbstransport.Name} }

// complete sets the defaults and checks the options.
func (o *Options) complete() error {
	known := Transports()
	for _, name := range o.Transports {
		if !slices.Contains(known, name) {
			return status.Errorf(status.InvalidArgument, "unknown transport %q; want one of %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return status.Errorf(status.InvalidArgument, "unknown benchmark %q; want one of %s", name, strings.Join(Names(), ", "))
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
		o.many, o.waiting, o.idle, o.settle, o.silence, o.idlePeers = manyReceives, waitingKeys, idleTime, idleSettle, longPause, idlePeers
	}
	if o.loadFile == "" {
		o.loadFile = loadFile
	}
	switch {
	case slices.Min(o.Sizes) < 0:
		return status.Errorf(status.InvalidArgument, "size %d: it must not be negative", slices.Min(o.Sizes))
	case slices.Min(o.Inflight) < 1:
		return status.Errorf(status.InvalidArgument, "%d receives in flight: it must be at least 1", slices.Min(o.Inflight))
	case o.Pairs < 1 || o.PairTime <= 0:
		return status.Errorf(status.InvalidArgument, "%d pairs of %v: both must be positive", o.Pairs, o.PairTime)
	case o.From != "" && (o.Routes || o.Peers != ""), o.Routes && o.Peers != "":
		return status.New(status.InvalidArgument, "routes are measured between two processes of this host, beside their baselines or beside programs of others: set one of --routes, --peers and --from")
	case o.Peers == "" && slices.ContainsFunc(o.Only, func(name string) bool { return strings.HasPrefix(name, peerPrefix) }):
		return status.New(status.InvalidArgument, "benchmarks beside programs of others need the directory of these: set --peers; make bench-peers does")
	case o.From != "" && len(o.Only) > 0 && !slices.Equal(o.Only, []string{recvName}):
		return status.Errorf(status.InvalidArgument, "with a remote server only %s can be measured", recvName)
	case o.Command == nil && o.From == "":
		return status.New(status.InvalidArgument, "bench.Options has neither Command nor From: set one")
	}
	return nil
}

// client returns the settings for dialing servers over the transport that is measured, without a
// fallback.
func (s *suite) client() server.Config {
	c := s.Client
	c.Transport = grpctransport.Name
	switch {
	case s.now.route != nil:
		s.now.route.apply(&c, s.routeProvider())
	case s.now.transport == verbstransport.Name:
		c.Transport, c.Fallback = verbstransport.Name, server.FallbackNone
	}
	return c
}

func (s *suite) contest() contest { return contest{pairs: s.Pairs, time: s.PairTime} }

// add reports a row.
func (s *suite) add(r Row) {
	r.file, r.Load, r.Processor = cmp.Or(s.now.group, s.now.transport), s.load, s.processor
	s.rows = append(s.rows, r)
	if s.Row != nil {
		s.Row(r)
	}
}

// say reports what the current benchmark does.
func (s *suite) say(format string, args ...any) {
	s.progress("%s: %s", s.now.name, fmt.Sprintf(format, args...))
}

func (s *suite) progress(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}
