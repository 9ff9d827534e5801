package grpctransport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// Limits of the memory that connections use at a server.

// stalled is a client that sends requests and does not read.
type stalled struct {
	t       *testing.T
	conn    *grpc.ClientConn
	streams []grpc.ClientStream
}

const stalledIncarnation = 77

var stalledRequester = transport.Process{Name: task(7).String(), Incarnation: stalledIncarnation}

func stall(t *testing.T, address string) *stalled {
	t.Helper()
	const window = 64<<10 - 1
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &stalled{t: t, conn: conn}
}

func (s *stalled) call(desc *grpc.StreamDesc, method string, req any) {
	s.t.Helper()
	stream, err := s.conn.NewStream(s.t.Context(), desc, method)
	if err == nil {
		err = stream.SendMsg(req)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.streams = append(s.streams, stream)
}

func (s *stalled) recvTensor(key string, id uint64) {
	s.t.Helper()
	o, err := anypb.New(&trystpb.RecvOptions{Requester: task(7).String(), RequesterIncarnation: stalledIncarnation, Id: id, Attempt: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	s.call(&grpc.StreamDesc{}, "/tensorflow.WorkerService/RecvTensor",
		&tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: key, TransportOptions: o})
}

func (s *stalled) fetch(id uint64) {
	s.t.Helper()
	s.call(&trystgrpc.Chunks_ServiceDesc.Streams[0], trystgrpc.Chunks_Fetch_FullMethodName,
		&trystpb.FetchRequest{Requester: task(7).String(), RequesterIncarnation: stalledIncarnation, Id: id, Attempt: 1})
}

// read reads all responses in parallel and counts the complete ones.
func (s *stalled) read(answer func() any) (whole int, errs []error) {
	ended := make(chan error)
	for _, stream := range s.streams {
		go func() {
			err := stream.RecvMsg(answer())
			for err == nil {
				err = stream.RecvMsg(answer())
			}
			ended <- err
		}()
	}
	for range s.streams {
		if err := <-ended; err == io.EOF { //nolint:errorlint // gRPC's own
			whole++
		} else {
			errs = append(errs, err)
		}
	}
	return whole, errs
}

// atWorker counts the responses of the worker, and records their connection.
type atWorker struct {
	transport.Worker
	answered atomic.Int32
	quota    atomic.Pointer[connQuota]
}

func (w *atWorker) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	r, err := w.Worker.RecvTensor(ctx, req)
	w.quota.Store(quotaOf(ctx))
	w.answered.Add(1)
	return r, err
}

// full reports whether the quota of the connection has no space for a response of n bytes.
func (w *atWorker) full(n, copies int64) bool {
	g, ok := w.quota.Load().tryCharge(n, copies)
	g.end()
	return !ok
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestResponsesUnderWayAreBounded: for a client that acknowledges receives without reading the
// responses the server holds no more than PerPeer. A client that reads gets all responses.
func TestResponsesUnderWayAreBounded(t *testing.T) {
	const n, size = 20, 256 << 10
	for _, finish := range []bool{false, true} {
		for _, chunks := range []bool{false, true} {
			t.Run(fmt.Sprintf("finish=%v,chunks=%v", finish, chunks), func(t *testing.T) {
				w := new(atWorker)
				c := new(testCluster)
				a := c.start(t, 0, nodeOptions{tuning: ServerTuning{PerPeer: 4 * size}, wrap: func(inner transport.Worker) transport.Worker {
					w.Worker = inner
					return w
				}})
				sent := tensortest.NewAllocator(t)
				s := stall(t, a.address)
				first := a.key(&node{t: t, task: task(7)}, "first")
				a.send(1, first, float32s(t, tensor.Heap{}, tensor.Vector(0)))
				s.recvTensor(first.String(), 1)
				until(t, func() bool { return w.answered.Load() == 1 }, "the first answer")
				for id := uint64(2); id < n+2; id++ {
					x := value(t, sent, size/4)
					k := a.key(&node{t: t, task: task(7)}, fmt.Sprint("x", id))
					a.send(1, k, x)
					x.Release()
					if !chunks {
						s.recvTensor(k.String(), id)
						continue
					}
					ans := make(chan transport.Response, 1)
					a.kept.Request(replyTo(func(r transport.Response) { ans <- r }),
						transport.Request{Requester: stalledRequester, ID: id, Attempt: 1, Step: 1, Key: k})
					(<-ans).Value.Tensor.Release()
					s.fetch(id)
				}
				until(t, func() bool { return w.full(size, 0) }, "answers up to the limit")
				want := n + 1
				if finish {
					until(t, func() bool { return a.kept.Stats().Kept == n+1 }, "kept answers")
					ids := make([]uint64, n+1)
					for i := range ids {
						ids[i] = uint64(i) + 1
					}
					until(t, func() bool { // calls that are on their way take the answer a moment later
						a.kept.Ack(stalledRequester, ids)
						return sent.InUse() <= 4*size
					}, "no more than the limit")
					want = 5 // the first, and four of the others
				}
				answer := func() any { return new(tfpb.RecvTensorResponse) }
				if chunks {
					answer = func() any { return new(trystpb.Chunk) }
				}
				whole, errs := s.read(answer)
				if whole != want {
					t.Errorf("%d answers came whole, want %d; %v", whole, want, errs)
				}
				for _, err := range errs {
					if got := status.CodeOf(fromGRPC(err, nil)); got != status.Aborted {
						t.Error(err)
					}
				}
				a.kept.EndStep(1)
				waitReleased(t, sent)
			})
		}
	}
}

// TestCopiesOfAResponseAreBounded: strings are encoded for each call, also when many calls request
// or fetch the same cached response.
func TestCopiesOfAResponseAreBounded(t *testing.T) {
	const size, calls = 8 << 20, 40
	for _, fetch := range []bool{false, true} {
		t.Run(fmt.Sprintf("fetch=%v", fetch), func(t *testing.T) {
			w := new(atWorker)
			c := new(testCluster)
			a := c.start(t, 0, nodeOptions{wrap: func(inner transport.Worker) transport.Worker {
				w.Worker = inner
				return w
			}})
			x, err := tensor.FromStrings(tensor.Vector(1), []string{strings.Repeat("x", size)})
			if err != nil {
				t.Fatal(err)
			}
			k := a.key(&node{t: t, task: task(7)}, "x")
			a.send(1, k, x)
			x.Release()
			s := stall(t, a.address)
			s.recvTensor(k.String(), 1)
			until(t, func() bool { return w.answered.Load() == 1 }, "the first answer")
			before := heap()
			for range calls {
				if fetch {
					s.fetch(1)
				} else {
					s.recvTensor(k.String(), 1)
				}
			}
			until(t, func() bool { return w.full(size, size) }, "copies up to the limit")
			if grown := heap() - before; grown > maxCopies+maxCopies/2 {
				t.Errorf("%d calls for one answer of %d MiB: %d MiB more", calls, size>>20, grown>>20)
			}
		})
	}
}

// TestServerSettings: the HTTP/2 settings that a server sends to each client.
func TestServerSettings(t *testing.T) {
	a := new(testCluster).start(t, 0, nodeOptions{tuning: ServerTuning{MaxWaiting: 10}})
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 9)
	if _, err := io.ReadFull(conn, head); err != nil || head[3] != 4 {
		t.Fatalf("a frame of type %d, %v; want SETTINGS", head[3], err)
	}
	body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	const maxConcurrentStreams, initialWindowSize = 3, 4 // RFC 9113, section 6.5.2
	settings := map[uint16]uint32{initialWindowSize: 65535}
	for s := range slices.Chunk(body, 6) {
		settings[binary.BigEndian.Uint16(s)] = binary.BigEndian.Uint32(s[2:])
	}
	if got := settings[maxConcurrentStreams]; got != 10+extraStreams {
		t.Errorf("%d streams, want %d: those that may wait, and some more", got, 10+extraStreams)
	}
	if got := settings[initialWindowSize]; got != requestWindow {
		t.Errorf("a window of %d for a request, want %d", got, requestWindow)
	}
}

// connectFrom makes a connection from an address.
func connectFrom(t *testing.T, q *quotas, address string) *connQuota {
	t.Helper()
	c, err := q.connect(&net.TCPAddr{IP: net.ParseIP(address), Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConnectionsOfAnAddressAreBounded: at the limit an address may connect again when one of its
// connections has ended.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	q := newQuotas(ServerTuning{})
	var last *connQuota
	for range maxConnsPerAddress {
		last = connectFrom(t, q, "10.0.0.1")
	}
	_, err := q.connect(&net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 2})
	if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "10.0.0.1 has 1024 connections") {
		t.Errorf("one more: %v", err)
	}
	connectFrom(t, q, "10.0.0.2").close()
	last.close()
	last.close()
	connectFrom(t, q, "10.0.0.1")
	if _, err := q.connect(&net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 2}); err == nil {
		t.Error("a connection that is closed twice counts twice")
	}
	if len(q.addresses) != 1 {
		t.Errorf("%d addresses are known, of which one has connections", len(q.addresses))
	}
}

