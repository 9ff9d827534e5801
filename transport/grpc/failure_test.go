package grpctransport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc/connectivity"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// pair is a sender and a receiver with a proxy between them.
func pair(t *testing.T, sender, receiver nodeOptions) (a, b *node, p *proxy) {
	t.Helper()
	c := new(testCluster)
	a = c.start(t, 0, sender)
	p = newProxy(t, a.address)
	receiver.addresses = map[int]string{0: p.address()}
	return a, c.start(t, 1, receiver), p
}

// outcome is the result of a receive.
type outcome struct {
	v   rendezvous.Value
	err error
}

// start starts a receive at n. Its outcome is sent to the channel.
func (n *node) begin(ctx context.Context, step int64, key rendezvous.Key) <-chan outcome {
	c := make(chan outcome, 1)
	n.manager.Find(step).RecvAsync(ctx, key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		c <- outcome{v, err}
	})
	return c
}

// gives sends a value from sent to another node, which receives it.
func (n *node) gives(to *node, sent tensor.Allocator) {
	n.t.Helper()
	x := value(n.t, sent, 100)
	defer x.Release()
	key := n.key(to, "x")
	n.send(1, key, x)
	v := to.recv(1, key)
	tensortest.RequireEqual(n.t, x, v.Tensor)
	v.Tensor.Release()
}

// TestSlowPeerIsConnected: a lost SYN is sent again after a second, and an attempt to connect takes
// longer.
func TestSlowPeerIsConnected(t *testing.T) {
	t.Parallel()
	sent := tensortest.NewAllocator(t)
	a, b, p := pair(t, nodeOptions{}, nodeOptions{})
	p.mu.Lock()
	p.slow = tcpFirst + 200*time.Millisecond
	p.mu.Unlock()
	a.gives(b, sent)
}

// TestSlowNameIsLookedUp: Go's resolver waits 5 s for a first name server that does not respond.
func TestSlowNameIsLookedUp(t *testing.T) {
	was := net.DefaultResolver
	defer func() { net.DefaultResolver = was }()
	server := slowDNS(t, tcpFirst+500*time.Millisecond)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server)
	}}
	sent := tensortest.NewAllocator(t)
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	_, port, err := net.SplitHostPort(a.address)
	if err != nil {
		t.Fatal(err)
	}
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: net.JoinHostPort("peer.example.com.", port)}})
	a.gives(b, sent)
}

// TestAddressesOfThisMachine: a name, some of whose addresses may have no listener, and an empty
// host.
func TestAddressesOfThisMachine(t *testing.T) {
	sent := tensortest.NewAllocator(t)
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	_, port, err := net.SplitHostPort(a.address)
	if err != nil {
		t.Fatal(err)
	}
	for i, host := range []string{"", "localhost", "127.0.0.1"} {
		b := c.start(t, i+1, nodeOptions{addresses: map[int]string{0: net.JoinHostPort(host, port)}})
		a.gives(b, sent)
	}
}

// slowDNS responds to each query for an IPv4 address with 127.0.0.1, and to others with no address,
// after a pause.
func slowDNS(t *testing.T, pause time.Duration) string {
	p, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // it listens at once
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	go func() {
		for {
			packet := make([]byte, 512)
			n, from, err := p.ReadFrom(packet)
			if err != nil {
				return
			}
			time.AfterFunc(pause, func() {
				var q dnsmessage.Message
				if q.Unpack(packet[:n]) != nil || len(q.Questions) != 1 {
					return
				}
				answer := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true}, Questions: q.Questions}
				if h := q.Questions[0]; h.Type == dnsmessage.TypeA {
					answer.Answers = []dnsmessage.Resource{{
						Header: dnsmessage.ResourceHeader{Name: h.Name, Class: h.Class, TTL: 60}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
					}}
				}
				if b, err := answer.Pack(); err == nil {
					_, _ = p.WriteTo(b, from)
				}
			})
		}
	}()
	return p.LocalAddr().String()
}

