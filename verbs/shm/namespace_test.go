//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// namespaces are those that containers have of their own.
var namespaces = map[string]uintptr{
	"pid": syscall.CLONE_NEWPID, "mount": syscall.CLONE_NEWNS, "network": syscall.CLONE_NEWNET,
	"all": syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
}

// TestAcrossNamespaces: two processes of one user namespace, of which one has a PID, mount or
// network namespace of its own, and none has a capability.
func TestAcrossNamespaces(t *testing.T) {
	for name := range namespaces {
		t.Run(name, func(t *testing.T) {
			out, err := inUserNamespace(t, "namespaces="+name, t.TempDir())
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// inUserNamespace runs this binary in a role, in a user namespace of its own, in which it may make
// other namespaces. It skips the test if this machine does not allow that.
func inUserNamespace(t testing.TB, role, dir string) ([]byte, error) {
	t.Helper()
	exe := must(os.Executable())(t)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"="+role, "TRYST_SHM_TEST_DIR="+dir)
	cmd.SysProcAttr = userNamespaceOf()
	out, err := cmd.CombinedOutput()
	if noNamespaces(err) || bytes.Contains(out, []byte("cannot start a process")) {
		t.Skip(skipNamespaces)
	}
	return out, err
}

const skipNamespaces = "this machine does not allow namespaces to a user without privilege"

// noNamespaces reports whether a process could not be started in namespaces of its own.
func noNamespaces(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EINVAL, unix.ENOSPC, unix.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// userNamespaceOf makes a process run in a user namespace of its own, with the one capability that
// makes other namespaces.
func userNamespaceOf() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
	}
}

// runNamespaces is the role of inUserNamespace: it starts two processes without capabilities, one
// of them in namespaces of its own, and lets them talk to each other.
func runNamespaces(name string) int {
	exe, err := os.Executable()
	if err != nil {
		return 6
	}
	start := func(role string, in, out *os.File, flags uintptr) (*exec.Cmd, error) {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childVariable+"="+dropsPrefix+role)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		err := cmd.Start()
		in.Close()
		out.Close()
		return cmd, err
	}
	in, out, err1 := os.Pipe()
	backIn, backOut, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return 6
	}
	echo, err := start("echo", in, backOut, namespaces[name])
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start a process:", err)
		return 5
	}
	peer, err := start("exercise", backIn, out, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start a process:", err)
		return 5
	}
	if err := errors.Join(peer.Wait(), echo.Wait()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

// dropsPrefix is the beginning of a role that gives up all capabilities first.
const dropsPrefix = "drops="

// dropAndRun gives up all capabilities and starts the binary again in a role.
func dropAndRun(role string) int {
	runtime.LockOSThread() // capabilities are a thread's, and exec takes those of the calling one
	exe, err := os.Executable()
	if err == nil {
		err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	if err == nil {
		err = errors.Join(os.Setenv(childVariable, role), os.Setenv("TRYST_SHM_TEST_BARE", "true"))
	}
	if err == nil {
		err = syscall.Exec(exe, os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 7
}

// checkBare fails unless this process has no capability.
func checkBare(t testing.TB) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !bytes.Contains(status, []byte("CapEff:\t0000000000000000")) {
		t.Fatalf("the process has capabilities (%v): %s", err, status)
	}
}

// TestAnotherUserNamespace: a process in another user namespace gets no descriptor, unless mutual
// TLS has proved who it is.
func TestAnotherUserNamespace(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		t.Run(fmt.Sprintf("trusted=%v", trusted), func(t *testing.T) {
			o := Options{Dir: t.TempDir(), Trusted: trusted}
			x := newTestEnd(t, New(o), childMemory)
			c := startChild(t, "echo", o, func(cmd *exec.Cmd) {
				cmd.SysProcAttr = userNamespaceOf()
				cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET | syscall.CLONE_NEWPID
			})
			c.join(x)
			if trusted {
				x.exercises(c)
				return
			}
			x.post(c.remote(x, 1, verbs.OpWrite, 0, 4096, 0))
			x.ends(1, verbs.StatusRetryExceeded)
			if x.mapped() != 0 || x.qp.live.Load() != nil {
				t.Error("memory is shared with a process of another user namespace")
			}
		})
	}
}

// TestAnotherUserNamespaceThatLies: a process in another user namespace that says it is in ours gets no
// descriptor, where the kernel says it. On an older kernel there is nothing but the peer's word.
func TestAnotherUserNamespaceThatLies(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	p := New(o)
	var asked atomic.Bool
	p.peerNS = func(c *net.UnixConn) (uint64, error) {
		ns, err := peerNamespace(c)
		if !errors.Is(err, errNotSaid) {
			asked.Store(true)
		}
		return ns, err
	}
	x := newTestEnd(t, p, childMemory)
	lie := fmt.Sprint("TRYST_SHM_TEST_USERNS=", as[*device](x.dev).userNS)
	c := startChild(t, "echo", o, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, lie)
		cmd.SysProcAttr = userNamespaceOf()
	})
	c.join(x)
	x.post(c.remote(x, 1, verbs.OpWrite, 0, 4096, 0))
	if wc := x.wait(); asked.Load() && (wc.Status != verbs.StatusRetryExceeded || x.mapped() != 0) {
		t.Errorf("memory is shared with a process of another user namespace: %+v", wc)
	}
}

// TestDirectoryForSockets: what is wrong with it is said in words.
func TestDirectoryForSockets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, why := range map[string]string{
		"/" + strings.Repeat("d", 70):         "its path has 71 bytes, and at most 64 leave room for the name of a socket; choose a shorter one",
		filepath.Join(t.TempDir(), "missing"): "it does not exist",
		file:                                  "it is no directory",
		"/proc/self":                          "",
	} {
		t.Run(why, func(t *testing.T) {
			d, err := New(Options{Dir: dir}).Open(DeviceName)
			if err == nil {
				d.Close()
				t.Fatal("it is accepted")
			}
			wrong, ok := errors.AsType[*DirError](err)
			if !errors.Is(err, verbs.ErrUnavailable) || !strings.Contains(err.Error(), dir) || !ok || why != "" && wrong.Why != why {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestStaleSocketsAreRemoved: sockets of killed processes do not stay, those of others do.
func TestStaleSocketsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	socket := func(name string, age time.Duration, listens bool) string {
		path := filepath.Join(dir, socketPrefix+name)
		l := must(net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
		l.SetUnlinkOnClose(false)
		if listens {
			t.Cleanup(func() { l.Close() })
		} else {
			l.Close()
		}
		if err := os.Chtimes(path, time.Now().Add(-age), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stale, young, used := socket("a", time.Hour, false), socket("b", 0, false), socket("c", time.Hour, true)
	d := must(New(Options{Dir: dir}).Open(DeviceName))(t)
	defer d.Close()
	for path, stays := range map[string]bool{stale: false, young: true, used: true} {
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s stays: %v (%v)", path, err == nil, err)
		}
	}
}
