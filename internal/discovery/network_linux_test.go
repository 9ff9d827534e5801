package discovery_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/internal/discovery"
)

// TestNetwork: all of a process have one number.
func TestNetwork(t *testing.T) {
	here := discovery.Network()
	if here == 0 || discovery.Network() != here {
		t.Fatalf("%016x, then %016x", here, discovery.Network())
	}
}

// TestUserAndDirectory: they are equal for the same user and directory, whatever the path, and
// differ from each other.
func TestUserAndDirectory(t *testing.T) {
	user := discovery.User()
	if user == 0 || discovery.User() != user || user == discovery.Network() {
		t.Errorf("%016x, then %016x; the network has %016x", user, discovery.User(), discovery.Network())
	}
	dir, other := t.TempDir(), t.TempDir()
	link := filepath.Join(other, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	d := discovery.Directory(dir)
	if d == 0 || discovery.Directory(link) != d || discovery.Directory(other) == d {
		t.Errorf("%016x by its path, %016x by a link; another one has %016x", d, discovery.Directory(link), discovery.Directory(other))
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", file, filepath.Join(dir, "absent")} {
		if n := discovery.Directory(path); n != 0 {
			t.Errorf("%q is no directory and has %016x", path, n)
		}
	}
}

// TestUserOfANamespace: another user namespace has another number.
func TestUserOfANamespace(t *testing.T) {
	there, ok := os.LookupEnv("TRYST_TEST_USER_NAMESPACE")
	if ok { // the child
		if got := fmt.Sprintf("%016x", discovery.User()); got == there {
			t.Errorf("another user namespace has the number %s", got)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUserOfANamespace$") //nolint:gosec // this test
	cmd.Env = append(os.Environ(), fmt.Sprintf("TRYST_TEST_USER_NAMESPACE=%016x", discovery.User()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skip("no other user namespace: ", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestNetworkOfANamespace: another network namespace has another number.
func TestNetworkOfANamespace(t *testing.T) {
	type answer struct {
		network uint64
		err     error
	}
	there := make(chan answer)
	go func() { // ends with its answer
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		there <- answer{discovery.Network(), err}
	}()
	a := <-there
	if a.err != nil {
		t.Skip("no other network namespace: ", a.err)
	}
	if a.network == 0 || a.network == discovery.Network() {
		t.Errorf("another network namespace has the number %016x", a.network)
	}
}
