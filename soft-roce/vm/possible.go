package vm

import (
	"fmt"
	"runtime"
)

// Possible says whether this kind of machine can have the VM at all: the host's own programs run in it, on a kernel for its processor.
func Possible() error { return possible(runtime.GOOS, runtime.GOARCH) }

func possible(system, processor string) error {
	if system != "linux" || processor != "amd64" {
		return fmt.Errorf("the VM runs the host's own programs on a Linux kernel for amd64, and this is %s/%s", system, processor)
	}
	return nil
}
