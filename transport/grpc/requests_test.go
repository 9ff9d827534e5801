package grpctransport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// slowGraphs is a worker whose RegisterGraph waits.
type slowGraphs struct {
	transport.Worker
	began, goOn chan struct{}
}

func (s slowGraphs) RegisterGraph(context.Context, *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error) {
	s.began <- struct{}{}
	<-s.goOn
	return &tfpb.RegisterGraphResponse{}, nil
}

// slow starts a server that takes graphs of 8 MiB, and large requests of 52.5 MiB in all of one address.
func slow(t *testing.T) (slowGraphs, *node, transport.Worker) {
	s := slowGraphs{began: make(chan struct{}, 100), goOn: make(chan struct{}, 100)}
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{
		tuning: ServerTuning{MaxGraph: 8 << 20, RequestBytes: 80 << 20, Requests: new(RequestStats)},
		wrap:   func(w transport.Worker) transport.Worker { s.Worker = w; return s },
	})
	b := c.start(t, 1, nodeOptions{})
	t.Cleanup(func() { close(s.goOn) })
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	return s, a, w
}

func graphOf(bytes int) *tfpb.RegisterGraphRequest {
	return &tfpb.RegisterGraphRequest{SessionHandle: strings.Repeat("x", bytes)}
}

// TestRequestsUnderWayAreBounded: a request takes its bytes and what they become until its call ends.
// Small ones go on beside large ones.
func TestRequestsUnderWayAreBounded(t *testing.T) {
	s, _, w := slow(t)
	done := make(chan error, 10)
	register := func(size int) { _, err := w.RegisterGraph(t.Context(), graphOf(size)); done <- err }
	for range 3 { // each takes 13 MiB, and 6 MiB more while it is parsed
		go register(6 << 20)
		<-s.began
	}
	go register(6 << 20)
	select {
	case err := <-done:
		if status.CodeOf(err) != status.ResourceExhausted {
			t.Fatalf("52 MiB at once: %v", err)
		}
	case <-s.began:
		t.Fatal("52 MiB are under way at once")
	}
	go register(1 << 10)
	<-s.began
	for range 4 {
		s.goOn <- struct{}{}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		go register(6 << 20)
		<-s.began
	}
	for range 3 {
		s.goOn <- struct{}{}
		if err := <-done; err != nil {
			t.Errorf("after the end of the others: %v", err)
		}
	}
}

// rawClient speaks HTTP/2 to a server.
type rawClient struct {
	t *testing.T
	net.Conn
	*http2.Framer
}

func newRawClient(t *testing.T, address string) *rawClient {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &rawClient{t, conn, http2.NewFramer(conn, conn)}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	c.must(c.WriteSettings())
	return c
}

func (c *rawClient) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// headers begins a call of RegisterGraph.
func (c *rawClient) headers(stream uint32) { c.call(stream, "/tensorflow.WorkerService/RegisterGraph") }

// call begins a call of a method.
func (c *rawClient) call(stream uint32, path string) {
	c.must(c.tryCall(stream, path))
}

func (c *rawClient) tryCall(stream uint32, path string) error {
	var headers bytes.Buffer
	e := hpack.NewEncoder(&headers)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		c.must(e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers.Bytes(), EndHeaders: true})
}

// begin begins a call of RegisterGraph with a request of n bytes that does not end.
func (c *rawClient) begin(stream uint32, n int) {
	c.headers(stream)
	c.must(c.WriteData(stream, false, append(prefixOf(0, n), 1, 2, 3)))
}

// flush returns when the server has read all that was sent.
func (c *rawClient) flush() {
	c.must(c.WritePing(false, [8]byte{1}))
	for {
		f, err := c.ReadFrame()
		c.must(err)
		if p, ok := f.(*http2.PingFrame); ok && p.IsAck() && p.Data == [8]byte{1} {
			return
		}
	}
}

func prefixOf(compressed byte, n int) []byte {
	return binary.BigEndian.AppendUint32([]byte{compressed}, uint32(n)) //nolint:gosec // small
}

