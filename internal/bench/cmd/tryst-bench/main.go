// Command tryst-bench measures Tryst beside baselines; package bench says how.
//
//	tryst-bench                                            all benchmarks over gRPC
//	tryst-bench --only recv --size 1MiB --inflight 4
//	tryst-bench --transport grpc,verbs --rdma-device mlx5_0
//	tryst-bench --routes --size 1MiB,16MiB --inflight 4    all routes within this host
//	tryst-bench --from 10.0.0.1:2222 --json                from a server elsewhere
//
// Results go to stdout. Progress goes to stderr: first about how long all takes, then what
// runs now and what is left. It exits with 0 when it has measured, 1 when that failed or
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
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/bench"
	"github.com/tryst-rdma/tryst/status"
)

// The exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// peerCommand is the argument that makes this program the second process of a
// benchmark.
const peerCommand = "peer"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

// streams are what the command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer // results
	err io.Writer // progress and errors
	env []string  // NAME=VALUE; nil for that of the process
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, s streams, args []string) int {
	err := s.execute(ctx, args)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return exitDone
	}
	wrong, isUsage := errors.AsType[usageError](err)
	if isUsage {
		err = wrong.error
	}
	for _, line := range lines(err) {
		fmt.Fprintln(s.err, "tryst-bench:", line)
	}
	if isUsage {
		fmt.Fprintln(s.err, "See 'tryst-bench --help'.")
		return exitUsage
	}
	return exitFailed
}

// usageError is an error of the command line or of the settings.
type usageError struct{ error }

// lines returns the message of each error that is joined in err, without its class.
func lines(err error) (all []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, lines(e)...)
		}
		return all
	}
	return []string{status.From(err).Message()}
}

func (s streams) execute(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == peerCommand {
		return bench.Serve(ctx, s.in, s.out)
	}
	f, err := parse(args, s)
	if err != nil {
		return err
	}
	o := f.options
	o.Progress = func(text string) { fmt.Fprintln(s.err, "bench: "+text) }
	var written error // of the first row that could not be
	if f.json {
		encoder := json.NewEncoder(s.out)
		o.Row = func(r bench.Row) {
			if written == nil {
				written = encoder.Encode(r)
			}
		}
	}
	rows, err := bench.Run(ctx, o)
	if !f.json && len(rows) > 0 { // also what was measured before an error
		write := bench.WriteTable
		if o.Routes || o.Peers != "" {
			write = bench.WriteTargets
		}
		written = write(s.out, rows)
	}
	err = errors.Join(err, written, f.results.Save(ctx, rows))
	if err == nil && f.check {
		err = bench.Missed(rows)
	}
	return err
}

// secondProcess returns this program as the second process.
func secondProcess(ctx context.Context) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0] // to start it tells what is wrong
	}
	return exec.CommandContext(ctx, self, peerCommand)
}
