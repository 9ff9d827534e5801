package command

import (
	"context"
	"io"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/fakemodel"
	"github.com/tryst-rdma/tryst/server"
)

// values returns what a shell offers for a flag or an argument that begins with a text.
type values func(cmd *cobra.Command, begin string) ([]string, cobra.ShellCompDirective)

// addCompletions gives each flag with a value and each argument of the commands the values that
// shells offer. What fails on the way offers nothing.
func (s streams) addCompletions(root *cobra.Command) {
	settings := make(map[string]config.Setting)
	for _, c := range config.Settings() {
		settings[c.Flag()] = c
	}
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			offer := s.ofFlag(f)
			if c, ok := settings[f.Name]; ok {
				offer = s.ofSetting(c)
			}
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
				return offer(cmd, begin)
			}) // fails only where the flag has a function
		})
		cmd.ValidArgsFunction = s.arguments(cmd)
	}
}

// ofFlag returns the values of a flag that is no setting.
func (s streams) ofFlag(f *pflag.Flag) values {
	switch f.Name {
	case "from":
		return s.servers
	case "tensor":
		return s.tensors
	case "out", "publish":
		return files
	case "model":
		return func(*cobra.Command, string) ([]string, cobra.ShellCompDirective) {
			var all []string
			for _, m := range fakemodel.Models() {
				all = append(all, m.Name+"\t"+byteText(float64(m.Bytes)))
			}
			return all, cobra.ShellCompDirectiveNoFileComp
		}
	}
	return words() // a number or a time
}

// ofSetting returns the values of a setting.
func (s streams) ofSetting(c config.Setting) values {
	switch {
	case c.Key == "config":
		return func(*cobra.Command, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		}
	case c.Key == "task":
		return s.tasks
	case c.Key == "rdma.device":
		return devices
	case c.Type() == "path":
		return files
	}
	return words(c.Values()...)
}

// arguments returns the function for the arguments of a command.
func (s streams) arguments(cmd *cobra.Command) cobra.CompletionFunc {
	switch cmd.Name() {
	case "pull", "keys", "bench":
		return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 { // one name at most
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return s.publications(cmd, begin)
		}
	case "serve":
		return func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
			return files(cmd, begin)
		}
	case "completion":
		return cmd.ValidArgsFunction // its sub-commands are the shells
	}
	return cobra.NoFileCompletions
}

// commandNames offers the commands, as the argument of help.
func commandNames(help *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	for _, c := range help.Root().Commands() {
		if len(args) == 0 && c.IsAvailableCommand() {
			names = append(names, c.Name()+"\t"+c.Short)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// words returns fixed values.
func words(all ...string) values {
	return func(*cobra.Command, string) ([]string, cobra.ShellCompDirective) {
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// files leaves it to the shell to offer files and directories.
func files(*cobra.Command, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// devices offers the RDMA devices and the network interfaces of this host.
func devices(*cobra.Command, string) (names []string, _ cobra.ShellCompDirective) {
	rdma, _ := os.ReadDir("/sys/class/infiniband") // none where there is no RDMA
	for _, d := range rdma {
		names = append(names, d.Name()+"\tRDMA device")
	}
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name+"\tnetwork device")
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// tasks offers the tasks of --cluster.
func (s streams) tasks(cmd *cobra.Command, _ string) (names []string, _ cobra.ShellCompDirective) {
	cfg, err := s.load(cmd, config.ForClient) // a server would need its task in the cluster
	if err == nil {
		for _, t := range cfg.Spec().Tasks() {
			address, _ := cfg.Spec().Address(t)
			names = append(names, t.String()+"\t"+address)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// servers offers the tasks of --cluster and their addresses.
func (s streams) servers(cmd *cobra.Command, begin string) ([]string, cobra.ShellCompDirective) {
	tasks, directive := s.tasks(cmd, begin)
	names := tasks
	for _, t := range tasks {
		name, address, _ := strings.Cut(t, "\t")
		names = append(names, address+"\t"+name)
	}
	return names, directive
}

// publications offers the publications of the server of --from.
func (s streams) publications(cmd *cobra.Command, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	s.ask(cmd, func(ctx context.Context, p *checkpoint.Puller) error {
		all, err := p.List(ctx)
		for _, one := range all {
			names = append(names, printable(one.Name)+"\t"+byteText(float64(one.Bytes)))
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// tensors offers the tensors of the publication on the command line.
func (s streams) tensors(cmd *cobra.Command, begin string) ([]string, cobra.ShellCompDirective) {
	var names []string
	s.ask(cmd, func(ctx context.Context, p *checkpoint.Puller) error {
		m, err := p.Describe(ctx, firstOf(cmd.Flags().Args()), "")
		if err != nil {
			return err
		}
		for _, e := range m.Entries {
			if strings.HasPrefix(e.Name, begin) && len(names) < maxCompletions {
				names = append(names, printable(e.Name)+"\t"+e.DType.String()+e.Shape.String())
			}
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// ask calls do with a puller of the server of --from. A shell has no place for errors.
func (s streams) ask(cmd *cobra.Command, do func(context.Context, *checkpoint.Puller) error) {
	address, err := cmd.Flags().GetString("from")
	if err != nil || address == "" {
		return
	}
	from := serverFlags{from: address, timeout: completionTimeout}
	_ = from.with(cmd, s, io.Discard, func(ctx context.Context, c *server.Client) error { return do(ctx, c.Puller()) })
}