// TestUnfinishedRequestsCount from their first byte, of any size and method: a client may send all but the
// last byte. Small calls of the same address go on, and all come back with the connection.
func TestUnfinishedRequestsCount(t *testing.T) {
	s, a, w := slow(t)
	raw := newRawClient(t, a.address)
	for i := range uint32(52) {
		raw.begin(2*i+1, 1<<20)
	}
	raw.flush()
	if _, err := w.RegisterGraph(t.Context(), graphOf(1<<20)); status.CodeOf(err) != status.ResourceExhausted {
		t.Fatalf("beside 52 MiB: %v", err)
	}
	if _, err := w.GetStatus(t.Context(), new(tfpb.GetStatusRequest)); err != nil {
		t.Errorf("a small call: %v", err)
	}
	for i := range uint32(4) {
		raw.must(raw.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
	}
	raw.flush()
	s.goOn <- struct{}{}
	if _, err := w.RegisterGraph(t.Context(), graphOf(1<<20)); err != nil {
		t.Errorf("after a cancel: %v", err)
	}
}

// watchedRequests is a parser with the quotas of a server as that of slow.
func watchedRequests(t testing.TB) *requests {
	q := newQuotas(ServerTuning{MaxGraph: 8 << 20, RequestBytes: 80 << 20})
	quota, err := q.connect(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	r := newRequests(&connection{Conn: b, quota: quota})
	r.in.skip = 0
	return r
}

// taken returns what the requests of the connection take.
func taken(t testing.TB, r *requests) int64 {
	t.Helper()
	n := r.conn.quota.addr.taken.Load()
	if all := r.conn.quota.addr.server.stats.Bytes(); all != n {
		t.Errorf("%d bytes of the address, %d of the server", n, all)
	}
	return n
}

func TestRequestsAreCharged(t *testing.T) {
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		write func(f *http2.Framer) // the client
		want  int64                 // bytes charged, beside some KiB
	}{
		"nothing":          {func(*http2.Framer) {}, 0},
		"small":            {func(f *http2.Framer) { _ = f.WriteData(1, false, prefixOf(0, 100)) }, 0},
		"usual":            {func(f *http2.Framer) { _ = f.WriteData(1, false, prefixOf(0, mib)) }, mib},
		"large":            {func(f *http2.Framer) { _ = f.WriteData(1, true, prefixOf(0, 5*mib)) }, 5 * mib},
		"beyond the limit": {func(f *http2.Framer) { _ = f.WriteData(1, true, prefixOf(0, 9*mib)) }, 0},
		"padded":           {func(f *http2.Framer) { _ = f.WriteDataPadded(1, false, prefixOf(0, 5*mib), make([]byte, 200)) }, 5 * mib},
		"in parts": {func(f *http2.Framer) {
			_ = f.WriteData(1, false, prefixOf(0, 5*mib)[:2])
			_ = f.WriteData(3, false, prefixOf(0, 6*mib)[:3])
			_ = f.WriteData(1, false, prefixOf(0, 5*mib)[2:])
		}, 5 * mib},
		"second message": {func(f *http2.Framer) {
			_ = f.WriteData(1, false, append(prefixOf(0, 3), 1, 2))
			_ = f.WriteData(1, false, append([]byte{3}, prefixOf(0, 7*mib)...))
		}, 7 * mib},
		"compressed": {func(f *http2.Framer) { _ = f.WriteData(1, false, prefixOf(1, mib)) }, mib},
		"tiny frames": {func(f *http2.Framer) {
			for range mib / frameBytes {
				_ = f.WriteData(1, false, prefixOf(0, 100_000)[:1])
			}
		}, mib},
		"behind the end": {func(f *http2.Framer) {
			_ = f.WriteData(1, true, prefixOf(0, 2))
			_ = f.WriteData(1, false, prefixOf(0, 5*mib))
		}, 0},
		"cancelled": {func(f *http2.Framer) {
			_ = f.WriteData(1, false, prefixOf(0, 5*mib))
			_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
			_ = f.WriteData(1, false, prefixOf(0, 5*mib))
		}, -callBytes},
		"other frames": {func(f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WritePing(false, [8]byte{0, 0, 5, 0, 0, 0, 0, 1})
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: prefixOf(0, 5*mib), EndHeaders: true})
		}, 0},
	} {
		var b bytes.Buffer
		f := http2.NewFramer(&b, nil)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
		tc.write(f)
		for _, part := range []int{1, 2, 7, b.Len()} {
			r := watchedRequests(t)
			for rest := bytes.Clone(b.Bytes()); len(rest) > 0; {
				n := min(part, len(rest))
				if err := r.read(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			n := taken(t, r)
			if want := tc.want + callBytes; n < want || n > want+2*chargeStep {
				t.Errorf("%s in parts of %d: %d bytes, want %d", name, part, n, want)
			}
			var out bytes.Buffer
			_ = http2.NewFramer(&out, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{1, 2}, EndHeaders: true})
			_ = http2.NewFramer(&out, nil).WriteData(1, false, make([]byte, 100))
			r.wrote(out.Bytes())
			if taken(t, r) != n {
				t.Errorf("%s: %d bytes while the response is sent", name, taken(t, r))
			}
			out.Reset()
			_ = http2.NewFramer(&out, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{1, 2}, EndHeaders: true, EndStream: true})
			for _, c := range out.Bytes() {
				r.wrote([]byte{c})
			}
			if taken(t, r) != 0 || r.arriving != 0 || len(r.calls) != 0 {
				t.Errorf("%s: %d bytes after the response, and %d requests to come", name, taken(t, r), r.arriving)
			}
		}
	}
}

