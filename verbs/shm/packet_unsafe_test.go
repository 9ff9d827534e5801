// This file makes a system call itself: the function of package unix adds a byte to a packet without content.

//go:build linux

package shm

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestPacketWithoutContentLeavesNoDescriptor: it looks like the end of the connection, and may bring a
// descriptor all the same.
func TestPacketWithoutContentLeavesNoDescriptor(t *testing.T) {
	q, l, f := newFlooded(t)
	f.fill = false
	before := descriptors(t)
	const n = 8
	for range n {
		oob := unix.UnixRights(f.peer)
		m := unix.Msghdr{Control: &oob[0]}
		m.SetControllen(len(oob))
		if _, _, err := unix.Syscall(unix.SYS_SENDMSG, uintptr(f.peer), uintptr(unsafe.Pointer(&m)), 0); err != 0 {
			t.Fatal(err)
		}
	}
	for range n {
		if q.drainAll(l) {
			t.Error("the packet is accepted")
		}
	}
	wait(t, func() bool { return descriptors(t) <= before })
}
