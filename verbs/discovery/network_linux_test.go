package discovery_test

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// TestNetwork: all of a process have one number, and another network namespace has
// another one.
func TestNetwork(t *testing.T) {
	here := discovery.Network()
	if here == 0 || discovery.Network() != here {
		t.Fatalf("%016x, then %016x", here, discovery.Network())
	}
	there := make(chan uint64)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Log("no namespace to compare with: ", err)
			there <- 0
			return
		}
		there <- discovery.Network()
	}()
	if n := <-there; n == here {
		t.Errorf("two network namespaces have the number %016x", n)
	}
}
