// Command tryst-bench-versions measures weights that change: versions by Server.Update that come to watchers, by time,
// bytes and memory, beside the whole, beside zstd, and beside what a trainer would do without them. The publisher and
// each watcher is a process of its own.
//
//	tryst-bench-versions
//	tryst-bench-versions --only versions-whole,versions-bytes --pairs 5
//
// Results go to stdout, progress to stderr. It exits with 0 when it has measured, 1 when that failed or
// --check found a missed target, 2 for wrong usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/bench"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// peerCommand is the argument that makes this program the second process of a benchmark.
const peerCommand = "peer"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Stdin, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, in io.Reader, out, progress io.Writer, args []string) int {
	if len(args) == 1 && args[0] == peerCommand {
		if err := bench.Serve(ctx, in, out); err != nil {
			fmt.Fprintln(progress, status.From(err).Message())
			return 1
		}
		return 0
	}
	c := command{out: out}
	flags := c.flags()
	flags.SetOutput(out)
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("it takes no argument, and %q is one", flags.Arg(0))
	}
	if err == nil {
		err = c.complete()
	}
	if err != nil {
		fmt.Fprintln(progress, "tryst-bench-versions:", status.From(err).Message())
		return 2
	}
	c.o.Progress = func(text string) { fmt.Fprintln(progress, "bench: "+text) }
	if err := c.measure(ctx); err != nil {
		fmt.Fprintln(progress, "tryst-bench-versions:", status.From(err).Message())
		return 1
	}
	return 0
}

// command is one command line.
type command struct {
	out            io.Writer
	o              bench.VersionsOptions
	size, slowSize string
	percent        []float64
	results        bench.Results
	lines, check   bool
}

func (c *command) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("tryst-bench-versions", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&c.size, "size", "548000000", "`BYTES` of the model, which is of bfloat16")
	f.IntVar(&c.o.Tensors, "tensors", 0, "in how many tensors it is (default 160)")
	f.StringVar(&c.slowSize, "link-size", "", "`BYTES` of the model over the slow network (default a sixteenth of --size)")
	f.Float64Var(&c.o.SlowBits, "link-bits", 0, "`BITS` a second of the slow network (default 80e6)")
	f.StringSliceVar(&c.o.Only, "only", nil, "run only these contests: `NAME,...` of "+strings.Join(bench.VersionsNames(), ", "))
	f.StringSliceVar(&c.o.Routes, "routes", nil, "only over these: `ROUTE,...` of shm, tcp, grpc, link (default all that a contest has)")
	f.Float64SliceVar(&c.percent, "shares", nil, "`PERCENT,...` of the elements that change in versions-share (default 0,0.1,0.3,1,3,10,30,100)")
	f.IntVar(&c.o.Pairs, "pairs", bench.DefaultPairs, "how many pairs a contest has; those of seconds have at most 7, and those of half a minute 5")
	f.DurationVar(&c.o.Stop, "stop", 0, "for how long a rollout is stopped in versions-stopped (default 10s)")
	f.DurationVar(&c.o.Every, "every", 0, "how often a version comes meanwhile (default 1s)")
	f.StringVar(&c.results.Dir, "json-dir", "", "also write the rows into versions.jsonl in `DIR`")
	f.BoolVar(&c.results.Plot, "plot", false, "also draw versions.jsonl of --json-dir as versions.svg, by tryst-plot beside this program or on PATH; make build/tryst-plot builds it")
	f.BoolVar(&c.lines, "json", false, "write each row as one line of JSON")
	f.BoolVar(&c.check, "check", false, "fail when a target is missed by more than noise")
	return f
}

// complete checks the flags.
func (c *command) complete() (err error) {
	if c.o.Bytes, err = config.ParseSize(c.size); err != nil {
		return err
	}
	if c.slowSize != "" {
		if c.o.SlowBytes, err = config.ParseSize(c.slowSize); err != nil {
			return err
		}
	}
	for _, p := range c.percent {
		c.o.Shares = append(c.o.Shares, p/100)
	}
	self, err := os.Executable()
	if err != nil {
		return status.Errorf(status.Unavailable, "cannot find the path of this program: %w", err)
	}
	c.o.Command = func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, self, peerCommand) }
	if err := c.results.Validate(); err != nil {
		return err
	}
	return c.o.Validate()
}

func (c *command) measure(ctx context.Context) error {
	var written error // of the first row that could not be
	if c.lines {
		encoder := json.NewEncoder(c.out)
		c.o.Row = func(r bench.Row) {
			if written == nil {
				written = encoder.Encode(r)
			}
		}
	}
	rows, err := bench.RunVersions(ctx, c.o)
	if !c.lines && len(rows) > 0 { // also what was measured before an error
		written = bench.WriteTable(c.out, rows)
	}
	if err == nil {
		err = written
	}
	if err == nil {
		err = c.results.Save(ctx, rows)
	}
	if err == nil && c.check {
		err = bench.Missed(rows)
	}
	return err
}
