//go:build linux

package shm

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// Where the operations of FuzzRing may write in the memory of its queue pair: the content of a READ, the
// old value of an atomic, a receive, and a window. Nothing else changes.
var fuzzedPlaces = [][2]int{{0, 64}, {64, 72}, {128, 192}, {256, 320}}

// What an input of FuzzRing does. The 8 words are setWord to setWord+7.
const (
	setWord     = 0
	postEntry   = 8 // number, PSN and a key that is 1 are made right
	postRaw     = 9
	putResponse = 10
	stepRing    = 11
	ringActions = 12

	fuzzedFile = 3 // the memfd that the peer has passed
)

var fuzzedWords = [8]int{atPosted, atConsumed, atEpoch, atControl, atDone, atFailed, atNoReceive, atCopied}

// fuzzedRing is a queue pair whose peer's ring is under the control of the test. Nothing but the test
// reads it.
type fuzzedRing struct {
	x      *testEnd
	window verbs.Window
	l      *connection
	ring   *file
	posted uint64
}

// connectFuzzed gives the queue pair a connection, and posts work requests of each kind.
func connectFuzzed(t *testing.T, x *testEnd, content *file) *fuzzedRing {
	d, q := as[*device](x.dev), x.qp
	x.connect(verbs.Endpoint{QPN: 77, PSN: 5, GID: verbs.GID{15: 9}, Data: (&endpointData{socket: nowhere}).append(nil)})
	pair := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(pair[1]) })
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	l := newConnection(d, as[*net.UnixConn](must(net.FileConn(socket))(t)), must(d.newRing(minEntry))(t), verbs.GID{15: 9})
	l.raw = must(l.conn.SyscallConn())(t)
	f := &fuzzedRing{x: x, l: l, ring: must(d.newRing(minEntry))(t)}
	t.Cleanup(func() { l.free(); f.ring.free() })
	l.peer, l.entrySize = f.ring.mem, minEntry
	l.files[fuzzedFile] = must(d.maps.add(must(unix.FcntlInt(uintptr(content.fd), unix.F_DUPFD_CLOEXEC, 0))(t), l.peerGID))(t)
	q.mu.Lock()
	q.connection = l
	q.live.Store(l)
	q.stopConnectingLocked()
	q.mu.Unlock()
	f.window = must(q.BindWindow(x.mr, 256, 64, qpRights))(t)
	x.recv(1, 128, 64)
	at := func(off, n uint32) []verbs.SGE {
		return []verbs.SGE{{Addr: x.mr.Addr() + uint64(off), Length: n, LKey: x.mr.LKey()}}
	}
	x.post(
		verbs.SendWR{ID: 2, Op: verbs.OpSend, Signaled: true, SGL: at(512, 64)},
		verbs.SendWR{ID: 3, Op: verbs.OpRead, Signaled: true, SGL: at(0, 64), RemoteAddr: 1 << 20, RKey: 1},
		verbs.SendWR{ID: 4, Op: verbs.OpFetchAdd, Signaled: true, SGL: at(64, 8), RemoteAddr: 1 << 20, RKey: 1},
	)
	return f
}

// act takes an action from the input, and returns the rest of the input.
func (f *fuzzedRing) act(in []byte) (rest []byte) {
	take := func(n int) []byte {
		b := make([]byte, n)
		in = in[copy(b, in):]
		return b
	}
	mem := f.ring.mem
	switch a := take(1)[0] % ringActions; a {
	case postEntry, postRaw:
		b := mem[entriesAt+int(f.posted%ringEntries)*minEntry:][:minEntry]
		copy(b, take(entryHeader+int(take(1)[0])%(minEntry-entryHeader+1)))
		if a == postEntry {
			binary.LittleEndian.PutUint64(b, f.posted)
			binary.LittleEndian.PutUint32(b[8:], uint32(5+f.posted)&psnMask)
			if binary.LittleEndian.Uint32(b[20:]) == 1 {
				binary.LittleEndian.PutUint32(b[20:], uint32(f.window.RKey()))
				binary.LittleEndian.PutUint64(b[24:], f.x.mr.Addr()+binary.LittleEndian.Uint64(b[24:]))
			}
		}
		f.posted++
		word(mem, atPosted).Store(f.posted)
	case putResponse:
		copy(mem[responsesAt+int(take(1)[0])%ringEntries*responseSize:], take(responseSize))
	case stepRing:
		f.step()
	default:
		word(mem, fuzzedWords[a-setWord]).Store(binary.LittleEndian.Uint64(take(8)))
	}
	return in
}

func (f *fuzzedRing) step() {
	q := f.x.qp
	q.drive.Lock()
	q.stepDriving(f.l, false)
	q.drive.Unlock()
}

