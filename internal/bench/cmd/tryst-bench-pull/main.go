// Command tryst-bench-pull measures the whole job: tryst pull of a checkpoint from tryst serve into a
// file, on one host, beside curl from Python's http.server and beside cp and sync; and a pull into
// memory beside a copy of the content and its digest.
//
//	tryst-bench-pull --tryst build/tryst --dir build/bench-pull/files
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
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/bench"
	"github.com/tryst-rdma/tryst/status"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, out, progress io.Writer, args []string) int {
	var (
		o       bench.JobOptions
		results bench.Results
		lines   bool
		check   bool
	)
	flags := pflag.NewFlagSet("tryst-bench-pull", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(out)
	flags.StringVar(&o.Tryst, "tryst", "build/tryst", "`PATH` of the command to measure")
	flags.StringVar(&o.Dir, "dir", "build/bench-pull/files", "`DIR` for the checkpoint and its copies, on the disk to measure")
	flags.StringVar(&o.Model, "model", "gpt2", "the checkpoint, as for tryst gen")
	flags.StringSliceVar(&o.Routes, "routes", nil, "what carries the tensors: grpc, or a provider of verbs; `ROUTE,...` (default shm,tcp,grpc,roce)")
	flags.StringSliceVar(&o.Only, "only", nil, "run only these contests: `NAME,...` of "+strings.Join(bench.JobNames(), ", "))
	flags.IntVar(&o.Pairs, "pairs", bench.DefaultPairs, "how many pairs a contest has")
	flags.StringVar(&results.Dir, "json-dir", "", "also write the rows into pull.jsonl in `DIR`")
	flags.BoolVar(&results.Plot, "plot", false, "also draw pull.jsonl of --json-dir as pull.svg, by tryst-plot beside this program or on PATH; make build/tryst-plot builds it")
	flags.BoolVar(&lines, "json", false, "write each row as one line of JSON")
	flags.BoolVar(&check, "check", false, "fail when a target is missed by more than noise")
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("it takes no argument, and %q is one", flags.Arg(0))
	}
	if err == nil {
		err = results.Validate()
	}
	if err != nil {
		fmt.Fprintln(progress, "tryst-bench-pull:", status.From(err).Message())
		return 2
	}
	o.Progress = func(text string) { fmt.Fprintln(progress, "bench: "+text) }
	if err := measure(ctx, out, o, results, lines, check); err != nil {
		fmt.Fprintln(progress, "tryst-bench-pull:", status.From(err).Message())
		return 1
	}
	return 0
}

func measure(ctx context.Context, out io.Writer, o bench.JobOptions, results bench.Results, lines, check bool) error {
	var written error // of the first row that could not be
	if lines {
		encoder := json.NewEncoder(out)
		o.Row = func(r bench.Row) {
			if written == nil {
				written = encoder.Encode(r)
			}
		}
	}
	rows, err := bench.RunJob(ctx, o)
	if !lines && len(rows) > 0 { // also what was measured before an error
		written = bench.WriteTable(out, rows)
	}
	err = errors.Join(err, written, results.Save(ctx, rows))
	if err == nil && check {
		err = bench.Missed(rows)
	}
	return err
}
