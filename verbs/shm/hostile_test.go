//go:build linux

package shm

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// nowhere is the name of a socket that does not exist.
const nowhere = socketPrefix + "00000000000000000000000000000000"

// impostor speaks the protocol of a queue pair of its own to an end, byte by byte. It knows the
// secrets, as a hostile peer does.
type impostor struct {
	t    testing.TB
	x    *testEnd
	conn *net.UnixConn
	e    ends
	ring *file
}

// newImpostor connects an end to an impostor, up to the point where it passes its ring.
func newImpostor(t testing.TB, x *testEnd) *impostor {
	t.Helper()
	i := &impostor{t: t, x: x}
	own := x.qp.Endpoint()
	data := must(parseEndpointData(own.Data))(t)
	// The lower secret connects.
	mine := endpointData{socket: nowhere}
	i.e = ends{gids: [2]verbs.GID{{15: 9}, as[*device](x.dev).gid}, qpns: [2]verbs.QPN{77, own.QPN}, secrets: [2]secret{mine.secret, data.secret}}
	x.connect(verbs.Endpoint{QPN: 77, PSN: 5, GID: i.e.gids[0], Data: mine.append(nil)})
	i.conn = must(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + data.socket, Net: "unixpacket"}))(t)
	t.Cleanup(func() { i.conn.Close() })
	h := newHello(&i.e, as[*device](x.dev).userNS)
	body := h.body()
	i.write(append(body, i.e.proof(connector, body)...), nil)
	buf := make([]byte, maxPacket)
	n := must(i.conn.Read(buf))(t)
	if _, err := checkWelcome(buf[:n], append(body, i.e.proof(connector, body)...), &i.e); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *impostor) write(b []byte, fds []int) {
	i.t.Helper()
	var oob []byte
	if fds != nil {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := i.conn.WriteMsgUnix(b, oob, nil); err != nil {
		i.t.Logf("writing to the device: %v", err)
	}
}

// passRing passes a ring that the impostor may write to.
func (i *impostor) passRing() {
	i.t.Helper()
	i.ring = must(as[*device](i.x.dev).newRing(minEntry))(i.t)
	i.t.Cleanup(func() {
		if i.ring.fd >= 0 {
			i.ring.free()
		}
	})
	m := fileMessage(kindRing, 0)
	i.write(m[:], []int{i.ring.fd})
	wait(i.t, func() bool { return i.x.qp.live.Load() != nil })
}

// post publishes an entry, as number n.
func (i *impostor) post(n uint64, e entry, ranges ...fileRange) {
	b := i.ring.mem[entriesAt+int(n%ringEntries)*minEntry:][:minEntry]
	e.number, e.psn, e.ranges = n, uint32(5+n), uint16(len(ranges))
	e.put(b)
	for at, p := range ranges {
		putRange(b, at, p)
	}
	word(i.ring.mem, atPosted).Store(n + 1)
	i.write([]byte{kindWake}, nil)
}

// TestHostileDescriptors: a thousand descriptors that are no sealed memfd break their connection at
// most. No descriptor, goroutine or mapping stays.
func TestHostileDescriptors(t *testing.T) {
	dir := t.TempDir()
	kinds := hostileDescriptors(t, dir)
	p := New(Options{})
	x := newTestEnd(t, p, 4096)
	before, goroutines := descriptors(t), runtime.NumGoroutine()
	for round := range 1000 {
		fds := kinds[round%len(kinds)].make()
		if round%3 == 0 { // more descriptors than a packet may have
			fds = append(fds, fds[0], fds[0])
		}
		func() {
			i := newImpostor(t, x)
			defer i.conn.Close()
			m := fileMessage(kindRing, 0)
			i.write(m[:], fds)
			for _, fd := range fds[:1] {
				unix.Close(fd)
			}
			// The device closes the connection, or answers that it refuses.
			buf := make([]byte, maxPacket)
			_ = i.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			if n, err := i.conn.Read(buf); err == nil && n > 0 && buf[0] != kindRefused {
				t.Fatalf("kind %d was accepted", round%len(kinds))
			} else if os.IsTimeout(err) {
				t.Fatalf("kind %d: the device does not answer", round%len(kinds))
			}
		}()
		x.reset()
	}
	wait(t, func() bool { return descriptors(t) <= before && runtime.NumGoroutine() <= goroutines })
	if n := x.mapped(); n != 0 {
		t.Errorf("%d memfds are mapped", n)
	}
}

// reset makes the queue pair new.
func (x *testEnd) reset() {
	x.t.Helper()
	if err := x.qp.ToReset(); err != nil {
		x.t.Fatal(err)
	}
	if err := x.path().Init(x.qp); err != nil {
		x.t.Fatal(err)
	}
}

// descriptors returns how many descriptors this process has.
func descriptors(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	return len(list)
}

// hostileDescriptors returns functions that make descriptors that must be refused.
func hostileDescriptors(t testing.TB, dir string) []hostile {
	one := func(fd int, err error) []int {
		t.Helper()
		return []int{must(fd, err)(t)}
	}
	memfd := func(size int64, sealed int, hole bool) []int {
		fd := must(unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if size < 1<<20 && !hole {
			if _, err := unix.Pwrite(fd, make([]byte, size), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil {
			t.Fatal(err)
		}
		return []int{fd}
	}
	size := int64(ringSize(minEntry))
	return []hostile{
		{"", func() []int { return one(unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)) }},
		{"", func() []int { return one(unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)) }},
		{"", func() []int {
			return one(unix.Open(filepath.Join(dir, "file"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600))
		}},
		{"no memfd", func() []int { return one(unix.Eventfd(0, unix.EFD_CLOEXEC)) }},
		{"no memfd", func() []int { return one(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)) }},
		{"seals", func() []int { return memfd(size, 0, false) }},
		{"seals", func() []int { return memfd(size, seals&^unix.F_SEAL_SHRINK, false) }},
		{"seals", func() []int { return memfd(size, seals&^unix.F_SEAL_GROW, false) }},
		{"seals", func() []int { return memfd(size, seals&^unix.F_SEAL_FUTURE_WRITE, false) }},
		{"seals", func() []int { return memfd(size, seals&^unix.F_SEAL_SEAL, false) }},
		{"hole at 0", func() []int { return memfd(size, seals, true) }},
		{"2199023255552 bytes", func() []int { return memfd(1<<41, seals, true) }},
		{"0 bytes", func() []int { return memfd(0, seals, true) }},
		{accepted, func() []int { return memfd(size, seals, false) }},      // but it is no ring
		{accepted, func() []int { return memfd(size-4096, seals, false) }}, // and too short for one
	}
}

// hostile makes descriptors. The error of checkMemfd contains words.
type hostile struct {
	words string
	make  func() []int
}

// accepted are the words for a memfd that may be mapped.
const accepted = "accepted"

// TestMemfdsThatAreRefused: each kind is refused for its own reason.
func TestMemfdsThatAreRefused(t *testing.T) {
	for i, k := range hostileDescriptors(t, t.TempDir()) {
		for _, fd := range k.make() {
			_, _, err := checkMemfd(fd)
			if k.words == accepted && err != nil || k.words != accepted && (err == nil || !strings.Contains(err.Error(), k.words)) {
				t.Errorf("kind %d: the error is %v, want %q", i, err, k.words)
			}
			unix.Close(fd)
		}
	}
}

// TestHostileRings: a thousand states of a ring cost at most the connection, and nothing is written
// outside of what was granted.
func TestHostileRings(t *testing.T) {
	p := New(Options{})
	x := newTestEnd(t, p, 1<<16)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that can be repeated
	before := descriptors(t)
	for round := range 1000 {
		i := newImpostor(t, x)
		i.passRing()
		x.recv(1, 0, 64)
		i.disturb(random, round)
		x.finishes(t, round%14 != 3 && round%14 != 13)
		i.conn.Close()
		i.ring.free()
		x.reset()
		x.wcs = nil
	}
	wait(t, func() bool { return descriptors(t) <= before })
	for at, b := range x.mem[64:] { // the receive has 64 bytes, and nothing else was granted
		if b != 0 {
			t.Fatalf("byte %d was written", 64+at)
		}
	}
}

// TestViolationIsAFaultOfThePeer: the event of a ring that its peer breaks does not say that the peer has no
// fault.
func TestViolationIsAFaultOfThePeer(t *testing.T) {
	x := newTestEnd(t, New(Options{}), 1<<16)
	i := newImpostor(t, x)
	i.passRing()
	x.recv(1, 0, 64)
	i.disturb(rand.New(rand.NewPCG(1, 2)), 0) //nolint:gosec // a test that can be repeated
	x.finishes(t, true)
	e, err := x.dev.NextEvent(t.Context())
	if cause := e.Kind.Cause(); err != nil || e.Kind != verbs.EventQPProtocol || !strings.Contains(cause, "the peer broke the protocol") {
		t.Errorf("got %v, %v: %s", e.Kind, err, cause)
	}
	i.conn.Close()
	i.ring.free()
}

// finishes waits until the device has taken what the impostor did. breaks: that breaks the queue
// pair.
func (x *testEnd) finishes(t *testing.T, breaks bool) {
	l := x.qp.live.Load()
	x.qp.pollUntil(t, func() bool {
		if breaks {
			return x.qp.machine.State() == verbs.StateErr
		}
		return x.qp.machine.State() == verbs.StateErr || x.qp.resp.deaf || x.qp.seen == readWords(l.peer) && asleep(l)
	})
}

// disturb does something wrong to the ring.
func (i *impostor) disturb(random *rand.Rand, round int) {
	mem := i.ring.mem
	wake := func() { i.write([]byte{kindWake}, nil) }
	good := entry{op: verbs.OpSend, flags: flagFirst | flagLast | flagInline, total: 8, length: 8}
	switch round % 14 {
	case 0: // a counter that goes back
		i.post(0, good)
		wait(i.t, func() bool { return word(i.x.qp.live.Load().own.mem, atDone).Load() == 1 })
		word(mem, atPosted).Store(0)
		wake()
	case 1: // more requests than the ring has
		word(mem, atPosted).Store(random.Uint64())
		wake()
	case 2: // responses to what was never posted
		word(mem, atDone).Store(random.Uint64())
		wake()
	case 3: // bytes
		for at := range mem[entriesAt:] {
			mem[entriesAt+at] = byte(random.Uint32())
		}
		word(mem, atPosted).Store(1 + uint64(random.Uint32N(ringEntries)))
		wake()
	case 4: // an unknown memfd
		i.post(0, entry{op: verbs.OpSend, flags: flagFirst | flagLast, total: 60, length: 60}, fileRange{file: 9, length: 60})
	case 5: // a key that was never given
		i.post(0, entry{op: verbs.OpWrite, flags: flagFirst | flagLast | flagInline, total: 8, length: 8, rkey: verbs.RKey(random.Uint32()), addr: random.Uint64()})
	case 6: // outside of the region
		i.post(0, entry{
			op: verbs.OpWrite, flags: flagFirst | flagLast | flagInline, total: 8, length: 8, rkey: i.x.mr.RKey(),
			addr: i.x.mr.Addr() + i.x.mr.Len() - uint64(random.Uint32N(8)),
		})
	case 7: // longer than the receive
		i.post(0, entry{op: verbs.OpSend, flags: flagFirst | flagLast | flagInline, total: 100, length: 100})
	case 8: // a part in the wrong place
		i.post(0, entry{op: verbs.OpSend, flags: flagFirst | flagInline, total: 60, length: 8})
		i.post(1, entry{op: verbs.OpSend, flags: flagLast | flagInline, total: 60, offset: 52, length: 8})
	case 9: // a part of another message
		i.post(0, entry{op: verbs.OpSend, flags: flagFirst | flagInline, total: 60, length: 8})
		i.post(1, entry{op: verbs.OpWrite, flags: flagFirst | flagLast | flagInline, total: 8, length: 8})
	case 10: // a memfd outside of whose end the content lies
		f := must(newMemfd(4096))(i.t)
		defer f.free()
		m := fileMessage(kindFile, 3)
		i.write(m[:], []int{f.fd})
		word(mem, atControl).Store(1)
		i.post(0, entry{op: verbs.OpSend, flags: flagFirst | flagLast, total: 60, length: 60}, fileRange{file: 3, length: 60, offset: 4096 - uint64(random.Uint32N(59))})
	case 11: // packets that do not exist
		b := make([]byte, 2+random.IntN(maxPacket-2))
		for at := range b {
			b[at] = byte(random.Uint32())
		}
		b[0] = byte(kindDropped + 1)
		i.write(b, []int{i.ring.fd})
	case 12: // giving back what was not asked for
		m := fileMessage(byte(kindDrop+random.IntN(2)), random.Uint32())
		i.write(m[:], []int{i.ring.fd})
	case 13: // a failure that is no status
		word(mem, atFailed).Store(random.Uint64())
		word(mem, atNoReceive).Store(random.Uint64())
		wake()
	}
}

// TestForeignConnections: what does not prove both secrets gets no descriptor, and is closed.
func TestForeignConnections(t *testing.T) {
	x := newTestEnd(t, New(Options{}), 4096)
	d := as[*device](x.dev)
	data := must(parseEndpointData(x.qp.Endpoint().Data))(t)
	e := ends{gids: [2]verbs.GID{{15: 9}, d.gid}, qpns: [2]verbs.QPN{77, x.qp.QPN()}, secrets: [2]secret{{}, data.secret}}
	x.connect(verbs.Endpoint{QPN: 77, PSN: 5, GID: e.gids[0], Data: (&endpointData{socket: nowhere}).append(nil)})
	right := func() []byte {
		h := newHello(&e, d.userNS)
		body := h.body()
		return append(body, e.proof(connector, body)...)
	}
	for name, first := range map[string][]byte{
		"no hello":        []byte("GET / HTTP/1.1\r\n\r\n"),
		"a short hello":   right()[:50],
		"a wrong proof":   append(right()[:helloSize-1], 0),
		"another process": changed(right(), 32),
		"another QP":      changed(right(), 52),
		"another peer":    changed(right(), 16),
		"another version": changed(right(), 1),
	} {
		t.Run(name, func(t *testing.T) {
			c := must(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + data.socket, Net: "unixpacket"}))(t)
			defer c.Close()
			if _, err := c.Write(first); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
			buf, oob := make([]byte, maxPacket), make([]byte, 100)
			n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
			if err != nil || n < 3 || buf[0] != kindRefused || oobn != 0 {
				t.Fatalf("the answer is %q with %d bytes of descriptors (%v)", buf[:n], oobn, err)
			}
			t.Log(string(buf[2:n]))
			if n, _ := c.Read(buf); n != 0 {
				t.Errorf("after the refusal come %d bytes", n)
			}
		})
	}
	if x.qp.live.Load() != nil {
		t.Error("the queue pair is connected")
	}
}

