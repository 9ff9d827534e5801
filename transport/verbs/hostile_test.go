package verbstransport_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/hostiletest"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// newHostilePeer makes a hostile peer with the name of the i-th task, without a channel.
func newHostilePeer(s *stage, i int, victim *actor, said *logBuffer) *hostiletest.Peer {
	s.Helper()
	device, err := s.c.fabric.Provider(s.tasks[i].String()).Open("mem0")
	if err != nil {
		s.Fatal(err)
	}
	gid, err := address(device)
	if err != nil {
		s.Fatal(err)
	}
	p := hostiletest.New(s.T, hostiletest.Options{
		Task: s.tasks[i], Victim: victimOf{victim, s.tasks[i], said}, Device: device, Address: gid,
		Timeout: 20 * time.Millisecond, WaitLimit: waitLimit,
	})
	s.Cleanup(func() {
		p.Close()
		if err := device.Close(); err != nil {
			s.Error(err)
		}
	})
	return p
}

// victimOf is a process under attack, as the hostile peer sees it.
type victimOf struct {
	*actor
	peer cluster.Task
	said *logBuffer
}

// logBuffer collects the log of a process.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newVictim starts the first task of a new stage and collects its log.
func newVictim(t *testing.T, o transporttest.NodeOptions) (*stage, *actor, *logBuffer) {
	said := &logBuffer{}
	s := newStage(t, clusterOptions{tune: func(task cluster.Task, o *verbstransport.Options) {
		if task.Index == 0 {
			o.Logger = slog.New(slog.NewTextHandler(said, nil))
		}
	}})
	return s, s.startWith(0, o), said
}

func (v victimOf) Task() cluster.Task { return v.task }

func (v victimOf) Answer(ctx context.Context, own handshake.Offer) (handshake.Offer, error) {
	return v.transport.Answer(ctx, "", own)
}

func (v victimOf) Channel() hostiletest.Channel {
	k := v.connectionTo(v.peer)
	return hostiletest.Channel{Up: k.Verbs, Breaks: k.Stats.Breaks, Reason: v.said.String()}
}

func (v victimOf) Send(step int64, key rendezvous.Key, size int) {
	v.s.Helper()
	v.sendsBlob(step, key, 1, size)
}

func (v victimOf) Recv(step int64, key rendezvous.Key) hostiletest.Receive {
	return receiveOf{v.recv(step, key)}
}

func (v victimOf) EndStep(step int64) {
	v.manager.Cleanup(step)
	v.kept.EndStep(step)
}

type receiveOf struct{ r *receiving }

func (r receiveOf) UnderWay() bool { return r.r.underWay() }

func (r receiveOf) Wait() error {
	r.r.s.Helper()
	o := r.r.wait()
	if o.err == nil {
		o.value.Tensor.Release()
	}
	return o.err
}

// TestHostilePeer: a peer with its own queue pair sends and writes what the protocol
// forbids. Its channel is left with an error that names the violation, nothing panics,
// and the channel to another peer is not affected.
func TestHostilePeer(t *testing.T) {
	for _, c := range hostiletest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			s, victim, said := newVictim(t, transporttest.NodeOptions{PeerTimeout: 50 * time.Millisecond})
			other := s.start(2)
			other.meets(victim)
			newHostilePeer(s, 1, victim, said).Run(c, func() {
				k := other.key(victim, "v")
				other.sendsBlob(1000, k, 1, 100*kib)
				victim.recv(1000, k).isBlob(1, 100*kib)
				back := victim.key(other, "v")
				victim.sendsBlob(1000, back, 2, 100*kib)
				other.recv(1000, back).isBlob(2, 100*kib)
				if l := victim.connection(other); l.Stats.Breaks != 0 || l.Stats.Received != 1 {
					t.Errorf("the channel to another peer: %+v", l)
				}
			})
		})
	}
}

// TestReceiverThatNeverAcknowledges: a peer never acknowledges its responses. They are
// kept up to a limit. Beyond it the peer's requests wait without taking a value, those of
// others do not, and the end of the step releases everything.
func TestReceiverThatNeverAcknowledges(t *testing.T) {
	const limit, size = 100 * kib, 4 * kib
	s, victim, said := newVictim(t, transporttest.NodeOptions{Cache: delivery.CacheOptions{KeptPerRequester: limit}})
	other := s.start(2)
	other.meets(victim)
	p := newHostilePeer(s, 1, victim, said)
	p.Open()
	const requests = 2 * limit / size
	for i := range requests {
		k := p.Key(fmt.Sprint("v", i))
		victim.sendsBlob(1, k, uint64(i), size)
		m := p.Request(k)
		m.Header = p.Header()
		p.Send(m.Append(nil))
		if i < limit/size/2 {
			p.Await(wire.KindEager)
		}
	}
	s.until("all requests have arrived", func() bool { k := victim.kept.Stats(); return k.Kept+k.Waiting == requests })
	if k := victim.kept.Stats(); k.Bytes > limit || k.Waiting < requests/2-2 {
		t.Errorf("%+v: more is kept than %d bytes", k, limit)
	}
	k := victim.key(other, "v")
	victim.sendsBlob(2, k, 1, 100*kib)
	other.recv(2, k).isBlob(1, 100*kib)
	// One ACK makes space for one more response.
	var f wire.Ack
	f.Header, f.IDs = p.Header(), wire.IDs(nil).Append(1)
	waited := victim.kept.Stats().Waiting
	p.Send(f.Append(nil))
	s.until("the next one is answered", func() bool { return victim.kept.Stats().Waiting < waited })
	if l := victim.connectionTo(s.tasks[1]); l.Stats.Breaks != 0 {
		t.Errorf("%+v: the channel was left", l)
	}
	victim.manager.Cleanup(1)
	victim.kept.EndStep(1)
	s.until("the end of the step gives all back", func() bool {
		k := victim.kept.Stats()
		return k.Kept+k.Waiting == 0 && k.Bytes == 0 && victim.transport.Memory().Sending.InUse == 0
	})
}

