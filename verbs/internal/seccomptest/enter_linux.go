package seccomptest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// Numbers of linux/prctl.h.
const (
	prSetSeccomp    = 22
	prSetNoNewPrivs = 38
	modeFilter      = 2
)

// Enter makes this process run under the profile that Variable names. It does nothing when the
// variable is not set. On the first call it executes the binary again under the filter, so it
// returns only with an error; on the call after that it checks that the filter is on.
func Enter() error {
	switch profile := os.Getenv(Variable); profile { //nolint:forbidigo // set by a test
	case "":
		return nil
	case entered:
		return checkMode()
	default:
		return execUnder(profile)
	}
}

// execUnder installs the filter of a profile in this thread and executes the binary again. exec
// ends all other threads and keeps the filter of the calling one.
func execUnder(profile string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := load(profile)
	if err != nil {
		return err
	}
	program, err := p.program()
	if err != nil {
		return fmt.Errorf("seccomp profile %s: %w", profile, err)
	}
	if err := os.Setenv(Variable, entered); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := install(program); err != nil {
		return fmt.Errorf("install the filter of %s: %w", profile, err)
	}
	err = syscall.Exec(exe, os.Args, os.Environ()) //nolint:forbidigo // the environment of a test
	return fmt.Errorf("execute %s under the filter of %s: %w", exe, profile, err)
}

// checkMode fails unless a filter is on.
func checkMode() error {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil && !bytes.Contains(status, []byte("\nSeccomp:\t2\n")) {
		err = fmt.Errorf("no seccomp filter is on: %s", status)
	}
	return err
}