// TestCutLosesNothing: the connection breaks during a transfer, while receives wait, and in between.
// Each receive gets its value, once.
func TestCutLosesNothing(t *testing.T) {
	sent := tensortest.NewAllocator(t)
	a, b, p := pair(t, nodeOptions{}, nodeOptions{})
	key := a.key(b, "x")
	for i := range 10 {
		x := value(t, sent, 1<<20+int64(i))
		p.cutAt(int64(i) * 450_000) // from the first bytes of the answer to its last
		a.send(1, key, x)
		v := b.recv(1, key)
		tensortest.RequireEqual(t, x, v.Tensor)
		v.Tensor.Release()
		x.Release()
	}
	var waits []<-chan outcome
	var keys []rendezvous.Key
	for i := range 200 {
		k := a.key(b, fmt.Sprint("y", i))
		keys = append(keys, k)
		waits = append(waits, b.begin(t.Context(), 1, k))
	}
	waiting(t, a, len(waits))
	p.cut()
	for i, k := range keys {
		x := value(t, sent, int64(i)+300)
		a.send(1, k, x)
		x.Release()
		if i == len(keys)/2 {
			p.cut()
		}
	}
	for i, w := range waits {
		o := <-w
		if o.err != nil {
			t.Fatalf("%s: %v", keys[i], o.err)
		}
		if n := o.v.Tensor.Shape().Elements(); n != int64(i)+300 {
			t.Errorf("%s: %d elements", keys[i], n)
		}
		o.v.Tensor.Release()
	}
	if p.cuts < 5 {
		t.Errorf("only %d cuts", p.cuts)
	}
	b.close()
	a.close()
	waitReleased(t, sent)
}

// TestChunksResumeAtTheByte: a large tensor is sent in chunks, and after a break only the missing
// bytes are sent again.
func TestChunksResumeAtTheByte(t *testing.T) {
	const size = 24 << 20
	for _, dtype := range []tensor.DType{tensor.Uint8, tensor.String} {
		t.Run(dtype.String(), func(t *testing.T) {
			sent := tensortest.NewAllocator(t)
			a, b, p := pair(t, nodeOptions{unaryLimit: 1 << 20}, nodeOptions{})
			key := a.key(b, "x")
			var x *tensor.Tensor
			if dtype == tensor.String {
				x = tensortest.Strings(t, strings.Repeat("a", size/2), "", strings.Repeat("b", size/2)).Retain()
			} else {
				x = tensortest.Tensor(t, tensor.Uint8, size).Retain()
			}
			_ = sent
			a.send(1, key, x)
			p.cutAt(size * 2 / 3)
			v := b.recv(1, key)
			tensortest.RequireEqual(t, x, v.Tensor)
			if w := v.Arrival(); w.Transport != "grpc" || w.Bytes != x.Size() || w.Attempts != 2 || w.Duration <= 0 {
				t.Errorf("the value says that it came as %+v", w)
			}
			v.Tensor.Release()
			x.Release()
			// Only the bytes in windows and sockets at the cut are lost and sent
			// again.
			if down, most := p.down.Load(), int64(size+streamWindow+4<<20); p.cuts != 1 || down > most {
				t.Errorf("%d bytes came for %d, in %d cuts", down, size, p.cuts)
			}
			if l := b.log.Transfers(); len(l) != 1 || l[0].Bytes != x.Size() {
				t.Errorf("the log has %+v", l)
			}
			until(t, func() bool { return a.kept.Stats().Kept == 0 }, "the answer to be let go")
		})
	}
}

// TestManyCutsInChunks: a tensor arrives complete although the connection breaks repeatedly.
func TestManyCutsInChunks(t *testing.T) {
	const size = 16 << 20
	a, b, p := pair(t, nodeOptions{unaryLimit: 1 << 20}, nodeOptions{})
	key := a.key(b, "x")
	x := tensortest.Tensor(t, tensor.Uint8, size)
	a.send(1, key, x)
	p.cutAt(1<<20, 2<<20, 3<<20, 4<<20, 5<<20) // by the proxy itself: a goroutine that looks may come too late
	v := b.recv(1, key)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
	if n := p.cutsMade(); n < 2 {
		t.Errorf("only %d cuts", n)
	}
}

// TestCancelInChunks: a receive that is cancelled between its chunks releases its memory, and the
// next receive gets the value.
func TestCancelInChunks(t *testing.T) {
	const size = 64 << 20
	a, b, p := pair(t, nodeOptions{unaryLimit: 1 << 20}, nodeOptions{})
	key := a.key(b, "x")
	x := tensortest.Tensor(t, tensor.Uint8, size)
	a.send(1, key, x)
	ctx, cancel := context.WithCancel(t.Context())
	held, release := p.holdAt(t, 3<<20) // else all may come before the cancel
	wait := b.begin(ctx, 1, key)
	<-held
	cancel()
	o := <-wait
	release()
	if o.err == nil {
		t.Fatal("all came before the cancel")
	}
	if status.CodeOf(o.err) != status.Cancelled {
		t.Fatal(o.err)
	}
	v := b.recv(1, key)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
}

