package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// kinds says what the flags of the commands take, by the type of their value.
// Settings take any text, which package config judges.
var kinds = map[string]string{
	"bool":     "true or false",
	"duration": "a time with a unit, as 90s or 5m",
	"int":      "a whole number",
	"uint64":   "a whole number that is not negative",
}

// newRoot makes the tree of commands. Each call makes a new one; none of its
// state is shared.
func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "tryst COMMAND",
		Short: "Move tensors between hosts",
		Long: `Tryst moves tensors between hosts. A server publishes checkpoints; any number
of processes pull them, each tensor checked by its digest.`,
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
	root.SetUsageFunc(writeUsage)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		s.serveCommand(), s.pullCommand(), s.keysCommand(), s.genCommand(), s.doctorCommand(), s.configCommand(), s.versionCommand(),
	)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = noArguments // cobra shows its help for what is no shell
			c.RunE = func(*cobra.Command, []string) error { return usagef("name a shell: bash, fish, powershell or zsh") }
			for _, shell := range c.Commands() {
				shell.Args = noArguments
			}
		}
	}
	return root
}

// flagError says what is wrong with a flag, in words.
func flagError(_ *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := invalid.GetFlag()
		return usagef("--%s %q: want %s", f.Name, invalid.GetValue(), kinds[f.Value.Type()])
	}
	return usageError{err}
}

// knownCommand is the check of what follows tryst: nothing, as cobra has taken
// a command that there is.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("there is no command %q; the nearest is %s", args[0], near[0])
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("there is no command %q; there are %s", args[0], strings.Join(names, ", "))
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Tell how a command is used",
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
			cmd.InitDefaultHelpFlag() // as if it had been executed
			cmd.InitDefaultVersionFlag()
			return cmd.Help()
		},
	}
}

// noArguments is the check of a command that takes flags only.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("it takes no argument, and %q is one", args[0])
	}
	return nil
}

// oneName is the check of a command that takes the name of a publication.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("it takes one publication; %q is a second", args[1])
	}
	return nil
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
