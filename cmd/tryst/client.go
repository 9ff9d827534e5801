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

// closeTimeout bounds how long a client may take to send its last acks: enough for
// a round trip anywhere, and short if the server is gone.
const closeTimeout = time.Second

// source has the flags that name the server of a command.
type source struct {
	from    string
	timeout time.Duration
}

// register adds the flags.
func (f *source) register(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().StringVar(&f.from, "from", "", "address of the server: `HOST:PORT|TASK`; a TASK is one of --cluster")
	help := "fail after this time; 0 = never"
	if timeout == 0 { // pflag does not show this default
		help += " (default 0)"
	}
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, help)
	config.RegisterFlags(cmd.Flags(), config.ForClient)
	cmd.Flags().Lookup(logLevelFlag).DefValue = "warn" // what help shows; see quiet
}

const logLevelFlag = "log-level" // the flag of the setting log.level

// quiet limits the log of an interactive command to warnings, unless a setting
// gives the level. Events such as reconnects are for the log of a server.
func quiet(c config.Config) config.Log {
	for _, e := range config.Describe(c) {
		if e.Key == "log.level" && e.Source.Kind == config.FromDefault {
			c.Log.Level = slog.LevelWarn
		}
	}
	return c.Log
}

// with calls do with a client and a context that ends after --timeout. Logs go to
// log.
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
		return usagef("--timeout %v: it must not be negative", f.timeout)
	}
	ctx := cmd.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	logger := server.NewLogger(quiet(cfg), log)
	server.LogVariables(logger, cfg)
	c, err := server.Dial(ctx, cfg.Client, f.from, server.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer func() {
		// The last acks are sent even if ctx has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = c.Close(ctx) // the server detects the end of the connection
	}()
	return do(ctx, c)
}
