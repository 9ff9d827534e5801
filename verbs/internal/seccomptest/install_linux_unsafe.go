//go:build linux

// The kernel takes a filter by a pointer to its instructions, and the standard library has no call
// for it.

package seccomptest

import (
	"runtime"
	"syscall"
	"unsafe"
)

// install makes a program the filter of the calling thread and of all that it starts. See
// seccomp(2): a process without privilege must give up new ones first.
func install(program []syscall.SockFilter) error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	f := syscall.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // program has at most maxProgram instructions
	_, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetSeccomp, modeFilter, uintptr(unsafe.Pointer(&f)), 0, 0, 0)
	runtime.KeepAlive(program)
	if e != 0 {
		return e
	}
	return nil
}
