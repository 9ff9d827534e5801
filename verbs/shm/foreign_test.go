//go:build linux

package shm

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// lingering makes TCP sockets whose last close blocks until the function that it returns is called, which
// happens at the end of the test at the latest.
func lingering(t testing.TB) (newSocket func() int, letGo func()) {
	t.Helper()
	var listeners []int
	letGo = sync.OnceFunc(func() {
		for _, l := range listeners {
			unix.Close(l) // resets the connections that nobody accepted
		}
	})
	t.Cleanup(letGo)
	made := 0
	return func() int {
		t.Helper()
		if made%500 == 0 {
			l := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
			listeners = append(listeners, l)
			for _, err := range []error{
				unix.SetsockoptInt(l, unix.SOL_SOCKET, unix.SO_RCVBUF, 2048),
				unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(l, 1000),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		made++
		to := must(unix.Getsockname(listeners[len(listeners)-1]))(t)
		s := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
		for _, err := range []error{
			unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF, 4608), unix.Connect(s, to), unix.SetNonblock(s, true),
			unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for {
			if _, err := unix.Write(s, make([]byte, 65536)); err != nil {
				return s
			}
		}
	}, letGo
}

// pass sends a packet with descriptors, which then are only in the packet. The device closes none of them
// before: else the close here would be the last one, and block.
func pass(d *device, c *net.UnixConn, b []byte, fds ...int) error {
	d.closer.mu.Lock()
	defer d.closer.mu.Unlock()
	_, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	for _, fd := range fds {
		if err == nil {
			unix.Close(fd)
		} else { // nobody took it: closing it would block here
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			unix.Close(fd)
		}
	}
	return err
}

// threads is the number of threads of this process.
func threads(t testing.TB) int {
	t.Helper()
	return len(must(os.ReadDir("/proc/self/task"))(t))
}

// dialSocket connects to the socket of a device as a stranger.
func dialSocket(t testing.TB, name string) *net.UnixConn {
	t.Helper()
	c := must(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + name, Net: "unixpacket"}))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// inTime fails the test if f does not return within a minute.
func inTime(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", what)
	}
}

// works checks that two new ends of the provider connect and exchange a message.
func works(t testing.TB, x, y *testEnd) {
	t.Helper()
	inTime(t, "a message of others", func() {
		x.connect(y.endpoint())
		y.connect(x.endpoint())
		x.post(x.to(y, 1, verbs.OpWrite, 0, 64, 0))
		x.ends(1, verbs.StatusOK)
	})
}

// kernels are what this kernel can do, and what one before Linux 6.16 can do.
var kernels = map[string]func(uintptr, bool) error{"this kernel": setPassRights, "without SO_PASSRIGHTS": oldKernel}

func oldKernel(uintptr, bool) error { return unix.ENOPROTOOPT }

// TestDescriptorsOfStrangersHoldNobodyUp: many packets without a proof bring descriptors whose close blocks.
// Others connect meanwhile, the number of goroutines and threads stays small, and Close of the device
// returns.
func TestDescriptorsOfStrangersHoldNobodyUp(t *testing.T) {
	const packets = maxUnproven + 50
	for name, kernel := range kernels {
		t.Run(name, func(t *testing.T) {
			newSocket, letGo := lingering(t)
			p := New(Options{Trusted: true}) // as with mutual TLS: strangers of all users wait for their proof
			p.setRights = kernel
			x, y := newTestEnd(t, p, 4096), newTestEnd(t, p, 4096)
			d := as[*device](x.dev)
			e := ends{gids: [2]verbs.GID{{15: 9}, d.gid}, qpns: [2]verbs.QPN{77, x.qp.QPN()}}
			h := newHello(&e, d.userNS)
			forged := append(h.body(), make([]byte, proofSize)...)
			goroutines, before := runtime.NumGoroutine(), threads(t)
			var list []*net.UnixConn
			for i := range packets {
				c := dialSocket(t, d.socket)
				switch i % 4 {
				case 0: // with a hello that waits for its queue pair, and after it
					_, _ = c.Write(forged)
					_ = pass(d, c, []byte{kindHello}, newSocket())
				case 1: // after an empty packet
					_ = unix.Send(socketOf(t, c), nil, 0)
					_ = pass(d, c, []byte{kindHello}, newSocket(), newSocket())
				default:
					_ = pass(d, c, []byte{kindHello}, newSocket())
				}
				list = append(list, c)
			}
			works(t, x, y)
			wait(t, func() bool { return runtime.NumGoroutine() <= goroutines+maxUnproven+maxClosers+10 })
			if n := threads(t); n > before+maxClosers+20 {
				t.Errorf("the process has %d threads, before it had %d", n, before)
			}
			for _, c := range list {
				c.Close()
			}
			x.close(x.qp, x.cq, x.mr, x.pd)
			inTime(t, "Close of the device", func() { x.close(x.dev) })
			if s := p.Stats(); (name != "this kernel") != (s.Refused > 0) || int(s.Closing) != d.closer.open() {
				t.Errorf("the numbers are %+v, %d are being closed", s, d.closer.open())
			}
			letGo()
			wait(t, func() bool { return d.closer.open() == 0 })
		})
	}
}

