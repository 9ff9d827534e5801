//go:build rxe && linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bootstrap"
	"github.com/tryst-rdma/tryst/internal/bootstrap/bootstraptest"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/hostiletest"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/internal/wire"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// The hostile peer is the process of the test. It has a queue pair on the device that the victim
// does not use, and calls the victim as any peer does.

// victim is the process that the hostile peer attacks.
type victim struct {
	*process
	peer     int // index of the hostile peer's task
	exchange *bootstrap.Exchanger
	conn     *grpc.ClientConn
	logged   *int // length of the process's log when the case began
}

// newVictim connects to the process at the address of its task.
func newVictim(p *process, peer int) victim {
	p.bed.t.Helper()
	conn, err := grpc.NewClient(p.bed.proxies[p.task].Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.bed.t.Fatal(err)
	}
	p.bed.t.Cleanup(func() { _ = conn.Close() })
	return victim{p, peer, bootstrap.NewExchanger(func(cluster.Task) (grpc.ClientConnInterface, error) { return conn, nil }), conn, new(int)}
}

func (v victim) Task() cluster.Task { return task(v.task) }

func (v victim) Answer(ctx context.Context, own handshake.Offer) (handshake.Offer, error) {
	return v.exchange.Exchange(ctx, v.Task(), own)
}

func (v victim) Channel() hostiletest.Channel {
	v.bed.t.Helper()
	l := v.state().Connections[v.peer]
	// The next attempt replaces the reason, so it comes from the log, which has all reasons.
	v.mu.Lock()
	defer v.mu.Unlock()
	return hostiletest.Channel{Up: l.Verbs, Breaks: l.Breaks, Reason: string(v.log.Bytes()[*v.logged:])}
}

// begins starts a case: Channel then returns only later reasons.
func (v victim) begins() {
	v.mu.Lock()
	defer v.mu.Unlock()
	*v.logged = v.log.Len()
}

func (v victim) Send(step int64, key rendezvous.Key, size int) {
	v.bed.t.Helper()
	v.do(command{Op: opSend, Step: step, Key: key.String(), Size: int64(size)})
}

func (v victim) Recv(step int64, key rendezvous.Key) hostiletest.Receive {
	v.bed.t.Helper()
	return receiving{v.process, v.command(command{Op: opRecv, Step: step, Key: key.String()})}
}

func (v victim) EndStep(step int64) {
	v.bed.t.Helper()
	v.do(command{Op: opEndStep, Step: step})
}

// receiving is a receive of a process, identified by its command.
type receiving struct {
	*process
	id int
}

func (r receiving) UnderWay() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.replies[r.id]) == 0
}

func (r receiving) Wait() error {
	r.bed.t.Helper()
	if e := r.wait(r.id); e.Code != "" {
		return errors.New(e.Text)
	}
	return nil
}

// newHostilePeer returns a hostile peer under the name of a task that has no process.
func (bed *testbed) newHostilePeer(v victim) hostilePeer {
	bed.t.Helper()
	name := bed.devices[v.peer%2]
	device, err := libibverbs.New(libibverbs.Options{}).Open(name)
	if err != nil {
		bed.t.Fatal(err)
	}
	t := bed.t
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	table, err := device.GIDs(1)
	if err != nil {
		bed.t.Fatal(err)
	}
	var address verbs.GIDEntry
	for _, e := range table {
		if e.Type == verbs.GIDTypeRoCEv2 && e.GID.Addr().Is4() {
			address = e
		}
	}
	p := hostiletest.New(t, hostiletest.Options{
		Task: task(v.peer), Victim: v, Device: device, Address: address,
		Memory:  bed.mapped,
		Timeout: 100 * time.Millisecond, WaitLimit: testTimeout,
		// rxe reports no access error, and reports a too long message as an error of the receive.
		Reasons: map[string]string{"QP access error": "work request flushed", "local length error": "local QP operation error"},
	})
	t.Cleanup(p.Close)
	p.Step = 1_000_000 // not a step of an exchange
	return hostilePeer{p}
}

// hostilePeer is a hostile peer whose failures a subtest can take over.
type hostilePeer struct{ *hostiletest.Peer }

// within makes the hostile peer report failures to a subtest, until that ends.
func (p hostilePeer) within(t *testing.T) {
	outer := p.TB
	p.TB = t
	t.Cleanup(func() { p.TB = outer })
}

// mapped returns memory outside of Go's heap.
func (bed *testbed) mapped(n int) []byte {
	bed.t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		bed.t.Fatal(err)
	}
	bed.t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// inUse counts the kernel's objects, without those of offers to tasks that have no process:
// processes create and destroy these repeatedly.
func (bed *testbed) inUse(all ...*process) map[string]discovery.ResourceCounts {
	bed.t.Helper()
	offers := make(map[string]uint64)
	for _, p := range all {
		for _, l := range p.state().Connections {
			if l.Handshake {
				offers[p.device]++
			}
		}
	}
	m := bed.objects()
	for d, n := range offers {
		c := m[d]
		c.QPs -= providers.NICQueuePairs * n
		c.CQs -= n
		c.MRs -= 2 * n // messages to and from it
		m[d] = c
	}
	return m
}