func changed(b []byte, at int) []byte {
	b[at] ^= 0x55
	return b
}

// FuzzEntry: a parsed entry lies within its message, and its content within the entry.
func FuzzEntry(f *testing.F) {
	b := make([]byte, minEntry)
	(&entry{op: verbs.OpSend, flags: flagFirst | flagLast | flagInline, total: 8, length: 8}).put(b)
	f.Add(b)
	(&entry{op: verbs.OpWrite, flags: flagFirst, total: 1 << 20, length: 300, ranges: 1}).put(b)
	putRange(b, 0, fileRange{file: 1, length: 300, offset: 5})
	f.Add(append([]byte(nil), b...))
	(&entry{op: verbs.OpFetchAdd, flags: flagFirst | flagLast, total: 1, length: 8}).put(b)
	f.Add(append([]byte(nil), b...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < minEntry || len(b) > maxEntry {
			return
		}
		e, err := parseEntry(b)
		if err != nil || e.op >= verbs.OpCompareSwap {
			return
		}
		if e.offset+uint64(e.length) > e.total || e.total > maxMessage {
			t.Errorf("%+v is accepted", e)
		}
		if e.flags&flagInline != 0 && e.op != verbs.OpRead && entryHeader+int(e.length) > len(b) {
			t.Errorf("%+v is longer than its entry of %d bytes", e, len(b))
		}
		if entryHeader+int(e.ranges)*rangeSize > len(b) {
			t.Errorf("%+v has too many ranges", e)
		}
	})
}

