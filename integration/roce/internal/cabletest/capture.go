//go:build rxe && linux

package cabletest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/internal/rocetest"
)

// Capture captures the packets of an interface, in both directions.
type Capture struct {
	t       testing.TB
	fd      int
	begun   time.Time // time of the first packet
	frame   [1 << 17]byte
	Records []rocetest.Record
}

// NewCapture starts a capture on an interface of the current namespace.
func NewCapture(t testing.TB, netdev string) *Capture {
	t.Helper()
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		t.Fatal(err)
	}
	all := uint16(unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8)
	c := &Capture{t: t}
	if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(c.fd) })
	for option, value := range map[int]int{unix.SO_RCVBUFFORCE: 64 << 20, unix.SO_TIMESTAMPNS: 1} {
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, option, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	return c
}

// More returns the next frame. With within 0 it does not wait.
func (c *Capture) More(within time.Duration) (r rocetest.Record, ok bool) {
	c.t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}, int(within.Milliseconds())) //nolint:gosec // a file number
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			c.t.Fatal(err)
		case n == 0:
			return r, false
		}
		var control [64]byte
		k, l, _, _, err := unix.Recvmsg(c.fd, c.frame[:], control[:], 0)
		if err != nil {
			c.t.Fatal(err)
		}
		if _, ok := rocetest.ParseFrame(c.frame[:k]); ok {
			at := stamp(c.t, control[:l])
			if c.begun.IsZero() {
				c.begun = at
			}
			r = rocetest.Record{Time: at.Sub(c.begun), Frame: bytes.Clone(c.frame[:k])}
			c.Records = append(c.Records, r)
			return r, true
		}
	}
}

// stamp returns the kernel's time of a frame.
func stamp(t testing.TB, control []byte) time.Time {
	t.Helper()
	all, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(all) != 1 || len(all[0].Data) != 16 || all[0].Header.Type != unix.SCM_TIMESTAMPNS {
		t.Fatalf("no time in %x: %v", control, err)
	}
	e := binary.LittleEndian
	return time.Unix(int64(e.Uint64(all[0].Data)), int64(e.Uint64(all[0].Data[8:]))) //nolint:gosec // a struct timespec
}

// Begin captures packets until end, which fails the test if the kernel dropped some.
func (c *Capture) Begin() (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, ok := c.More(100 * time.Millisecond); ok {
				continue
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
		stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			c.t.Error(err)
		} else if stats.Drops > 0 {
			c.t.Errorf("%d of %d frames are missing in the capture", stats.Drops, stats.Packets)
		}
	}
}

// Write writes the capture to the project's build directory, given relative to the
// directory of the test.
func (c *Capture) Write(build, name string) {
	c.t.Helper()
	var file strings.Builder
	if err := rocetest.WritePcap(&file, c.Records); err != nil {
		c.t.Fatal(err)
	}
	if err := os.MkdirAll(build, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(build, name), []byte(file.String()), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%s: %d packets, %d bytes", name, len(c.Records), file.Len())
}