// TestLimitOfConnectionsIsLoggedOnce: not at each connection that ends and is followed by others.
func TestLimitOfConnectionsIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	q := newQuotas(ServerTuning{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	var all []*connQuota
	refused := func() {
		t.Helper()
		for len(all) < maxConnsPerAddress {
			all = append(all, connectFrom(t, q, "10.0.0.1"))
		}
		if _, err := q.connect(&net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 2}); err == nil {
			t.Fatal("one more is accepted")
		}
	}
	end := func(n int) {
		for _, c := range all[len(all)-n:] {
			c.close()
		}
		all = all[:len(all)-n]
	}
	for range 3 {
		refused()
		end(1)
	}
	if n := strings.Count(text.String(), "WARN"); n != 1 {
		t.Errorf("%d lines while the limit is reached again and again:\n%s", n, text.String())
	}
	end(maxConnsPerAddress - refusingUntil)
	refused()
	if n := strings.Count(text.String(), "WARN"); n != 2 {
		t.Errorf("%d lines after most have ended:\n%s", n, text.String())
	}
}

// TestRefusedConnectionIsClosed: a connection above the limit is closed.
func TestRefusedConnectionIsClosed(t *testing.T) {
	q := newQuotas(ServerTuning{})
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	for range maxConnsPerAddress {
		if _, err := q.connect(server.RemoteAddr()); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := (trackedCredentials{insecure.NewCredentials(), q, nil, nil}).ServerHandshake(server); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("the handshake of one more: %v", err)
	}
}

