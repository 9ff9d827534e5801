// Command weights shows weights that change: a trainer publishes a version of them every so often,
// of which 1 to 3 % of the elements differ from the one before, and three rollouts follow it. One is
// fast, one is slow and skips versions, one is killed and started again. See the README.md beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "weights:", err)
		os.Exit(1)
	}
}

// run is one of the processes: the trainer, a rollout, or the one that starts them all.
func run(ctx context.Context, args []string) error {
	var (
		o    options
		role string
	)
	if len(args) > 0 && (args[0] == "trainer" || args[0] == "rollout") {
		role, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("weights "+role, flag.ContinueOnError)
	flags.StringVar(&o.route, "route", "", "what carries the weights: grpc, shm, tcp or roce; empty: the default of Tryst")
	switch role {
	case "trainer":
		flags.StringVar(&o.address, "listen", "127.0.0.1:0", "address of the trainer")
	case "rollout":
		flags.StringVar(&o.address, "from", "127.0.0.1:2222", "address of the trainer")
		flags.StringVar(&o.name, "name", "rollout", "name of the rollout, for its lines")
		flags.DurationVar(&o.work, "work", 0, "how long the rollout works with each version")
	}
	if role != "rollout" {
		flags.IntVar(&o.updates, "updates", 20, "how many versions the trainer publishes")
		flags.DurationVar(&o.every, "every", 250*time.Millisecond, "how often it does")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch role {
	case "trainer":
		return train(untilEnd(ctx, os.Stdin), os.Stdout, o)
	case "rollout":
		return follow(untilEnd(ctx, os.Stdin), os.Stdout, o)
	}
	return conduct(ctx, os.Stdout, o)
}

// options are the flags of all roles.
type options struct {
	route   string
	address string
	name    string
	work    time.Duration
	updates int
	every   time.Duration
}

// config returns the settings of a route.
func (o options) config() tryst.Config {
	switch o.route {
	case "":
		return tryst.Config{}
	case "grpc":
		return tryst.Config{Transport: tryst.TransportGRPC}
	}
	return tryst.Config{Transport: tryst.TransportVerbs, Provider: o.route, Fallback: tryst.FallbackNone}
}

// untilEnd returns a context that also ends with in, and so with the process that holds its other
// end.
func untilEnd(ctx context.Context, in io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	return ctx
}
