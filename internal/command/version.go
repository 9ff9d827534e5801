package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the version of a release, which its build sets with
//
//	go build -ldflags "-X github.com/tryst-rdma/tryst/internal/command.version=v1.2.3"
//
// Without it, it is the module version that the go command recorded.
var version string

// build describes this binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // empty if the go command did not record it
	Modified bool   `json:"modified"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	commit := "unknown"
	if b.Commit != "" {
		commit = b.Commit
	}
	if b.Modified {
		commit += ", modified"
	}
	return fmt.Sprintf("tryst %s (commit %s, %s, %s)", b.Version, commit, b.Go, b.Platform)
}

func (s streams) versionCommand() *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:   "version [--json]",
		Short: "Show version, commit, Go and platform",
		Args:  noArguments,

		DisableFlagsInUseLine: true,
		RunE: func(*cobra.Command, []string) error {
			if json {
				return writeJSON(s.out, buildVersion())
			}
			_, err := fmt.Fprintln(s.out, buildVersion())
			return err
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "write one line of JSON")
	return cmd
}
