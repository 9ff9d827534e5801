package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/console"
)

// helpWidth is the width in columns at which the lines of flags are wrapped, unless the
// terminal is narrower.
const helpWidth = 100

// writeUsage writes the help below the description. It lists the flags of the command
// itself apart from the settings, which other sources may set, too.
func (s streams) writeUsage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s  %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	width := helpWidth
	if n := console.Width(s.out); n > 0 {
		width = min(width, n)
	}
	own, settings := groups(cmd)
	if own.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", own.FlagUsagesWrapped(width))
	}
	if settings.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nSettings, which TRYST_ variables and the file of --config can set, too (see 'tryst config'):\n%s",
			settings.FlagUsagesWrapped(width))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n'%s COMMAND --help' shows the help of a command.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// groups separates the flags of a command from the settings.
func groups(cmd *cobra.Command) (own, settings *pflag.FlagSet) {
	names := make(map[string]bool)
	for _, s := range config.Settings() {
		names[s.Flag()] = true
	}
	own, settings = new(pflag.FlagSet), new(pflag.FlagSet)
	settings.SortFlags = false // in the order of the table
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if names[f.Name] {
			settings.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	return own, settings
}
