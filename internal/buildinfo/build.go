// Package buildinfo says which build a binary is.
package buildinfo

import (
	"runtime"
	"runtime/debug"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// Read describes this binary. version is that of a release, which its build has set; without it, it is the module version that
// the go command recorded.
func Read(version string) statusapi.Build {
	b := statusapi.Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