// untilInUse waits until inUse returns want.
func (bed *testbed) untilInUse(want map[string]discovery.ResourceCounts, all ...*process) {
	bed.t.Helper()
	bed.eventually("the kernel has as many objects in use as before", func() (string, bool) {
		now := bed.inUse(all...)
		return describe(want) + " before, now " + describe(now), maps.Equal(want, now)
	})
}

// A peer sends and writes what the protocol forbids: malformed, truncated, oversized, stale and
// unknown messages. The victim leaves the channel and reports the reason. Neither the kernel nor
// the process keeps anything of it, and the channel to another process is not affected.
func TestRxeHostilePeer(t *testing.T) {
	bed := newTestbed(t, 3)
	other, p := bed.launch(0, settings{}), bed.launch(1, settings{PeerTimeout: time.Second})
	for _, p := range []*process{other, p} {
		p.up()
	}
	p.untilVerbs(0, 0)
	was := other.untilVerbs(1, 0)
	bed.exchangeOverVerbs(other, p)
	v := newVictim(p, 2)
	hostile := bed.newHostilePeer(v)
	before := bed.inUse(other, p)
	for _, c := range hostiletest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			bed.within(t)
			hostile.within(t)
			v.begins()
			hostile.Run(c, func() { bed.exchangeOverVerbs(other, p) })
			p.untilFree()
			bed.untilInUse(before, other, p)
		})
	}
	if l := other.state().Connections[1]; l.Generation != was.Generation || l.Breaks != 0 {
		t.Errorf("the channel to the other process is %+v, want %+v as before", l, was)
	}
	bed.end(other, p)
}

// A requester never acknowledges its responses. The responder keeps them, serves other requesters,
// and drops them at the end of the step.
func TestRxeRequesterThatNeverAcknowledges(t *testing.T) {
	bed := newTestbed(t, 3)
	other, p := bed.launch(0, settings{}), bed.launch(1, settings{})
	for _, p := range []*process{other, p} {
		p.up()
	}
	p.untilVerbs(0, 0)
	other.untilVerbs(1, 0)
	v := newVictim(p, 2)
	hostile := bed.newHostilePeer(v)
	before := bed.inUse(other, p)
	hostile.Open()
	const requests = 10
	for i := range requests {
		k := hostile.Key(fmt.Sprint("v", i))
		v.Send(hostile.Step, k, 4096)
		m := hostile.Request(k)
		m.Header = hostile.Header()
		hostile.Send(m.Append(nil))
		hostile.Await(wire.KindEager)
	}
	bed.exchangeOverVerbs(other, p)
	if s := p.state(); s.Kept < requests || s.Connections[2].Breaks != 0 {
		t.Errorf("%d responses are kept, want %d or more; the channel is %+v", s.Kept, requests, s.Connections[2])
	}
	v.EndStep(hostile.Step)
	p.untilFree()
	bed.exchangeOverVerbs(other, p)
	hostile.Bye()
	bed.untilInUse(before, other, p)
	bed.end(other, p)
}

