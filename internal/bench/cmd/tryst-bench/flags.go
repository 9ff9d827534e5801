package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bench"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/internal/console"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

// given is what the command line and the settings ask for.
type given struct {
	options bench.Options
	results bench.Results
	json    bool
	check   bool
}

const help = `Usage: tryst-bench [flags]

It starts a second process and measures what moves between the two, and what a
local rendezvous costs, each beside a baseline: a bare gRPC call of the same
size, the generated protobuf code, a TCP connection, UDP sockets, a map under a
lock, the programs of perftest for RDMA, and for routes copies out of a memfd, TCP,
TLS and unix sockets in two processes of their own. The benchmarks with -step- in their names
make the calls of a program, Step.Recv and others, under the poll of --poll, or by default
adaptively, and some busily, too. Each contest is the median of pairs that
take turns; the baseline beside itself tells how much of a difference is noise
here.

With --from it receives from another server, without baselines: for each size
the published tensor that is nearest to it.

Benchmarks: %s.

Flags (those of settings also have TRYST_ environment variables):
%s`

// helpWidth is where the lines of flags are wrapped, unless the terminal is narrower.
const helpWidth = 100

// parse reads the command line. It returns pflag.ErrHelp when it has written the help,
// and a usageError for what it refuses.
func parse(args []string, s streams) (given, error) {
	var (
		g     given
		sizes []string
	)
	o := &g.options
	flags := pflag.NewFlagSet("tryst-bench", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {
		width := helpWidth
		if n := console.Width(s.out); n > 0 {
			width = min(width, n)
		}
		fmt.Fprintf(s.out, help, strings.Join(bench.Names(), ", "), flags.FlagUsagesWrapped(width))
	}
	flags.StringVar(&o.From, "from", "", "receive from this server instead: `HOST[:PORT]|TASK`, a TASK being one of --cluster; without a PORT 2222")
	flags.StringSliceVar(&o.Only, "only", nil, "run only these benchmarks: `NAME,...`")
	flags.BoolVar(&o.Routes, "routes", false, "measure each route between two processes of this host beside what is next to it, and print a row for each target")
	flags.StringVar(&o.Peers, "peers", "", "measure routes beside UCX, NIXL and gloo, of which make bench-peers installs the first two into the virtual environment `DIR`")
	flags.StringVar(&o.TorchPython, "torch-python", "", "run gloo, the baseline of allreduce-shm and allreduce-tcp, by the Python at `PATH`, which has torch; empty: by that in --peers")
	flags.StringSliceVar(&sizes, "size", sizeTexts(bench.DefaultSizes), "what is received, `SIZE,...`, as 64KiB")
	flags.IntSliceVar(&o.Inflight, "inflight", bench.DefaultInflight, "how many receives are under way at once, `N,...`")
	flags.IntVar(&o.Pairs, "pairs", bench.DefaultPairs, "how many pairs a contest has")
	flags.DurationVar(&o.PairTime, "pair-time", bench.DefaultPairTime, "how long each of a pair runs")
	flags.StringVar(&g.results.Dir, "json-dir", "", "also write the rows into NAME.jsonl in `DIR`, a file for each transport")
	flags.BoolVar(&g.results.Plot, "plot", false, "also draw each NAME.jsonl of --json-dir as NAME.svg, by tryst-plot beside this program or on PATH; make build/tryst-plot builds it")
	flags.BoolVar(&g.json, "json", false, "write each row as one line of JSON")
	flags.BoolVar(&g.check, "check", false, "fail when a target is missed by more than noise")
	flags.BoolVar(&o.Pin, "pin", false, "keep the processes of verbs-latency, those of its baselines too, on a processor each")
	flags.StringVar(&o.Profile, "cpu-profile", "", "write CPU profiles of both processes into `DIR`, for go tool pprof")
	flags.StringVar(&o.PeerDevice, "peer-rdma-device", "", "RDMA device of the second process, as --rdma-device; the same one when empty")
	sources.RegisterFlags(flags, config.ForBench)
	flags.Lookup(transportFlag).Usage = "transports to measure, `TRANSPORT,...` of " + strings.Join(bench.Transports(), ", ")

	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return g, err
	} else if err != nil {
		return g, usageError{err}
	}
	if rest := flags.Args(); len(rest) > 0 {
		return g, usagef("it takes no argument, and %q is one", rest[0])
	}
	o.Transports = severalTransports(flags)
	cfg, err := sources.Load(sources.Options{Flags: flags, Environ: s.env, Use: config.ForClient})
	problems := append(complete(o, cfg, sizes), err)
	if err := errors.Join(problems...); err != nil {
		return g, usageError{err}
	}
	if err := errors.Join(o.Validate(), g.results.Validate()); err != nil {
		return g, usageError{err}
	}
	return g, nil
}

// complete sets the options that the settings and texts give, and returns all that is wrong.
// cfg is nil when the settings are not valid.
func complete(o *bench.Options, cfg *sources.Loaded, sizes []string) (problems []error) {
	o.Command = secondProcess
	if cfg != nil {
		o.Client, _ = cfg.Given(config.ForClient)
	}
	if cfg != nil && len(o.Transports) == 0 && cfg.Transport != server.TransportAuto {
		o.Transports = []string{cfg.Transport}
	}
	for _, text := range sizes {
		n, err := config.ParseSize(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("--size %q: %w", text, err))
		}
		o.Sizes = append(o.Sizes, n)
	}
	if o.Pairs < 1 {
		problems = append(problems, fmt.Errorf("--pairs %d: at least 1 is needed", o.Pairs))
	}
	if o.PairTime <= 0 {
		problems = append(problems, fmt.Errorf("--pair-time %v: it must be above 0", o.PairTime))
	}
	if o.From != "" && cfg != nil {
		if _, _, _, err := cluster.ResolveTarget(cfg.Spec(), o.From); err != nil {
			problems = append(problems, status.From(err).WithPrefix("--from"))
		}
	}
	return problems
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

const transportFlag = "transport"

// severalTransports returns the transports of a --transport that lists some, and leaves in
// the flag the one of them that has the most settings, since a process has only one
// transport; nil for a flag with one or none.
func severalTransports(flags *pflag.FlagSet) []string {
	f := flags.Lookup(transportFlag)
	transports := strings.Split(f.Value.String(), ",")
	if len(transports) == 1 || !f.Changed {
		return nil
	}
	one := transports[0]
	if slices.Contains(transports, server.TransportVerbs) {
		one = server.TransportVerbs
	}
	_ = f.Value.Set(one) // takes any text, which Validate judges
	return transports
}

func sizeTexts(sizes []int64) (texts []string) {
	for _, n := range sizes {
		texts = append(texts, config.FormatSize(n))
	}
	return texts
}
