package bench

import (
	"errors"
	"os"
	"runtime/pprof"

	"github.com/tryst-rdma/tryst/status"
)

// profile writes a CPU profile of this process into a new file of dir, from now until
// stop is called: NAME-*.pprof, which go tool pprof reads, and merges with others by
// -proto. An empty dir means none.
func profile(dir, name string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	failed := func(err error) error {
		return status.Errorf(status.FailedPrecondition, "the CPU profile of the %s process: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for others to read
		return nil, failed(err)
	}
	f, err := os.CreateTemp(dir, name+"-*.pprof")
	if err != nil {
		return nil, failed(err)
	}
	if err := pprof.StartCPUProfile(f); err != nil { // there is one already
		return nil, failed(errors.Join(err, f.Close(), os.Remove(f.Name())))
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			return failed(err)
		}
		return nil
	}, nil
}

// The two processes, in the names of their profiles.
const (
	firstProfile  = "first"
	secondProfile = "second"
)