// socketOf returns the descriptor of a connection.
func socketOf(t testing.TB, c *net.UnixConn) (fd int) {
	t.Helper()
	raw := must(c.SyscallConn())(t)
	if err := raw.Control(func(s uintptr) { fd = int(s) }); err != nil {
		t.Fatal(err)
	}
	return fd
}

// open is the number of closes that have not ended.
func (c *closer) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// TestSocketsTakeNoDescriptorsBeforeTheProof: the sender gets an error, also before its connection was
// accepted.
func TestSocketsTakeNoDescriptorsBeforeTheProof(t *testing.T) {
	s := must(unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
	unix.Close(s)
	if err != nil {
		t.Skipf("no SO_PASSRIGHTS, which Linux has since 6.16: %v", err)
	}
	dir := t.TempDir()
	x := newTestEnd(t, New(Options{Dir: dir}), 4096)
	d := as[*device](x.dev)
	for _, name := range []string{"@" + d.socket, dir + "/" + d.socket} {
		c := must(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"}))(t)
		defer c.Close()
		for range 2 {
			if err := pass(d, c, []byte{kindHello}, must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)); !errors.Is(err, unix.EPERM) {
				t.Errorf("passing a descriptor to %s: %v", name, err)
			}
			wait(t, func() bool { return d.unproven.count() > 0 })
		}
	}
	// The connector's socket takes none before the welcome.
	l := must(net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + nowhere, Net: "unixpacket"}))(t)
	defer l.Close()
	peer := endpointData{socket: nowhere}
	for i := range peer.secret {
		peer.secret[i] = 255 // the lower secret connects
	}
	x.connect(verbs.Endpoint{QPN: 77, PSN: 5, GID: verbs.GID{15: 9}, Data: peer.append(nil)})
	c := must(l.AcceptUnix())(t)
	defer c.Close()
	if err := pass(d, c, []byte{kindWelcome}, must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)); !errors.Is(err, unix.EPERM) {
		t.Errorf("passing a descriptor to the connector: %v", err)
	}
}

// TestDescriptorsBeforeTheWelcomeHoldNobodyUp: a stranger listens in place of the peer.
func TestDescriptorsBeforeTheWelcomeHoldNobodyUp(t *testing.T) {
	for name, kernel := range kernels {
		t.Run(name, func(t *testing.T) {
			newSocket, letGo := lingering(t)
			p := New(Options{})
			p.setRights = kernel
			x, y, z := newTestEnd(t, p, 4096), newTestEnd(t, p, 4096), newTestEnd(t, p, 4096)
			d := as[*device](x.dev)
			l := must(net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + nowhere, Net: "unixpacket"}))(t)
			defer l.Close()
			peer := endpointData{socket: nowhere}
			for i := range peer.secret {
				peer.secret[i] = 255
			}
			x.connect(verbs.Endpoint{QPN: 77, PSN: 5, GID: verbs.GID{15: 9}, Data: peer.append(nil)})
			c := must(l.AcceptUnix())(t)
			defer c.Close()
			for range 5 {
				_ = pass(d, c, []byte{kindWelcome}, newSocket())
			}
			works(t, y, z)
			inTime(t, "Close", func() { x.close(x.qp, x.cq, x.mr, x.pd, x.dev) })
			letGo()
			wait(t, func() bool { return d.closer.open() == 0 })
		})
	}
}