// begun returns HEADERS of a stream, and a DATA frame with b.
func begun(stream uint32, b []byte) []byte {
	var out bytes.Buffer
	f := http2.NewFramer(&out, nil)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true})
	_ = f.WriteData(stream, false, b)
	return out.Bytes()
}

// TestTooManyRequests: gRPC refuses one whose length was changed. A length that has been read in part ends
// the connection. The end of the connection gives all back.
func TestTooManyRequests(t *testing.T) {
	r := watchedRequests(t)
	for stream := range uint32(6) {
		if err := r.read(begun(2*stream+1, prefixOf(0, 8<<20))); err != nil {
			t.Fatal(err)
		}
	}
	refused := begun(21, append(prefixOf(0, 5<<20), 7))
	if err := r.read(refused); err != nil || !bytes.Equal(refused[2*frameHeader:], []byte{0, 0xff, 0xff, 0xff, 0xff, 7}) {
		t.Errorf("one more: %x, %v", refused, err)
	}
	split := begun(23, prefixOf(0, 5<<20))
	if err := errors.Join(r.read(split[:2*frameHeader+2]), r.read(split[2*frameHeader+2:])); !errors.Is(err, errSplitLength) {
		t.Errorf("one more in parts: %v", err)
	}
	if n := r.conn.quota.addr.server.stats.Refused()["bytes"]; n != 2 {
		t.Errorf("%d refused requests are counted", n)
	}
	r.close()
	if taken(t, r) != 0 {
		t.Errorf("%d bytes after the end", taken(t, r))
	}
	r.end(1)
	if taken(t, r) != 0 {
		t.Errorf("%d bytes after the end of a call of a connection that has ended", taken(t, r))
	}
}

// FuzzRequests reads foreign bytes in parts. All that is charged is given back at the end.
func FuzzRequests(f *testing.F) {
	var b bytes.Buffer
	framer := http2.NewFramer(&b, nil)
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndHeaders: true})
	_ = framer.WriteDataPadded(1, false, prefixOf(0, 5<<20), make([]byte, 3))
	_ = framer.WriteData(3, true, append(prefixOf(1, 50_000), 1, 2, 3))
	_ = framer.WriteRSTStream(1, http2.ErrCodeCancel)
	f.Add(b.Bytes(), uint8(200))
	f.Add(b.Bytes(), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, part uint8) {
		r := watchedRequests(t)
		for rest := bytes.Clone(b); len(rest) > 0; {
			n := min(int(part)+1, len(rest))
			if r.read(rest[:n]) != nil {
				break
			}
			r.wrote(rest[:n])
			rest = rest[n:]
			if n := taken(t, r); n < 0 || n > 60<<20 {
				t.Fatalf("%d bytes are charged", n)
			}
		}
		for stream := range r.calls {
			r.end(stream)
		}
		if taken(t, r) != 0 || r.arriving != 0 {
			t.Errorf("%d bytes are left, and %d requests to come", taken(t, r), r.arriving)
		}
	})
}