// TestAddressesOfOneHost: all addresses of an IPv6 /64 network count as one host.
func TestAddressesOfOneHost(t *testing.T) {
	q := newQuotas(ServerTuning{})
	addr := func(ip string) *addressQuota {
		t.Helper()
		c, err := q.connect(&net.TCPAddr{IP: net.ParseIP(ip), Port: 5})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		return c.addr
	}
	first := addr("2001:db8:1:2:3:4:5:6")
	if same := addr("2001:db8:1:2:ffff::1"); same != first {
		t.Errorf("another address of the network is charged to %s, want %s", same.host, first.host)
	}
	if other := addr("2001:db8:1:3::1"); other == first {
		t.Errorf("an address of another network is charged to %s", other.host)
	}
}

// noHandshake are credentials whose handshake always fails.
type noHandshake struct {
	credentials.TransportCredentials
}

func (noHandshake) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, nil, errors.New("no certificate")
}

// TestFailedHandshakeIsNotCounted: a failed handshake does not count as a connection.
func TestFailedHandshakeIsNotCounted(t *testing.T) {
	q := newQuotas(ServerTuning{})
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go func() { _, _ = io.WriteString(client, http2.ClientPreface) }() // ends with the pipe
	if _, _, err := (trackedCredentials{noHandshake{insecure.NewCredentials()}, q, nil, nil}).ServerHandshake(server); err == nil {
		t.Error("it succeeds")
	}
	if len(q.addresses) != 0 {
		t.Errorf("%d addresses have connections", len(q.addresses))
	}
}

// TestChargesOfAnAddressAndOfAll: an address may have half of the total. At the end of a connection
// its charges are returned, including those of responses that gRPC has dropped.
func TestChargesOfAnAddressAndOfAll(t *testing.T) {
	q := newQuotas(ServerTuning{PerPeer: 40, Total: 100})
	a, b, c, d := connectFrom(t, q, "10.0.0.1"), connectFrom(t, q, "10.0.0.1"), connectFrom(t, q, "10.0.0.2"), connectFrom(t, q, "10.0.0.3")
	try := func(c *connQuota, n int64, want bool) charge {
		t.Helper()
		g, ok := c.tryCharge(n, 0)
		if ok != want {
			t.Errorf("%d bytes: %v, want %v", n, ok, want)
		}
		return g
	}
	first := try(a, 40, true)
	try(a, 1, false)
	try(b, 11, false)
	try(b, 10, true)
	try(c, 30, true)
	try(d, 21, false)
	last := try(d, 20, true)
	try(c, 1, false)
	last.end()
	try(c, 10, true)
	waiting := make(chan error)
	go func() {
		_, err := b.charge(t.Context(), 15, 0)
		waiting <- err
	}()
	a.close()
	first.end() // later
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.charge(ctx, 40, 0); status.CodeOf(err) != status.Cancelled {
		t.Errorf("a charge whose call has ended: %v", err)
	}
	for _, c := range []*connQuota{b, c, d} {
		c.close()
	}
	a = connectFrom(t, q, "10.0.0.1")
	try(a, 1000, true).end() // alone it may be as large as it is
	a.close()
	if len(q.addresses) != 0 || !q.bytes.TryAcquire(100) {
		t.Error("something is charged when all connections have ended")
	}
}

