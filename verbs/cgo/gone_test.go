//go:build linux && cgo

package libibverbs

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestQueueOfAGoneDeviceCloses: rdma-core's ibv_destroy_cq that fails leaves the count of
// the channel's users as it was (libibverbs/verbs.c), and ibv_destroy_comp_channel refuses.
func TestQueueOfAGoneDeviceCloses(t *testing.T) {
	d, err := fakeProvider(t).Open("fake0")
	if err != nil {
		t.Fatal(err)
	}
	cq, err := d.CreateCQ(verbs.CQConfig{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	fail(t, "destroy_cq", syscall.EIO)
	for _, what := range []string{"closed", "closed again"} {
		if err := cq.Close(); err != nil {
			t.Errorf("the queue is %s: %v", what, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("the device is closed: %v", err)
	}
}

// TestWaitForADescriptorInError: the kernel's ib_uverbs_event_poll says EPOLLERR and nothing
// else of a device that is gone. If nobody waited then, Go's poller refuses the next wait
// without a look, and only the library knows why.
func TestWaitForADescriptorInError(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; { // until it is full, and so not ready
		_, err = unix.Write(fds[1], make([]byte, 4096))
	}
	d, err := newDescriptor(fds[1], "events")
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := unix.Close(fds[0]); err != nil { // EPOLLERR
		t.Fatal(err)
	}
	<-time.After(50 * time.Millisecond) // so that Go's poller has seen it: it looks when all sleep
	calls := 0
	err = d.wait(t.Context(), func(uintptr) bool { calls++; return true })
	if err != nil || calls == 0 {
		t.Errorf("the wait ended with %v after %d looks", err, calls)
	}
	d.close()
	if err := d.wait(t.Context(), func(uintptr) bool { return true }); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}
