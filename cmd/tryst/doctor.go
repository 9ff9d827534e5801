package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/doctor"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

func (s streams) doctorCommand() *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Say what keeps tensors from moving, and what to do",
		Long: `Doctor looks at this host and asks the tasks of --cluster, with the settings
that the other commands would have. Each line is OK, WARN or FAIL, with what
would mend it: the kernel and its RDMA devices, libibverbs, ports, the port and
GID that would be chosen and why not the others, MTU, the limit of locked
memory, huge pages, lost packets, PFC and ECN, the provider that --provider
leads to, the sockets of the device in software, peers. With --transport verbs
each peer is also asked by RDMA, over a channel of its own that carries packets
of the full size; what runs there is not disturbed.

What RDMA lacks fails with --transport verbs; without it, and where the device in
software takes its place, it is a warning. The exit status is 1 when something
fails.`,
		Example: `  tryst doctor --transport verbs
  tryst doctor --transport verbs --rdma-device eth0 --cluster 'worker=a:2222,b:2222' --json`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Settings that are for servers or for clients alone must not fail
			// here: the same file serves both.
			cfg, err := s.load(cmd, config.ForClient)
			if err != nil {
				return err
			}
			o := doctor.Options{Client: cfg.Client}.OnThisHost()
			o.LocalAddr, o.LocalAddrWhy = server.LocalAddr(cmd.Context(), cfg)
			for _, e := range config.Describe(cfg) {
				switch {
				case e.Source.Kind == config.FromDefault:
				case e.Key == "task":
					o.Self = &cfg.Task
				case strings.HasPrefix(e.Key, "rdma."), e.Key == "provider":
					o.Settings = append(o.Settings, e)
				}
			}
			report := doctor.Examine(doctor.Gather(cmd.Context(), o))
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			write := report.WriteText
			if json {
				write = report.WriteJSON
			}
			if err := write(s.out); err != nil {
				return err
			}
			if n := report.Count(doctor.Fail); n > 0 {
				return status.Errorf(status.FailedPrecondition, "%d of %d checks failed", n, len(report))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "write a line of JSON for each check")
	config.RegisterFlags(cmd.Flags(), config.ForServer|config.ForClient)
	return cmd
}