// check compares what the queue pair has done with what it may do.
func (f *fuzzedRing) check(t *testing.T, before []byte) {
	x := f.x
	for _, p := range fuzzedPlaces {
		copy(before[p[0]:p[1]], x.mem[p[0]:p[1]])
	}
	if !bytes.Equal(x.mem, before) {
		t.Error("the memory has changed outside of what was granted")
	}
	q := x.qp
	q.mu.Lock()
	if r, p, m := &q.req, &q.resp, &q.machine; r.acked > r.published || m.Completed() > m.Posted() || p.executed > p.seen || m.Consumed() > m.PostedRecvs() {
		t.Errorf("acknowledged %d of %d, completed %d of %d, executed %d of %d, took %d of %d receives",
			r.acked, r.published, m.Completed(), m.Posted(), p.executed, p.seen, m.Consumed(), m.PostedRecvs())
	}
	q.mu.Unlock()
	var wcs [16]verbs.WC
	n := must(x.cq.Poll(wcs[:]))(t)
	var ids []verbs.WRID
	for _, wc := range wcs[:n] {
		if wc.ID < 1 || wc.ID > 4 || slices.Contains(ids, wc.ID) || wc.ID == 1 && wc.Len > 64 {
			t.Errorf("a completion of %+v, after those of %v", wc, ids)
		}
		ids = append(ids, wc.ID)
	}
}

// fuzzedInput joins actions.
func fuzzedInput(actions ...[]byte) []byte { return slices.Concat(actions...) }

func setTo(w int, v uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{byte(setWord + w)}, v)
}

// posting posts an entry with content or ranges.
func posting(e entry, content []byte, ranges ...fileRange) []byte {
	b := make([]byte, minEntry)
	e.ranges = uint16(len(ranges)) //nolint:gosec // a test
	e.put(b)
	for i, p := range ranges {
		putRange(b, i, p)
	}
	n := copy(b[entryHeader:], content) + len(ranges)*rangeSize
	return append([]byte{postEntry, byte(n)}, b[:entryHeader+n]...)
}

func responding(slot byte, r response) []byte {
	b := append([]byte{putResponse, slot}, make([]byte, responseSize)...)
	r.put(b[2:])
	return b
}

// fuzzedSeeds are inputs that reach each half of the reader.
func fuzzedSeeds() [][]byte {
	const whole = flagFirst | flagLast
	step := []byte{stepRing}
	return [][]byte{
		fuzzedInput(posting(entry{op: verbs.OpSend, flags: whole | flagInline, total: 8, length: 8}, []byte("inlined!")), step),
		fuzzedInput(posting(entry{op: verbs.OpSend, flags: whole, total: 60, length: 60}, nil, fileRange{file: fuzzedFile, length: 60, offset: 4000}), step),
		fuzzedInput(posting(entry{op: verbs.OpWrite, flags: whole | flagInline, rkey: 1, addr: 256, total: 8, length: 8}, []byte("windowed")), step),
		fuzzedInput(
			posting(entry{op: verbs.OpWrite, flags: flagFirst | flagInline, rkey: 1, addr: 300, total: 16, length: 8}, []byte("first...")), step,
			posting(entry{op: verbs.OpWrite, flags: flagLast | flagInline, rkey: 1, addr: 300, total: 16, offset: 8, length: 8}, []byte("and last")), step),
		fuzzedInput(posting(entry{op: verbs.OpRead, flags: whole, rkey: 1, addr: 256, total: 64, length: 64}, nil), step),
		fuzzedInput(posting(entry{op: verbs.OpFetchAdd, flags: whole, rkey: 1, addr: 256, total: 1, length: 8}, nil), step),
		fuzzedInput(
			setTo(4, 3), responding(1, response{number: 1, value: 64, file: fuzzedFile, length: 64}),
			responding(2, response{number: 2, value: 77, length: 8}), step),
		fuzzedInput(setTo(4, 1), step, setTo(4, 0), step),
		fuzzedInput(setTo(5, 1<<8|uint64(verbs.StatusRemoteAccess)), step),
		fuzzedInput(setTo(6, 1), step, setTo(7, 9), setTo(3, 5), step, setTo(2, 0), step),
		fuzzedInput(setTo(0, ringEntries+1), step),
		fuzzedInput(
			responding(1, response{number: 1, value: 64, file: fuzzedFile, length: 64}),
			responding(2, response{number: 2, value: 77, length: 8}), setTo(4, ringEntries+1), step),
		fuzzedInput(posting(entry{op: verbs.OpSend, flags: whole | flagInline, total: 8, length: 8}, []byte("inlined!")), step, setTo(0, 0), step),
		fuzzedInput(posting(entry{op: verbs.OpSend, flags: whole, total: 60, length: 60}, nil, fileRange{file: fuzzedFile, length: 60, offset: 4090}), step),
		fuzzedInput(posting(entry{op: verbs.OpWrite, flags: whole | flagInline, rkey: 1, addr: 316, total: 8, length: 8}, []byte("too long")), step),
		fuzzedInput(setTo(4, 2), responding(1, response{number: 1, value: 4090, file: fuzzedFile, length: 64}), step),
	}
}

// FuzzRing: whatever a peer writes into its ring, in whatever order, the process goes on, writes only where
// the peer was granted to, and completes each work request at most once.
func FuzzRing(f *testing.F) {
	for _, s := range fuzzedSeeds() {
		f.Add(s)
	}
	content := must(newMemfd(4096))(f)
	f.Cleanup(content.free)
	x := newTestEnd(f, New(Options{}), 4096)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		x.t = t
		defer func() { x.t = f }()
		for i := range x.mem {
			x.mem[i] = byte(i)
		}
		before := bytes.Clone(x.mem)
		r := connectFuzzed(t, x, content)
		for len(in) > 0 {
			in = r.act(in)
		}
		r.step()
		r.step()
		r.check(t, before)
		if err := r.window.Close(); err != nil {
			t.Error(err)
		}
		x.reset()
	})
}
