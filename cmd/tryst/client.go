package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
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
	cmd.Flags().StringVar(&f.from, "from", "", "the server: `HOST:PORT|TASK`, a TASK being one of --cluster")
	help := "give up after this time; 0 = never"
	if timeout == 0 { // a default that pflag does not show
		help += " (default 0)"
	}
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, help)
	config.RegisterFlags(cmd.Flags(), config.ForClient)
	cmd.Flags().Lookup(logLevelFlag).DefValue = "warn" // what help shows; see quiet
}

const logLevelFlag = "log-level" // the flag of the setting log.level

// quiet keeps the log of a command that somebody waits for to warnings, unless
// a level was asked for: how often a connection was mended is for a daemon's
// log.
func quiet(c config.Config) config.Log {
	for _, e := range config.Describe(c) {
		if e.Key == "log.level" && e.Source.Kind == config.FromDefault {
			c.Log.Level = slog.LevelWarn
		}
	}
	return c.Log
}

// with calls do with a client, and a context that ends with the time that the
// command may take. Logs go to log.
func (f *source) with(cmd *cobra.Command, s streams, log io.Writer, do func(context.Context, *server.Client) error) error {
	cfg, err := s.load(cmd, config.ForClient)
	if err != nil {
		return err
	}
	if f.from == "" {
		return usagef("--from is missing: HOST:PORT of the server, or a task of --cluster")
	}
	if _, _, _, err := cluster.ResolveTarget(cfg.Cluster, f.from); err != nil {
		return usageError{status.From(err).WithPrefix("--from")}
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
	logger := server.NewLogger(quiet(cfg), log)
	server.LogInherited(logger, cfg)
	c, err := server.Dial(ctx, cfg.Client, f.from, server.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer func() {
		// The end of ctx is no reason not to take leave of the server.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
		defer cancel()
		_ = c.Close(ctx) // the server finds out by itself that nobody is there
	}()
	return do(ctx, c)
}
