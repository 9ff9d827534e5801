package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/bench"
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/config"
	"github.com/tryst-rdma/tryst/status"
)

// benchPeer is the name of the command that is the second process of bench.
const benchPeer = "bench-peer"

func (s streams) benchCommand() *cobra.Command {
	var (
		o     bench.Options
		sizes []string
		dir   string
		json  bool
		check bool
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure beside yardsticks",
		Long: `Bench starts a second process and measures what moves between the two, and what
a local rendezvous costs, each beside a yardstick: a bare gRPC call of the same
size, the generated protobuf code, a TCP connection, UDP sockets, a map under a
lock, the programs of perftest for RDMA. Each contest is the median of pairs that
take turns; the yardstick beside itself tells how much of a difference is noise
here.

With --from it receives from a server elsewhere, without yardsticks: of what is
published there the tensors that are nearest to the sizes.

Benchmarks: ` + strings.Join(bench.Names(), ", ") + ".",
		Example: `  tryst bench
  tryst bench --only recv --size 1MiB --inflight 4
  tryst bench --transport grpc,verbs --rdma-device mlx5_0
  tryst bench --from 10.0.0.1:2222 --json`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Transports = severalWires(cmd.Flags())
			cfg, err := s.load(cmd, config.ForClient)
			if err != nil {
				return err
			}
			o.Client, o.Command = cfg.Client, secondProcess
			if len(o.Transports) == 0 {
				o.Transports = []string{cfg.Transport}
			}
			for _, text := range sizes {
				n, err := config.ParseSize(text)
				if err != nil {
					return usagef("--size %q: %w", text, err)
				}
				o.Sizes = append(o.Sizes, n)
			}
			switch {
			case o.Pairs < 1:
				return usagef("--pairs %d: at least 1 is needed", o.Pairs)
			case o.PairTime <= 0:
				return usagef("--pair-time %v: it must be above 0", o.PairTime)
			case o.From != "":
				if _, _, _, err := cluster.ResolveTarget(cfg.Cluster, o.From); err != nil {
					return usageError{status.From(err).WithPrefix("--from")}
				}
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			o.Progress = func(text string) { fmt.Fprintln(s.err, "bench: "+printable(text)) }
			var written error // of the first row that could not be
			if json {
				o.Row = func(r bench.Row) {
					if written == nil {
						written = writeJSON(s.out, r)
					}
				}
			}
			rows, err := bench.Run(cmd.Context(), o)
			if !json && len(rows) > 0 { // also what was measured before an error
				written = bench.WriteTable(s.out, rows)
			}
			if err == nil {
				err = written
			}
			if err == nil && dir != "" {
				err = bench.Save(dir, rows)
			}
			if err == nil && check {
				err = bench.Missed(rows)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.From, "from", "", "receive from this server instead: `HOST:PORT|TASK`, a TASK being one of --cluster")
	flags.StringSliceVar(&o.Only, "only", nil, "run only these benchmarks: `NAME,...`")
	flags.StringSliceVar(&sizes, "size", sizeTexts(bench.DefaultSizes), "what is received, `SIZE,...`, as 64KiB")
	flags.IntSliceVar(&o.Inflight, "inflight", bench.DefaultInflight, "how many receives are under way at once, `N,...`")
	flags.IntVar(&o.Pairs, "pairs", bench.DefaultPairs, "how many pairs a contest has")
	flags.DurationVar(&o.PairTime, "pair-time", bench.DefaultPairTime, "how long each of a pair runs")
	flags.StringVar(&dir, "json-dir", "", "also write the rows into NAME.jsonl in `DIR`, a file for each wire")
	flags.BoolVar(&json, "json", false, "write each row as one line of JSON")
	flags.BoolVar(&check, "check", false, "fail when a target is missed by more than noise")
	flags.BoolVar(&o.Pin, "pin", false, "keep the processes of verbs-latency, those of its yardsticks too, on a processor each")
	flags.StringVar(&o.Profile, "cpu-profile", "", "write CPU profiles of both processes into `DIR`, for go tool pprof")
	flags.StringVar(&o.PeerDevice, "peer-rdma-device", "", "RDMA device of the second process, as --rdma-device; the same one when empty")
	config.RegisterFlags(flags, config.ForClient)
	flags.Lookup(transportFlag).Usage = "wires to measure, `WIRE,...` of " + strings.Join(config.Transports(), ", ")
	return cmd
}

const transportFlag = "transport"

// severalWires returns the wires of a --transport that lists some, and leaves in the
// flag the one of them that has the most settings, since a process has only one
// wire; nil for a flag with one or none.
func severalWires(flags *pflag.FlagSet) []string {
	f := flags.Lookup(transportFlag)
	wires := strings.Split(f.Value.String(), ",")
	if len(wires) == 1 || !f.Changed {
		return nil
	}
	one := wires[0]
	if slices.Contains(wires, config.Verbs) {
		one = config.Verbs
	}
	_ = f.Value.Set(one) // takes any text, which Validate judges
	return wires
}

// benchPeerCommand is the second process: not for people, and not in the help.
func (s streams) benchPeerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    benchPeer,
		Short:  "Be the second process of bench",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Serve(cmd.Context(), os.Stdin, s.out)
		},
	}
}

func sizeTexts(sizes []int64) (texts []string) {
	for _, n := range sizes {
		texts = append(texts, config.FormatSize(n))
	}
	return texts
}

// secondProcess returns this program as the second process.
func secondProcess(ctx context.Context) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0] // to start it tells what is wrong
	}
	return exec.CommandContext(ctx, self, benchPeer)
}
