package discovery_test

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// TestNetwork: all of a process have one number.
func TestNetwork(t *testing.T) {
	here := discovery.Network()
	if here == 0 || discovery.Network() != here {
		t.Fatalf("%016x, then %016x", here, discovery.Network())
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