// FuzzEndpoint: what is accepted is written again as the same bytes.
func FuzzEndpoint(f *testing.F) {
	f.Add((&endpointData{socket: nowhere, inDir: true}).append(nil))
	f.Add([]byte{endpointVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEndpointData(b)
		if err != nil {
			return
		}
		if got := e.append(nil); !bytes.Equal(got, b) {
			t.Errorf("%v is written as %v", b, got)
		}
	})
}

// TestConnectionsWithoutAProofAreBounded: connections that say nothing end, the oldest at once when there
// are too many. They keep no peer out.
func TestConnectionsWithoutAProofAreBounded(t *testing.T) {
	p := New(Options{})
	x := newTestEnd(t, p, 4096)
	d := as[*device](x.dev)
	var silent []*net.UnixConn
	for range maxUnproven {
		c := must(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@" + d.socket, Net: "unixpacket"}))(t)
		t.Cleanup(func() { c.Close() })
		silent = append(silent, c)
	}
	wait(t, func() bool { return d.unproven.count() == maxUnproven })
	newImpostor(t, x) // it gets the device's proof
	_ = silent[0].SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := silent[0].Read(make([]byte, maxPacket)); os.IsTimeout(err) {
		t.Error("the oldest silent connection stays")
	}
	if n := d.unproven.count(); n > maxUnproven {
		t.Errorf("%d connections are waited for", n)
	}
}

// TestMemfdsOfAPeerAreBounded: one more than maxFiles breaks the queue pair.
func TestMemfdsOfAPeerAreBounded(t *testing.T) {
	x := newTestEnd(t, New(Options{}), 4096)
	i := newImpostor(t, x)
	i.passRing()
	f := must(newMemfd(4096))(t)
	defer f.free()
	for n := range uint32(maxFiles) + 1 {
		m := fileMessage(kindFile, n)
		i.write(m[:], []int{f.fd})
	}
	x.finishes(t, true)
	if n := x.mapped(); n > 2 { // the ring, and one memfd under many numbers
		t.Errorf("%d memfds are mapped", n)
	}
}

// TestMappedBytesOfAPeerAreBounded: a process that shares too much loses its connection. What it had
// shared does not count any more.
func TestMappedBytesOfAPeerAreBounded(t *testing.T) {
	x := newTestEnd(t, New(Options{}), 4096)
	d := as[*device](x.dev)
	d.maps.limit = 1 << 20
	i := newImpostor(t, x)
	i.passRing()
	for n := range uint32(3) {
		f := must(newMemfd(400 << 10))(t)
		m := fileMessage(kindFile, n)
		i.write(m[:], []int{f.fd})
		f.free()
	}
	x.finishes(t, true)
	if n := x.mapped(); n != 3 { // the ring and two memfds
		t.Errorf("%d memfds are mapped", n)
	}
	x.reset()
	wait(t, func() bool {
		d.maps.mu.Lock()
		defer d.maps.mu.Unlock()
		return len(d.maps.list) == 0 && d.maps.bytes == 0 && len(d.maps.byPeer) == 0
	})
}

// asleep reports whether a side says that it must be woken.
func asleep(l *connection) bool {
	l.bell.mu.Lock()
	defer l.bell.mu.Unlock()
	return l.bell.value%2 == 1
}
