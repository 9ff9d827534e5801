package library

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/library/internal/capi"
)

// A kernel process confines itself by Landlock (landlock(7)) before it opens the library:
//
//  1. read what the library needs: the dynamic loader lists it
//  2. restrict one locked thread
//  3. execute the same program again, without the directories among its arguments
//
// The restriction of a thread survives execve, so all threads of the new program have it. It cannot be
// put on the threads of a running process one by one here: purego counts as cgo, for which the Go
// runtime changes no thread but its own.

// leastLandlock is the ABI of Landlock that is needed: from 2 on (Linux 5.19) files can move between
// directories, as a Saver moves them. Later ones confine more: 4 (6.7) TCP, 6 (6.12) signals and abstract
// sockets, 9 all sockets with a path.
const leastLandlock = 2

// landlockReady says why FilesBelow cannot work here.
func landlockReady() error {
	abi, err := landlocksys.LandlockGetABIVersion()
	switch {
	case err != nil:
		return status.Errorf(status.FailedPrecondition, "this system has no Landlock, which keeps graphs to the directories of --tensorflow-files (%v): it needs Linux 5.19 or newer with landlock in /sys/kernel/security/lsm, and a container that allows its system calls; --tensorflow-all-files lets graphs use every file of this user", err)
	case abi < leastLandlock:
		return status.Errorf(status.FailedPrecondition, "this system has Landlock %d; --tensorflow-files needs %d (Linux 5.19) or newer; --tensorflow-all-files lets graphs use every file of this user", abi, leastLandlock)
	}
	return nil
}

// confine restricts this thread to files below some directories and to what the library of dir needs,
// which it may read, and executes the program again. It returns only with an error.
func confine(dir string, below []string) error {
	rules, err := readable(dir)
	if err != nil {
		return err
	}
	rules = append(rules, landlock.RWDirs(below...).WithRefer())
	runtime.LockOSThread() // for ever: the thread ends with this goroutine
	fd, flags, err := landlock.V11.BestEffort().NewRulesetFD(rules...)
	if err != nil {
		return status.Errorf(status.FailedPrecondition, "confine the kernel process to %q: %v", below, err)
	}
	if fd < 0 {
		return landlockReady()
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return status.Errorf(status.FailedPrecondition, "confine the kernel process: %v", os.NewSyscallError("prctl", err))
	}
	if err := landlocksys.LandlockRestrictSelf(fd, flags); err != nil {
		return status.Errorf(status.FailedPrecondition, "confine the kernel process: %v", os.NewSyscallError("landlock_restrict_self", err))
	}
	environment := os.Environ() //nolint:forbidigo // passed on as it is
	err = unix.Exec(self, os.Args[:len(os.Args)-len(below)], environment)
	return status.Errorf(status.FailedPrecondition, "execute the kernel process again: %v", os.NewSyscallError("execve", err))
}

// self is the program of this process, also when its file was replaced.
const self = "/proc/self/exe"

// readable returns rules for what the program and the library of dir read. Nothing of it is secret: no
// other file of the library's user, and of /proc nothing that belongs to a process.
func readable(dir string) ([]landlock.Rule, error) {
	interpreter, err := interpreterOf(self)
	if err != nil {
		return nil, status.Errorf(status.FailedPrecondition, "confine the kernel process: %v", err)
	}
	files := []string{self, interpreter}
	for _, name := range []string{capi.FrameworkFile, capi.RuntimeFile} {
		files = append(files, needs(interpreter, filepath.Join(dir, name))...)
	}
	const read = landlock.AccessFSSet(landlocksys.AccessFSReadFile)
	return []landlock.Rule{
		landlock.ROFiles(files...).IgnoreIfMissing(),
		landlock.PathAccess(read|landlocksys.AccessFSReadDir, dir, "/sys/devices/system", "/usr/share/zoneinfo").IgnoreIfMissing(),
		landlock.PathAccess(read, "/etc/ld.so.cache", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/dev/urandom", "/dev/zero").IgnoreIfMissing(),
		landlock.PathAccess(read|landlocksys.AccessFSWriteFile, "/dev/null").IgnoreIfMissing(),
	}, nil
}

// interpreterOf returns the dynamic loader of a program.
func interpreterOf(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, min(p.Filesz, unix.PathMax))
			if _, err := p.ReadAt(name, 0); err != nil {
				return "", err
			}
			return strings.TrimRight(string(name), "\x00"), nil
		}
	}
	return "", errors.New("this program is not linked dynamically")
}

// needs returns the files that the dynamic loader loads with a library. What is missing is not in it:
// opening the library fails then.
func needs(interpreter, library string) (files []string) {
	list, _ := exec.Command(interpreter, "--list", library).Output() // "\tlibm.so.6 => /lib/libm.so.6 (0x7f…)"
	for word := range strings.FieldsSeq(string(list)) {
		if filepath.IsAbs(word) {
			files = append(files, word)
		}
	}
	return files
}
