package command

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/internal/telemetry"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

// serverFlags has the flags that name the server of a command.
type serverFlags struct {
	from    string
	timeout time.Duration
}

// register adds the flags.
func (f *serverFlags) register(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().StringVar(&f.from, "from", "", "address of the server: `HOST[:PORT]|TASK`; PORT is 2222 if omitted, a TASK is one of --cluster")
	help := "fail after this time; 0 = never"
	if timeout == 0 { // pflag does not show this default
		help += " (default 0)"
	}
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, help)
	sources.RegisterFlags(cmd.Flags(), config.ForClient)
	cmd.Flags().Lookup(logLevelFlag).DefValue = "warn" // what help shows; see quiet
}

const logLevelFlag = "log-level" // the flag of the setting log.level

// quiet limits the log of an interactive command to warnings, unless a setting
// gives the level. Events such as reconnects are for the log of a server.
func quiet(c *sources.Loaded) config.Log {
	for _, e := range c.Describe() {
		if e.Key == "log.level" && e.Source.Kind == config.FromDefault {
			c.Log.Level = slog.LevelWarn
		}
	}
	return c.Log
}

// check returns the settings. The error has all that is wrong: the flags, the settings, and
// others, the problems of the command's own flags.
func (f *serverFlags) check(cmd *cobra.Command, s streams, others ...error) (*sources.Loaded, error) {
	cfg, err := s.load(cmd, config.ForClient)
	var problems []error
	switch {
	case f.from == "":
		problems = append(problems, usagef("--from is missing: HOST[:PORT] of the server, or a task of --cluster"))
	case err == nil: // with errors, the cluster is not known
		if _, _, _, err := cluster.ResolveTarget(cfg.Spec(), f.from); err != nil {
			problems = append(problems, status.From(err).WithPrefix("--from"))
		}
	}
	if f.timeout < 0 {
		problems = append(problems, usagef("--timeout %v: it must not be negative", f.timeout))
	}
	problems = append(problems, others...)
	return cfg, wrongUsage(append(problems, err)...)
}

// with calls do with a client and a context that ends after --timeout. Logs go to
// log.
func (f *serverFlags) with(cmd *cobra.Command, s streams, log io.Writer, do func(context.Context, *server.Client) error) error {
	cfg, err := f.check(cmd, s)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	logger := newLogger(quiet(cfg), log)
	logVariables(logger, cfg)
	traces, err := telemetry.New(ctx, cfg.OTel, "")
	if err != nil {
		return err
	}
	defer closeTraces(ctx, traces, closeTimeout)
	given, _ := cfg.Given(config.ForClient)
	c, err := server.Dial(ctx, given, f.from, server.Options{Logger: logger, LimitHeap: true, ClientStats: traces.Client()})
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

// closeTraces exports the last spans, even if ctx has ended. A collector that does not answer
// delays the end of the command by the timeout at most, and is no error of the command.
func closeTraces(ctx context.Context, traces telemetry.Traces, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_ = traces.Close(ctx)
}