// TestStrangersStopNoMoreThanAccepting: when strangers hold as many connections as may be closed later, the
// device accepts no others. Its queue pairs go on, and Close returns although connections with
// descriptors wait to be accepted.
func TestStrangersStopNoMoreThanAccepting(t *testing.T) {
	newSocket, letGo := lingering(t)
	p := New(Options{})
	p.setRights = oldKernel
	x, y := newPair(t, p, 4096)
	x.post(x.to(y, 1, verbs.OpWrite, 0, 64, 0))
	x.ends(1, verbs.StatusOK)
	d := as[*device](x.dev)
	blocked := make(chan struct{})
	defer close(blocked)
	for range maxToClose {
		d.closer.add(verbs.GID{}, func() { <-blocked })
	}
	waiting := []*net.UnixConn{dialSocket(t, d.socket)} // a loop that is in accept already takes this one
	for range 20 {
		c := dialSocket(t, d.socket)
		if err := pass(d, c, []byte{kindHello}, newSocket()); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, c)
	}
	for range 200 {
		x.post(x.to(y, 2, verbs.OpWrite, 0, 64, 0))
		x.ends(2, verbs.StatusOK)
	}
	if n := d.closer.open(); n > maxToClose {
		t.Errorf("%d connections were accepted", n-maxToClose)
	}
	x.close(x.qp, x.cq, x.mr, x.pd)
	inTime(t, "Close of the device", func() { x.close(x.dev) })
	for _, c := range waiting {
		c.Close()
	}
	letGo()
}

// TestAcceptingGoesOnWhenConnectionsWereClosed: a closed one makes room.
func TestAcceptingGoesOnWhenConnectionsWereClosed(t *testing.T) {
	p := New(Options{})
	x, y := newTestEnd(t, p, 4096), newTestEnd(t, p, 4096)
	d := as[*device](y.dev)
	blocked := make(chan struct{})
	for range maxToClose {
		d.closer.add(verbs.GID{}, func() { <-blocked })
	}
	time.AfterFunc(10*time.Millisecond, func() { close(blocked) })
	works(t, x, y)
	wait(t, func() bool { return d.closer.open() == 0 })
}

// TestDescriptorsOfAPeerHoldNoOtherUp: a peer that has proved itself passes descriptors whose close blocks.
// Its queue pair breaks. Others of the device are created, connected and closed meanwhile.
func TestDescriptorsOfAPeerHoldNoOtherUp(t *testing.T) {
	file, ring := fileMessage(kindFile, 7), fileMessage(kindRing, 0)
	for name, attack := range map[string]func(i *impostor, newSocket func() int){
		"in place of the ring": func(i *impostor, newSocket func() int) { _ = pass(as[*device](i.x.dev), i.conn, ring[:], newSocket()) },
		"in place of a memfd": func(i *impostor, newSocket func() int) {
			i.passRing()
			_ = pass(as[*device](i.x.dev), i.conn, file[:], newSocket())
		},
		"many": func(i *impostor, newSocket func() int) {
			i.passRing()
			fds := make([]int, 253) // as many as the kernel lets a packet carry
			for n := range fds {
				fds[n] = newSocket()
			}
			_ = pass(as[*device](i.x.dev), i.conn, file[:], fds...)
		},
		"with a packet that has none": func(i *impostor, newSocket func() int) {
			i.passRing()
			_ = pass(as[*device](i.x.dev), i.conn, []byte{kindWake}, newSocket())
		},
		"a flood": func(i *impostor, newSocket func() int) {
			i.passRing()
			for range 50 {
				_ = pass(as[*device](i.x.dev), i.conn, file[:], newSocket())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			newSocket, letGo := lingering(t)
			p := New(Options{})
			x, y := newTestEnd(t, p, 4096), newTestEnd(t, p, 4096)
			d := as[*device](x.dev)
			before := threads(t)
			i := newImpostor(t, x)
			attack(i, newSocket)
			var other verbs.QP
			inTime(t, "CreateQP of another peer", func() {
				var err error
				other, err = x.pd.CreateQP(verbs.QPConfig{SendCQ: x.cq, RecvCQ: x.cq, MaxSend: 4, MaxRecv: 4, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64})
				if err != nil {
					t.Error(err)
				}
			})
			attacked := x.qp
			x.qp = as[*qp](other)
			if err := x.path().Init(x.qp); err != nil {
				t.Fatal(err)
			}
			works(t, x, y)
			inTime(t, "Close of the queue pair", func() { x.close(attacked) })
			wait(t, func() bool { return d.takers.count() == 0 }) // none waits for a close
			if n := threads(t); n > before+maxClosers+20 {
				t.Errorf("the process has %d threads, before it had %d", n, before)
			}
			x.close(other, x.cq, x.mr, x.pd)
			inTime(t, "Close of the device", func() { x.close(x.dev) })
			i.conn.Close()
			letGo()
			wait(t, func() bool { return d.closer.open() == 0 })
		})
	}
}

