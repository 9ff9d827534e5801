package library

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asKernelProcess is the argument that makes this binary a kernel process.
const asKernelProcess = "kernel-process"

func TestMain(m *testing.M) {
	if len(os.Args) >= 3 && os.Args[1] == asKernelProcess {
		if err := ServeProcess(os.Args[2], os.Args[3:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
