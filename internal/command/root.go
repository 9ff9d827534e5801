package command

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// kinds describes the values of flags by their type, for errors. The flags of settings
// take any text, which package config checks.
var kinds = map[string]string{
	"bool":     "true or false",
	"duration": "a time with a unit, such as 90s or 5m",
	"int":      "a whole number",
	"uint64":   "a whole number that is not negative",
}

// newRoot makes the tree of commands. Trees share no state.
func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   s.options.name() + " COMMAND",
		Short: "Move tensors between hosts",
		Long: `Tryst moves tensors between hosts, over RDMA or gRPC. A server publishes
checkpoints; any number of processes pull them and check the digest of each
tensor.`,
		Example: `  tryst gen --out gpt2.safetensors
  tryst serve --publish gpt2.safetensors
  tryst pull --from 127.0.0.1:2222 --out copy.safetensors`,
		Version: buildVersion().String(),

		DisableFlagsInUseLine: true,

		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageFunc(s.writeUsage)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		s.serveCommand(), s.pullCommand(), s.keysCommand(), s.genCommand(), s.doctorCommand(), s.topCommand(), s.traceCommand(), s.supportCommand(), s.benchCommand(), s.configCommand(), s.versionCommand(),
	)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = noArguments // cobra would show its help for an unknown shell
			c.RunE = func(*cobra.Command, []string) error { return usagef("name a shell: bash, fish, powershell or zsh") }
			for _, shell := range c.Commands() {
				shell.Args = noArguments
			}
		}
	}
	s.addCompletions(root)
	return root
}

// flagError is the error of a flag that cannot be parsed.
func flagError(_ *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := invalid.GetFlag()
		return usagef("--%s %q: want %s", f.Name, invalid.GetValue(), kinds[f.Value.Type()])
	}
	return usageError{err}
}

// knownCommand checks the arguments of tryst without a command. cobra has handled the known
// commands, so any argument is an unknown one.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; the nearest is %s", args[0], near[0])
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("unknown command %q; the commands are %s", args[0], strings.Join(names, ", "))
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",

		ValidArgsFunction: commandNames,

		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return usageError{err}
			}
			if cmd == root {
				if err := knownCommand(root, rest); err != nil {
					return err
				}
			}
			cmd.InitDefaultHelpFlag() // as execution would do
			cmd.InitDefaultVersionFlag()
			return cmd.Help()
		},
	}
}

// noArguments checks the arguments of a command that takes only flags.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q: the command takes only flags", args[0])
	}
	return nil
}

// oneName checks the arguments of a command that takes the name of a publication.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("unexpected argument %q: the command takes one publication", args[1])
	}
	return nil
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