// TestMemoryThatIsNeverMappedHoldsNoOtherUp: a peer makes the system calls that look at its memfd block. Its
// own queue pair waits, and can be closed. A second process of its kind, and many queue pairs of the same
// one, hold no others up. What is mapped too late is unmapped.
func TestMemoryThatIsNeverMappedHoldsNoOtherUp(t *testing.T) {
	const size = 3 * 4096
	p := New(Options{})
	x, y, z := newTestEnd(t, p, 4096), newTestEnd(t, p, 4096), newTestEnd(t, p, 4096)
	d := as[*device](x.dev)
	blocked, begun := make(chan struct{}), make(chan struct{}, 1)
	d.maps.populate = func(mem []byte) error {
		if len(mem) == size {
			begun <- struct{}{}
			<-blocked
		}
		return readAll(mem)
	}
	i := newImpostor(t, x)
	i.passRing()
	f := must(newMemfd(size))(t)
	defer f.free()
	m := fileMessage(kindFile, 7)
	i.write(m[:], []int{f.fd})
	word(i.ring.mem, atControl).Store(1)
	i.post(0, entry{op: verbs.OpSend, flags: flagFirst | flagLast, total: 60, length: 60}, fileRange{file: 7, length: 60})
	<-begun
	inTime(t, "a poll of the completion queue", func() {
		if _, err := x.cq.Poll(make([]verbs.WC, 1)); err != nil {
			t.Error(err)
		}
	})
	attacked := x.qp
	inTime(t, "CreateQP of another peer", func() {
		made := must(x.pd.CreateQP(verbs.QPConfig{SendCQ: x.cq, RecvCQ: x.cq, MaxSend: 4, MaxRecv: 4, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}))(t)
		x.qp = as[*qp](made)
	})
	if err := x.path().Init(x.qp); err != nil {
		t.Fatal(err)
	}
	works(t, x, y)
	inTime(t, "Close of the queue pair", func() { x.close(attacked) })
	works(t, newTestEnd(t, p, 4096), z)
	x.close(x.qp, x.cq, x.mr, x.pd)
	inTime(t, "Close of the device", func() { x.close(x.dev) })
	close(blocked)
	wait(t, func() bool { return x.mapped() == 0 })
}

func (t *takers) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// TestTakersOfAProcessAreBounded: one process has its share, and all together have a number.
func TestTakersOfAProcessAreBounded(t *testing.T) {
	var k takers
	never, now := make(chan struct{}), make(chan struct{})
	close(now)
	for range maxTakersOfOne {
		if !k.enter(verbs.GID{15: 1}, never) {
			t.Fatal("a process does not get its share")
		}
	}
	if k.enter(verbs.GID{15: 1}, now) {
		t.Error("a process gets more than its share")
	}
	for n := maxTakersOfOne; n < maxTakers; n++ {
		if !k.enter(verbs.GID{14: 1, 15: byte(n)}, never) {
			t.Fatal("another process gets nothing")
		}
	}
	if k.enter(verbs.GID{15: 200}, now) {
		t.Error("there are more than the total")
	}
	k.leave(verbs.GID{15: 1})
	if !k.enter(verbs.GID{15: 200}, never) {
		t.Error("a place that became free is not given away")
	}
}