// The bootstrap of a real server gets every kind of wrong request: with a wrong name, with its own
// name, twice, from both sides at once, with a foreign incarnation, and garbage. Nothing remains in
// the kernel, and a channel that is up stays up.
func TestRxeGetRemoteAddress(t *testing.T) {
	bed := newTestbed(t, 3)
	a, b := bed.launch(0, settings{}), bed.launch(1, settings{})
	for _, p := range []*process{a, b} {
		p.up()
	}
	a.untilVerbs(1, 0)
	was := b.untilVerbs(0, 0)
	bed.exchangeOverVerbs(a, b)
	v := newVictim(b, 2)
	hostile := bed.newHostilePeer(v)
	before := bed.inUse(a, b)
	stays := func(t *testing.T) {
		t.Helper()
		bed.exchangeOverVerbs(a, b)
		for _, l := range []connection{a.state().Connections[1], b.state().Connections[0]} {
			if l.Generation != was.Generation || l.Breaks != 0 {
				t.Errorf("the channel is %+v, want %+v as before", l, was)
			}
		}
		bed.untilInUse(before, a, b)
	}
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			bed.within(t)
			hostile.within(t)
			f(t)
			stays(t)
		})
	}
	call := func(m *tfpb.GetRemoteAddressRequest) (*tfpb.GetRemoteAddressResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		return tensorflowgrpc.NewVerbsServiceClient(v.conn).GetRemoteAddress(ctx, m)
	}
	// valid is the request of a foreign process that claims to be task 0.
	own := hostile.Prepare(1)
	own.Task = task(0)
	valid := requestOf(t, task(1), own)
	hostile.Leave()
	response, err := call(valid)
	if err != nil {
		t.Fatal(err)
	}
	incarnation := response.GetIncarnation()

	run("from both sides at once", func(t *testing.T) {
		calls := make(chan handshake.Offer)
		replies := make(chan handshake.Offer)
		bed.serveBootstrap(2, func(ctx context.Context, from handshake.Offer) (handshake.Offer, error) {
			if from.Task != task(1) {
				return handshake.Offer{}, status.New(status.Unavailable, "only task 1 may call")
			}
			select {
			case calls <- from:
				return <-replies, nil
			case <-ctx.Done():
				return handshake.Offer{}, ctx.Err()
			}
		})
		for range 2 {
			from := <-calls // b's call is under way, and ours begins
			own := hostile.Prepare(from.Generation)
			if response := hostile.Exchange(own); !response.Equal(from) {
				t.Errorf("b responds with %v, want the offer of its call, %v", response, from)
			}
			hostile.ConnectTo(own, from)
			replies <- own
			hostile.ExchangeHello()
			hostile.CheckChannel()
			v.EndStep(hostile.Step)
			hostile.Step++
			hostile.Bye()
		}
		b.untilFree()
	})
	// Wrong names, the server's name and incarnation, and garbage in every field.
	for _, c := range bootstraptest.All(incarnation) {
		run(c.Name, func(t *testing.T) {
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					m := proto.CloneOf(valid)
					c.Spoil(m)
					_, err := call(m)
					if s := grpcstatus.Convert(err); s.Code() != c.Code || !strings.Contains(s.Message(), c.Words) {
						t.Errorf("got %v, want %v with %q", err, c.Code, c.Words)
					}
				})
			}
			calls.Wait()
		})
	}
	run("garbage in place of a message", func(t *testing.T) {
		err := v.conn.Invoke(t.Context(), tensorflowgrpc.VerbsService_GetRemoteAddress_FullMethodName, []byte("\xff\xff\xff\xff garbage"), new([]byte), grpc.ForceCodec(bytesCodec{}))
		if s := grpcstatus.Code(err); s != codes.Internal {
			t.Errorf("got %v, want %v", err, codes.Internal)
		}
	})
	run("a foreign incarnation", func(t *testing.T) {
		for generation := range uint64(5) {
			m := proto.CloneOf(valid)
			m.Generation = was.Generation + generation
			response, err := call(m)
			if err != nil || len(response.GetRails()) != 0 || response.GetIncarnation() != incarnation {
				t.Errorf("got %v, %v; want an introduction", response, err)
			}
		}
		<-time.After(2 * handshake.CheckEvery) // b calls the address of task 0, and finds the known incarnation
	})
	run("twice", func(t *testing.T) {
		hostile.Open()
		own, first := hostile.Offers()
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() {
				if again, err := v.Answer(t.Context(), own); err != nil || !again.Equal(first) {
					t.Errorf("the response to the same offer is %v, %v; want %v again", again, err, first)
				}
			})
		}
		calls.Wait()
		hostile.CheckChannel()
		// Another offer of the same generation is refused.
		own.Rails[0].QPN++
		if _, err := v.Answer(t.Context(), own); status.CodeOf(err) != status.Aborted {
			t.Errorf("another offer of the generation: got %v, want Aborted", err)
		}
		hostile.CheckChannel()
		v.EndStep(hostile.Step)
		hostile.Step++
		hostile.Bye()
		b.untilFree()
	})
	hostile.Bye()
	bed.end(a, b)
}

// requestOf returns the request that carries an offer to a peer.
func requestOf(t *testing.T, peer cluster.Task, own handshake.Offer) *tfpb.GetRemoteAddressRequest {
	t.Helper()
	var r recorder
	_, _ = bootstrap.NewExchanger(func(cluster.Task) (grpc.ClientConnInterface, error) { return &r, nil }).Exchange(t.Context(), peer, own)
	return r.request
}

// recorder is a connection that keeps the request of a call, which fails.
type recorder struct {
	grpc.ClientConnInterface
	request *tfpb.GetRemoteAddressRequest
}

func (r *recorder) Invoke(_ context.Context, _ string, args, _ any, _ ...grpc.CallOption) error {
	r.request, _ = args.(*tfpb.GetRemoteAddressRequest)
	return grpcstatus.Error(codes.Unavailable, "not connected")
}

// bytesCodec sends and receives bytes unchanged.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) {
	b, _ := v.([]byte)
	return b, nil
}

func (bytesCodec) Unmarshal(b []byte, v any) error {
	if to, ok := v.(*[]byte); ok {
		*to = b
	}
	return nil
}

// serveBootstrap serves only the bootstrap, at the address of a task, until the test ends.
func (bed *testbed) serveBootstrap(index int, answer func(context.Context, handshake.Offer) (handshake.Offer, error)) {
	bed.t.Helper()
	s := grpc.NewServer()
	bootstrap.Register(s, bootstrap.ServiceOptions{
		Self: task(index), Host: func(cluster.Task) (string, bool) { return "127.0.0.1", true },
		Answer: func(ctx context.Context, _ string, from handshake.Offer) (handshake.Offer, error) {
			return answer(ctx, from)
		},
	})
	l, err := new(net.ListenConfig).Listen(bed.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		bed.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // returns after Stop
	bed.proxies[index].SetTarget(l.Addr().String())
	bed.t.Cleanup(func() {
		bed.proxies[index].SetTarget("")
		s.Stop()
		serving.Wait()
	})
}
