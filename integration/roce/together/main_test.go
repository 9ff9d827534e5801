//go:build rxe && linux && cgo

package together_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// inside is set in the child process with its own network namespace; firstFile is then
// the file number of the namespace of its parent.
const (
	inside    = "TRYST_TEST_INSIDE"
	firstFile = 3
)

// TestMain runs the tests in a child process in a new network namespace, or runs the
// other server of TestRxeTransport.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(serverVariable); ok {
		if err := runServer(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(inside) == "" {
		os.Exit(runInNamespace())
	}
	goleak.VerifyTestMain(m)
}

// runInNamespace runs this program in a child process with its own network namespace, and returns
// the exit status.
func runInNamespace() int {
	runtime.LockOSThread() // the child dies with this thread
	first, err := os.Open("/proc/self/ns/net")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer first.Close()
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.ExtraFiles = []*os.File{first}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if status := new(exec.ExitError); errors.As(err, &status) {
		return max(status.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a process in a network namespace of its own:", err)
		return 2
	}
	return 0
}
