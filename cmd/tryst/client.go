package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/config"
	"github.com/tryst-rdma/tryst/server"
)

// partingTime is how long a client that has what it came for may take to say
// so: a round trip to anywhere, and not a wait that anybody notices at a server
// that is gone.
const partingTime = time.Second

// source is where a command pulls from: its flags.
type source struct {
	from    string
	timeout time.Duration
}

// register adds the flags.
func (f *source) register(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().StringVar(&f.from, "from", "", "the server: `HOST:PORT`, or a task of --cluster")
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, "give up after this time; 0 = never")
	config.RegisterFlags(cmd.Flags(), config.ForClient)
}

// with calls do with a puller, and a context that ends with the time that the
// command may take. Logs go to log.
func (f *source) with(cmd *cobra.Command, s streams, log io.Writer, do func(context.Context, *checkpoint.Puller) error) error {
	cfg, err := s.load(cmd, config.ForClient)
	if err != nil {
		return err
	}
	if f.from == "" {
		return usagef("--from is missing: HOST:PORT of the server, or a task of --cluster")
	}
	if _, _, _, err := cluster.ResolveTarget(cfg.Cluster, f.from); err != nil {
		return usagef("--from: %w", err)
	}
	if f.timeout < 0 {
		return usagef("--timeout %v: a time is not negative", f.timeout)
	}
	ctx := cmd.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	c, err := server.Dial(ctx, cfg.Client, f.from, server.Options{Logger: server.NewLogger(cfg.Log, log)})
	if err != nil {
		return err
	}
	defer func() {
		// The end of ctx is no reason not to take leave of the server.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
		defer cancel()
		_ = c.Close(ctx) // the server finds out by itself that nobody is there
	}()
	return do(ctx, c.Puller())
}
