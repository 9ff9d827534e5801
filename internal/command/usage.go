package command

import (
	"fmt"
	"slices"
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
	for i, heading := range settingHeadings {
		if settings[i].HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", heading, settings[i].FlagUsagesWrapped(width))
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n'%s COMMAND --help' shows the help of a command.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// settingHeadings are the headings of the groups of settings, the most used ones first.
var settingHeadings = [...]string{
	"Settings, which TRYST_ variables and the file of --config can set, too (see 'tryst config')",
	"Settings of devices and their memory",
	"Further settings",
}

// usualSettings are those of the first group, in the order of their use.
var usualSettings = []string{
	"listen", "address-file", "cluster", "task", "transport", "provider", "fallback", config.SHMKey, "shm-dir",
	"tls.ca", "tls.cert", "tls.key", "tls.server-name", "tls.require-client-cert", "log.level", "config",
}

// deviceSettings are the keys of the second group, or what they begin with.
var deviceSettings = []string{"rdma.", "poll", "eager-limit", "arena", "release-after"}

// groups separates the flags of a command from the settings, and groups those.
func groups(cmd *cobra.Command) (own *pflag.FlagSet, settings [len(settingHeadings)]*pflag.FlagSet) {
	own = new(pflag.FlagSet)
	for i := range settings {
		settings[i] = new(pflag.FlagSet)
		settings[i].SortFlags = false
	}
	byKey := make(map[string]*pflag.Flag)
	names := make(map[string]bool)
	for _, s := range config.Settings() {
		names[s.Flag()] = true
		byKey[s.Key] = cmd.LocalFlags().Lookup(s.Flag())
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !names[f.Name] {
			own.AddFlag(f)
		}
	})
	add := func(group int, key string) {
		if f := byKey[key]; f != nil {
			settings[group].AddFlag(f)
			delete(byKey, key)
		}
	}
	for _, key := range usualSettings {
		add(0, key)
	}
	for _, s := range config.Settings() { // in the order of the table
		group := 2
		if slices.ContainsFunc(deviceSettings, func(p string) bool { return strings.HasPrefix(s.Key, p) }) {
			group = 1
		}
		add(group, s.Key)
	}
	return own, settings
}
