//go:build linux

package interfaces_test

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

// inside is set in the process that runs the tests, to "" or to why it has no network
// namespace of its own.
const inside = "TRYST_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(asPeer) != "" {
		if err := bePeer(); err != nil {
			fmt.Fprintln(os.Stderr, "the other host:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if _, ok := os.LookupEnv(inside); !ok {
		os.Exit(again())
	}
	goleak.VerifyTestMain(m)
}

// again runs the tests in a new network namespace and returns the exit status.
func again() int {
	runtime.LockOSThread() // the child dies with this thread
	for _, flags := range []uintptr{syscall.CLONE_NEWNET, syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER, 0} {
		why := ""
		if flags == 0 {
			why = "the kernel allows this process no network namespace"
		}
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), inside+"="+why)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		if flags&syscall.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		}
		if err := cmd.Start(); err != nil {
			continue
		}
		err := cmd.Wait()
		if status := new(exec.ExitError); errors.As(err, &status) {
			return max(status.ExitCode(), 1)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "the tests in a network namespace of their own:", err)
			return 2
		}
		return 0
	}
	return 2
}
