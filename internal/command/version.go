package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/buildinfo"
	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// version is the version of a release, which its build sets with
//
//	go build -ldflags "-X github.com/tryst-rdma/tryst/internal/command.version=v1.2.3"
//
// Without it, it is the module version that the go command recorded.
var version string

// build describes this binary.
type build statusapi.Build

func buildVersion() build { return build(buildinfo.Read(version)) }

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