// TestProcessWithManyDescriptorsIsRefused: a process whose descriptors are still being closed gets no other
// queue pair until they are. Others do.
func TestProcessWithManyDescriptorsIsRefused(t *testing.T) {
	p := New(Options{})
	x, y, z := newTestEnd(t, p, 4096), newTestEnd(t, p, 4096), newTestEnd(t, p, 4096)
	d := as[*device](x.dev)
	hostile := as[*device](y.dev).gid
	blocked := make(chan struct{})
	for range maxToCloseOfOne {
		d.closer.add(hostile, func() { <-blocked })
	}
	if err := x.path().Connect(x.qp, x.psn, y.endpoint()); err == nil {
		t.Error("the process gets a queue pair")
	}
	x.reset()
	works(t, x, z)
	close(blocked)
	wait(t, func() bool { return d.closer.open() == 0 })
	x.reset()
	works(t, x, y)
}

// TestConnectionsThatWaitForAQueuePairAreBounded: a hello for a queue pair that does not know its peer
// waits. Those beyond the limit end with their goroutines.
func TestConnectionsThatWaitForAQueuePairAreBounded(t *testing.T) {
	x := newTestEnd(t, New(Options{}), 4096)
	d := as[*device](x.dev)
	e := ends{gids: [2]verbs.GID{{15: 9}, d.gid}, qpns: [2]verbs.QPN{77, x.qp.QPN()}}
	before := runtime.NumGoroutine()
	for range 3 * maxUnproven {
		c := dialSocket(t, d.socket)
		h := newHello(&e, d.userNS)
		if _, err := c.Write(append(h.body(), make([]byte, proofSize)...)); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, func() bool {
		return d.unproven.count() == maxUnproven && runtime.NumGoroutine() <= before+maxUnproven+10
	})
}

// TestMessageInANewMemfdBeforeTheEndCompletes: the peer passes a memfd, posts what it holds, and closes its
// connection before the memfd was mapped.
func TestMessageInANewMemfdBeforeTheEndCompletes(t *testing.T) {
	x := newTestEnd(t, New(Options{}), 4096)
	d := as[*device](x.dev)
	i := newImpostor(t, x)
	i.passRing()
	x.recv(1, 0, 64)
	blocked, begun := make(chan struct{}), make(chan struct{}, 1)
	d.maps.populate = func(mem []byte) error {
		begun <- struct{}{}
		<-blocked
		return readAll(mem)
	}
	f := must(newMemfd(2 * 4096))(t)
	defer f.free()
	f.mem[59] = 7
	m := fileMessage(kindFile, 7)
	i.write(m[:], []int{f.fd})
	word(i.ring.mem, atControl).Store(1)
	i.post(0, entry{op: verbs.OpSend, flags: flagFirst | flagLast, total: 60, length: 60}, fileRange{file: 7, length: 60})
	<-begun
	i.conn.Close()
	close(blocked)
	x.ends(1, verbs.StatusOK)
	if x.mem[59] != 7 {
		t.Error("the content is another one")
	}
}

// TestSymbolicLinkInTheDirectoryIsNotFollowed: others may write in the directory for sockets, and a link
// could lead to a file system that blocks.
func TestSymbolicLinkInTheDirectoryIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	x := newTestEnd(t, New(Options{Dir: dir}), 4096)
	d := as[*device](x.dev)
	if err := os.Symlink(filepath.Join(dir, d.socket), filepath.Join(dir, nowhere)); err != nil {
		t.Fatal(err)
	}
	if c, err := d.dialOne(t.Context(), filepath.Join(dir, nowhere)); err == nil {
		c.Close()
		t.Error("the link was followed")
	}
	must(d.dialOne(t.Context(), filepath.Join(dir, d.socket)))(t).Close()
}

// TestDescriptorsOfStrangersAreLoggedOnce: each of both warnings comes once a minute at most.
func TestDescriptorsOfStrangersAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	p := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := closer{provider: p}
	blocked := make(chan struct{})
	for range maxToClose + 10 {
		c.add(verbs.GID{}, func() { <-blocked })
		c.add(verbs.GID{15: 1}, func() { <-blocked }) // an honest peer's may be on their way
	}
	close(blocked)
	wait(t, func() bool { return c.open() == 0 })
	for _, text := range []string{"without a proof", "no others are accepted"} {
		if n := strings.Count(log.String(), text); n != 1 {
			t.Errorf("%q was logged %d times: %s", text, n, &log)
		}
	}
	if s := p.Stats(); s != (Stats{Refused: maxToClose + 10}) {
		t.Errorf("the numbers are %+v", s)
	}
}
