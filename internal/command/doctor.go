package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/internal/doctor"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

const doctorLong = `Doctor checks this host and the tasks of --cluster, with the settings that the
other commands would use. It prints a line for each check: OK, WARN or FAIL, and
what to do about it. It checks the kernel and its RDMA devices, libibverbs, the
ports, the choice of port and GID, the MTU, the limit of locked memory, huge
pages, lost packets, PFC and ECN, the choice of the provider, the sockets of the
device in user space, TCP and shared memory, and the peers. Unless --transport is
grpc it also reaches each peer over each device that these settings allow: over a
channel of its own and with packets of full size. That does not disturb the
processes there.

It measures the round trip and the lost packets to each peer, over gRPC and over
each device, and says how many bytes a second to expect with them. With
--measure it also pulls some of what the peer publishes over each, and ends with
a table of round trip, loss and bandwidth. The round trip is that of a message
with its confirmation; tryst bench times whole receives. With --from it examines what a pull from that server would do:
which device it takes, and the path to it. Packets are counted where they are
sent, so run it on both hosts.

The line "routes" has the devices of this process in the order in which peers
are reached over them, and so has the last line of each peer. With --transport
verbs it is a FAIL if this process has no device, or if no device reaches a
peer. A host without RDMA lacks nothing where another device works. The exit
status is 1 if any check fails.`

func (s streams) doctorCommand() *cobra.Command {
	var json, measure bool
	var from string
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check whether tensors can move from this host, and how to fix what prevents it",
		Long:  doctorLong,
		Example: `  tryst doctor
  tryst doctor --transport verbs --rdma-device eth0 --cluster 'worker=a:2222,b:2222' --json
  tryst doctor --from 10.0.0.1:2222`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// ForClient, so that settings for servers only or clients only do
			// not fail here: both may use the same file.
			cfg, err := s.load(cmd, config.ForClient)
			if err != nil {
				return err
			}
			facts, report, err := examine(cmd.Context(), cfg, from, measure)
			if err != nil {
				return err
			}
			write := report.WriteText
			if json {
				write = report.WriteJSON
			}
			if err := write(s.out); err != nil {
				return err
			}
			if measure && !json {
				if err := doctor.WriteMeasured(s.out, facts); err != nil {
					return err
				}
			}
			if n := report.Count(doctor.Fail); n > 0 {
				return status.Errorf(status.FailedPrecondition, "%d of %d checks failed", n, len(report))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "examine what a pull from this server would do: `HOST[:PORT]|TASK`, instead of all tasks of --cluster")
	cmd.Flags().BoolVar(&measure, "measure", false, "also measure the bandwidth of each route to each peer, by a pull of some of what it publishes")
	cmd.Flags().BoolVar(&json, "json", false, "write one line of JSON for each check")
	sources.RegisterFlags(cmd.Flags(), config.ForDoctor)
	return cmd
}

// examine gathers what doctor looks at, and judges it.
func examine(ctx context.Context, cfg *sources.Loaded, from string, measure bool) (facts doctor.Facts, report doctor.Report, err error) {
	given, _ := cfg.Given(config.ForClient | config.ForServer)
	o := doctor.Options{Client: given, From: from, Measure: measure}.OnThisHost()
	target := clientOf(cfg, from)
	if o.LocalAddr, o.LocalAddrWhy, err = server.LocalAddrFor(ctx, given, target); err != nil {
		return facts, nil, err
	}
	if o.TakesRDMA() {
		o.Select = func(ctx context.Context) (server.Selection, error) { return server.SelectFor(ctx, given, target) }
	}
	for _, e := range cfg.Describe() {
		switch {
		case e.Source.Kind == config.FromDefault:
		case e.Key == "task":
			o.Self = new(cfg.Self())
		case strings.HasPrefix(e.Key, "rdma."), e.Key == "provider", strings.HasPrefix(e.Key, config.SHMKey):
			o.Settings = append(o.Settings, e)
		}
	}
	facts = doctor.Gather(ctx, o)
	return facts, doctor.Examine(facts), ctx.Err()
}

// clientOf returns the server that a client with these settings would pull from: that of --from, or
// the first task of the cluster if this process is none of its tasks. It is "" for a server.
func clientOf(c *sources.Loaded, from string) string {
	if from != "" || c.IsMember() {
		return from
	}
	for _, t := range c.Spec().Tasks() {
		return t.String()
	}
	return ""
}