// TestPeerDown: a receive from an unreachable peer is Unavailable after the timeout. The error has
// the name, the address and the reason.
func TestPeerDown(t *testing.T) {
	c := new(testCluster)
	b := c.start(t, 1, nodeOptions{peerTimeout: 1100 * time.Millisecond})
	gone := transporttest.FreeAddresses(t, 1)[0]
	c.set(task(0), gone)
	key, err := rendezvous.ParseKey(rendezvous.CreateKey("/job:worker/replica:0/task:0/device:CPU:0", 1,
		"/job:worker/replica:0/task:1/device:CPU:0", "x", rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	o := <-b.begin(t.Context(), 1, key)
	if status.CodeOf(o.err) != status.Unavailable {
		t.Fatal(o.err)
	}
	if took := time.Since(start); took < 1100*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
	for _, part := range []string{"/job:worker/replica:0/task:0", gone, "connection refused", "1.1s"} {
		if !strings.Contains(o.err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, o.err)
		}
	}
}

// TestPeerGoesDown: a receive is also Unavailable after the timeout if its peer disappears while it
// waits.
func TestPeerGoesDown(t *testing.T) {
	a, b, p := pair(t, nodeOptions{}, nodeOptions{peerTimeout: 5 * time.Second}) // longer than a first connection takes on a busy machine
	wait := b.begin(t.Context(), 1, a.key(b, "x"))
	waiting(t, a, 1)
	p.setBackend("")
	o := <-wait
	if status.CodeOf(o.err) != status.Unavailable || !strings.Contains(o.err.Error(), p.address()) {
		t.Fatal(o.err)
	}
}

// TestPeerComesLate: a receive waits for a peer that starts later.
func TestPeerComesLate(t *testing.T) {
	a, b, p := pair(t, nodeOptions{}, nodeOptions{})
	p.setBackend("")
	key := a.key(b, "x")
	wait := b.begin(t.Context(), 1, key)
	x := tensortest.Tensor(t, tensor.Float32, 300)
	a.send(1, key, x)
	p.setBackend(a.address)
	o := <-wait
	if o.err != nil {
		t.Fatal(o.err)
	}
	tensortest.RequireEqual(t, x, o.v.Tensor)
	o.v.Tensor.Release()
}

// TestPeerRestarted: receives from a process that has restarted end with Aborted and an error that
// says so.
func TestPeerRestarted(t *testing.T) {
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	p := newProxy(t, a.address)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: p.address()}})
	wait := b.begin(t.Context(), 1, a.key(b, "x"))
	waiting(t, a, 1)
	next := c.start(t, 0, nodeOptions{})
	p.setBackend(next.address)
	o := <-wait
	var e *status.Error
	if !errors.As(o.err, &e) || e.Code() != status.Aborted || !strings.Contains(e.Message(), "restarted") {
		t.Fatal(o.err)
	}
	if _, ok := e.Payload(status.PayloadPossiblyRestarted); !ok {
		t.Errorf("payloads %q", e.Payloads())
	}
	// Later receives are sent to the new process.
	key := next.key(b, "x")
	x := tensortest.Tensor(t, tensor.Float32, 300)
	next.send(1, key, x)
	v := b.recv(1, key)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
}

// TestPeerRestartedUnseen: a request that reaches another process than Hello did is sent again,
// since it had no effect.
func TestPeerRestartedUnseen(t *testing.T) {
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	p := newProxy(t, a.address)
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: p.address()}})
	x := tensortest.Tensor(t, tensor.Float32, 300)
	a.send(1, a.key(b, "x"), x)
	b.recv(1, a.key(b, "x")).Tensor.Release()
	next := c.start(t, 0, nodeOptions{})
	p.setBackend(next.address)
	peer, err := b.conns.peer(a.task)
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return p.connected() || channelOf(t, peer).conns[0].GetState() != connectivity.Ready },
		"the break to be seen by gRPC alone")
	key := next.key(b, "x")
	next.send(1, key, x)
	v := b.recv(1, key)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
}

// TestWorkerUnavailableIsNoBreak: an Unavailable of the peer's worker is its response, not a lost
// connection.
func TestWorkerUnavailableIsNoBreak(t *testing.T) {
	a, b, _ := pair(t, nodeOptions{}, nodeOptions{})
	wait := b.begin(t.Context(), 1, a.key(b, "x"))
	waiting(t, a, 1)
	a.manager.AbortStep(1, status.New(status.Unavailable, "the disk is away"))
	if o := <-wait; status.CodeOf(o.err) != status.Unavailable || status.From(o.err).Message() != "the disk is away" {
		t.Fatal(o.err)
	}
}

// TestWrongServer: a different task at an address is an error of the configuration, which is
// reported at once.
func TestWrongServer(t *testing.T) {
	c := new(testCluster)
	a := c.start(t, 0, nodeOptions{})
	other := c.start(t, 2, nodeOptions{})
	b := c.start(t, 1, nodeOptions{addresses: map[int]string{0: other.address}})
	o := <-b.begin(t.Context(), 1, a.key(b, "x"))
	if status.CodeOf(o.err) != status.FailedPrecondition || !strings.Contains(o.err.Error(), other.task.String()) {
		t.Fatal(o.err)
	}
}