// TestConnectionsInAllAreBounded: beyond the total, and for a part of it all addresses but those with few
// connections, are refused. Each refusal is counted, and places come back.
func TestConnectionsInAllAreBounded(t *testing.T) {
	refused := 0
	q := newQuotas(ServerTuning{Connections: 64, Refused: func() { refused++ }})
	try := func(host string) (*connQuota, error) {
		return q.connect(&net.TCPAddr{IP: net.ParseIP(host), Port: 2})
	}
	fill := func(host string) (n int) {
		for {
			if _, err := try(host); err != nil {
				if status.CodeOf(err) != status.ResourceExhausted {
					t.Fatal(err)
				}
				return n
			}
			n++
		}
	}
	if n := fill("10.0.0.1"); n != 32 {
		t.Errorf("one address has %d of 64 connections", n)
	}
	if n := fill("10.0.0.2"); n != 16 {
		t.Errorf("another one has %d, all but the part of newcomers are 48", n)
	}
	var last *connQuota
	for i := range 4 {
		for range newcomerConns {
			c, err := try(fmt.Sprintf("10.0.1.%d", i))
			if err != nil {
				t.Fatalf("an address with few connections: %v", err)
			}
			last = c
		}
	}
	if _, err := try("10.0.2.1"); err == nil || !strings.Contains(err.Error(), "64 connections, the limit for all addresses") {
		t.Errorf("beyond the total: %v", err)
	}
	last.close()
	if _, err := try("10.0.2.1"); err != nil {
		t.Errorf("a place that was given back: %v", err)
	}
	if refused != 3 {
		t.Errorf("%d refusals were counted, want 3", refused)
	}
}

// TestCopiesOfAllConnectionsAreBounded: of one connection, of one address, and of all. A connection that ends gives
// back what it has.
func TestCopiesOfAllConnectionsAreBounded(t *testing.T) {
	const total = 64 << 20
	q := newQuotas(ServerTuning{Copies: total})
	conns := map[string]*connQuota{}
	take := func(host string, i int) (all int64) {
		name := fmt.Sprint(host, i)
		if conns[name] == nil {
			conns[name] = connectFrom(t, q, host)
		}
		for {
			g, ok := conns[name].tryCharge(1<<20, 1<<20)
			if !ok {
				return all
			}
			all += g.copies
		}
	}
	for _, want := range []int64{total / 4, total / 4, 0} {
		if got := take("10.0.0.1", len(conns)); got != want {
			t.Errorf("connection %d of an address has %d bytes of copies, want %d", len(conns), got, want)
		}
	}
	if got := take("10.0.0.2", 0) + take("10.0.0.3", 0); got != total/2 {
		t.Errorf("the other addresses have %d bytes, want %d", got, total/2)
	}
	if got := take("10.0.0.4", 0); got != 0 {
		t.Errorf("%d bytes beyond the total", got)
	}
	conns["10.0.0.20"].close()
	if got := take("10.0.0.4", 0); got != total/4 {
		t.Errorf("after a connection has ended another one has %d bytes", got)
	}
}

// TestAResponseOfManyCallsIsMeasuredOnce: what a call costs before it waits for its client does not grow with a
// manifest. The second size is that of the message before it was changed, so nothing has looked at it.
func TestAResponseOfManyCallsIsMeasuredOnce(t *testing.T) {
	m := &trystpb.DescribeResponse{Tensors: []*trystpb.TensorInfo{{Name: "a"}, {Name: "b"}}}
	first := sizeOf(m)
	if want := proto.Size(m); first != want {
		t.Errorf("%d bytes, want %d", first, want)
	}
	m.Tensors = m.Tensors[:1]
	if again := sizeOf(m); again != first {
		t.Errorf("%d bytes the second time, and %d the first time", again, first)
	}
}
