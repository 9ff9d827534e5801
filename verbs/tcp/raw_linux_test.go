package tcp

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSendBufferWithinAHostIsShort(t *testing.T) {
	for _, busy := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		before := sendBuffer(t, c)
		prepare(c, busy)
		after := sendBuffer(t, c)
		if busy && after != before || !busy && (after >= before || after > 2*hostSendBuffer) {
			t.Errorf("busy %v: %d bytes, before %d", busy, after, before)
		}
		c.Close()
		l.Close()
	}
}

func sendBuffer(t *testing.T, c net.Conn) (n int) {
	t.Helper()
	err := rawOf(c).control(func(fd uintptr) {
		var err error
		if n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil { //nolint:gosec // a file descriptor
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWithinHost(t *testing.T) {
	tcp := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	for _, c := range []struct {
		local, remote net.Addr
		want          bool
	}{
		{tcp("127.0.0.1", 1), tcp("127.0.0.1", 2), true},
		{tcp("10.0.0.1", 1), tcp("::ffff:10.0.0.1", 2), true},
		{tcp("10.0.0.1", 1), tcp("10.0.0.2", 2), false},
		{tcp("10.0.0.1", 1), &net.UnixAddr{Name: "x"}, false},
	} {
		if got := withinHost(c.local, c.remote); got != c.want {
			t.Errorf("%v to %v: %v, want %v", c.local, c.remote, got, c.want)
		}
	}
}
