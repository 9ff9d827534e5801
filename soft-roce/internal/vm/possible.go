package vm

import (
	"fmt"
	"runtime"
)

// Possible returns an error if the VM does not work on this kind of machine: it runs the host's
// programs, on a kernel for linux/amd64.
func Possible() error { return possible(runtime.GOOS, runtime.GOARCH) }

func possible(system, processor string) error {
	if system != "linux" || processor != "amd64" {
		return fmt.Errorf("the VM needs a host with linux/amd64, whose programs it runs; this is %s/%s", system, processor)
	}
	return nil
}