// TestChannelIsAHello: a peer that gRPC does not reach is known as soon as its first
// channel is up.
func TestChannelIsAHello(t *testing.T) {
	s, victim, said := newVictim(t, transporttest.NodeOptions{})
	p := newHostilePeer(s, 1, victim, said)
	r := p.VictimRecv("v")
	p.Open()
	p.Await(wire.KindRequest)
	victim.manager.Cleanup(p.Step)
	_ = r.Wait()
}

// TestOffersThatDisturbNobody: the handshake of a live channel ignores or refuses bad
// offers, repeated and concurrent: our own name, another incarnation, invalid offers, an
// earlier generation, a second offer of the present one.
func TestOffersThatDisturbNobody(t *testing.T) {
	s := newStage(t, clusterOptions{})
	from, to := s.pair()
	gid, err := address(from.device)
	if err != nil {
		t.Fatal(err)
	}
	generation := to.connection(from).Generation
	offer := func(change func(*handshake.Offer)) handshake.Offer {
		o := handshake.Offer{
			Task: from.task, Incarnation: from.incarnation, Version: handshake.Version, Generation: generation,
			Link: verbs.LinkEthernet, GIDType: gid.Type, Window: 64, ReceiveSize: hostiletest.MessageSize, EagerLimit: 8 * kib, MaxMessage: gib,
			Rails: []handshake.Rail{{Endpoint: verbs.Endpoint{QPN: 77, PSN: 7, GID: gid.GID}, MTU: verbs.MTU4096}},
		}
		change(&o)
		return o
	}
	var requests sync.WaitGroup
	for name, c := range map[string]struct {
		offer handshake.Offer
		code  status.Code // OK when the offer is answered
		words string
	}{
		"our own name":        {offer(func(o *handshake.Offer) { o.Task = to.task }), status.InvalidArgument, "its own peer"},
		"our own incarnation": {offer(func(o *handshake.Offer) { o.Incarnation = to.incarnation }), status.FailedPrecondition, "incarnation of this process"},
		"another incarnation": {offer(func(o *handshake.Offer) { o.Incarnation, o.Generation = 4711, generation+7 }), status.OK, "introduction"},
		"a second offer":      {offer(func(*handshake.Offer) {}), status.Aborted, "another offer of generation"},
		"no version":          {offer(func(o *handshake.Offer) { o.Version = 0 }), status.FailedPrecondition, "no protocol version"},
		"an older version":    {offer(func(o *handshake.Offer) { o.Version = handshake.MinVersion - 1 }), status.FailedPrecondition, "run the same release of Tryst"},
		"no queue pair":       {offer(func(o *handshake.Offer) { o.Rails[0].QPN = 0 }), status.FailedPrecondition, "no queue pair has the number"},
		"no generation":       {offer(func(o *handshake.Offer) { o.Generation = 0 }), status.FailedPrecondition, "its generation is 0"},
		"the last generation": {offer(func(o *handshake.Offer) { o.Generation = 1<<64 - 1 }), status.FailedPrecondition, "its generation is 1844"},
		"InfiniBand": {offer(func(o *handshake.Offer) {
			o.Link, o.GIDType, o.Rails[0].LID = verbs.LinkInfiniBand, verbs.GIDTypeIB, 3
		}), status.FailedPrecondition, "cannot talk by verbs"},
	} {
		for range 20 {
			requests.Go(func() {
				answer, err := to.transport.Answer(t.Context(), "", c.offer)
				got := answer.String()
				if err != nil {
					got = err.Error()
				}
				if status.CodeOf(err) != c.code || !strings.Contains(got, c.words) {
					t.Errorf("%s: got %v, want %v %q", name, got, c.code, c.words)
				}
			})
		}
	}
	requests.Wait()
	k := from.key(to, "v")
	from.sendsBlob(1, k, 1, 100*kib)
	to.recv(1, k).isBlob(1, 100*kib)
	if l := to.connection(from); l.Generation != generation || l.Stats.Breaks != 0 || l.Stats.Received != 1 {
		t.Errorf("%+v: want generation %d still", l, generation)
	}
}
