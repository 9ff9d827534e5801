package verbstransport_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/hostiletest"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Content outside registered memory is copied into the sending pool, which all peers
// share.

const sendLimit = 8 * mib

// crowdedSender is a process with a small sending pool, another peer, and a hostile peer
// with a channel to it. There is no fallback.
func crowdedSender(t *testing.T) (s *stage, sender, other *actor, p *hostiletest.Peer) {
	said := &logBuffer{}
	s = newStage(t, clusterOptions{require: true, tune: func(task cluster.Task, o *verbstransport.Options) {
		if task.Index == 0 {
			o.Memory.Arena, o.Memory.SendLimit, o.Memory.RecvLimit = 4*mib, sendLimit, 64*mib
		}
	}})
	sender = s.startWith(0, transporttest.NodeOptions{})
	other = s.start(2)
	other.meets(sender)
	p = newHostilePeer(s, 1, sender, said)
	p.Open()
	return s, sender, other, p
}

// requests makes the hostile peer request n values of size bytes, until it has received
// their META. header returns almost no credits.
func requests(s *stage, sender *actor, p *hostiletest.Peer, header wire.Header, n, size int) (all []wire.Request) {
	s.Helper()
	for i := range n {
		k := p.Key(fmt.Sprint("v", i))
		sender.send(1, k, s.blob(s.source, uint64(i), size))
		m := p.Request(k)
		m.Header = header
		p.Send(m.Append(nil))
		p.Await(wire.KindMeta)
		all = append(all, m)
	}
	return all
}

// TestPeerThatSendsNoDestinationHoldsNoSendingMemory: a copy is made only when the
// peer has sent a destination.
func TestPeerThatSendsNoDestinationHoldsNoSendingMemory(t *testing.T) {
	s, sender, other, p := crowdedSender(t)
	requests(s, sender, p, p.Header(), 2*sendLimit/mib, mib)
	if m := sender.transport.Memory().Sending; m.InUse != 0 {
		t.Errorf("%d bytes of the sending pool are in use", m.InUse)
	}
	k := sender.key(other, "v")
	sender.send(1, k, s.blob(s.source, 2, mib))
	other.recv(1, k).isBlob(2, mib)
	if n := sender.transport.Memory().Copies; n != 1 {
		t.Errorf("%d copies, want that of another peer alone", n)
	}
}

// TestPeerThatTakesNothingLeavesOthersSendingMemory: the peer sends destinations and
// returns no credits, so that almost nothing can be written.
func TestPeerThatTakesNothingLeavesOthersSendingMemory(t *testing.T) {
	const n, size = hostiletest.Window - 2, 256 * kib // META messages use nearly all credits
	s, sender, other, p := crowdedSender(t)
	header, into := p.Header(), p.Destination(size)
	for _, m := range requests(s, sender, p, header, n, size) {
		again := wire.ReRequest{Header: header, ID: m.ID, HasDest: true, Dest: into}
		p.Send(again.Append(nil))
	}
	s.until("all are copied, or not", func() bool {
		m := sender.transport.Memory()
		return m.Copies+m.Sending.Exhausted >= n
	})
	if m := sender.transport.Memory().Sending; m.InUse < sendLimit/3 || m.InUse > sendLimit/2 {
		t.Errorf("%d bytes of %d are in use", m.InUse, sendLimit)
	}
	for i := range 3 {
		k := sender.key(other, fmt.Sprint("v", i))
		sender.send(1, k, s.blob(s.source, 2, mib))
		other.recv(1, k).isBlob(2, mib)
	}
	if l := other.connection(sender); !l.Verbs || l.Stats.Fallbacks() != 0 {
		t.Errorf("%+v", l)
	}
	if l := p.Victim.Channel(); !l.Up || l.Breaks != 0 {
		t.Errorf("the victim left the channel to the hostile peer: %+v", l)
	}
}

// TestContentWithoutRoomForACopyIsSent: the sending pool is full of tensors that a process keeps, or of the copies
// for a peer that takes nothing. A device in software sends content from where it lies.
func TestContentWithoutRoomForACopyIsSent(t *testing.T) {
	for name, full := range map[string]func(s *stage, sender *actor, p *hostiletest.Peer) (empty func()){
		"tensors": func(s *stage, sender *actor, _ *hostiletest.Peer) func() {
			return s.blob(sender.transport.Allocator(), 1, sendLimit/2).Release
		},
		"copies": func(s *stage, sender *actor, p *hostiletest.Peer) func() {
			const n, size = hostiletest.Window - 2, 256 * kib
			header, into := p.Header(), p.Destination(size)
			for _, m := range requests(s, sender, p, header, n, size) {
				again := wire.ReRequest{Header: header, ID: m.ID, HasDest: true, Dest: into}
				p.Send(again.Append(nil))
			}
			s.until("the peer has its share", func() bool { return sender.transport.Memory().Sending.Exhausted > 0 })
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, sender, other, p := crowdedSender(t)
			defer full(s, sender, p)()
			rest := s.blob(sender.transport.Allocator(), 1, 3*mib)
			defer rest.Release()
			copies := sender.transport.Memory().Copies
			for i := range 3 {
				k := sender.key(other, fmt.Sprint("w", i))
				sender.send(1, k, s.blob(s.source, uint64(i), 3*mib))
				other.recv(1, k).isBlob(uint64(i), 3*mib)
			}
			if n := sender.transport.Memory().Copies; n != copies {
				t.Errorf("%d copies were made", n-copies)
			}
			if l := other.connection(sender); !l.Verbs || l.Stats.Fallbacks() != 0 {
				t.Errorf("%+v", l)
			}
		})
	}
}

// TestUnusedTensorsMakeRoomForContent: the sending pool is full of tensors that nothing uses, as the cache of published
// files. A device that pins memory gets as many of them released as a copy, or a tensor, needs, before it is refused.
func TestUnusedTensorsMakeRoomForContent(t *testing.T) {
	var mu sync.Mutex
	var unused []*tensor.Tensor
	giveBack := func(n int64) (some bool) {
		mu.Lock()
		defer mu.Unlock()
		for ; n > 0 && len(unused) > 0; n -= mib {
			unused[0].Release()
			unused, some = unused[1:], true
		}
		return some
	}
	s := newStage(t, pinning(tuned(clusterOptions{require: true}, func(o *verbstransport.Options) {
		o.Memory.Arena, o.Memory.SendLimit, o.Memory.GiveBack = 4*mib, sendLimit, giveBack
	})))
	from, to := s.pair()
	fill := func() {
		even, odd := []*tensor.Tensor(nil), []*tensor.Tensor(nil) // so that no two lie together at first
		for i := range sendLimit / mib / 2 {
			even = append(even, s.blob(from.transport.Allocator(), uint64(i), mib))
			odd = append(odd, s.blob(from.transport.Allocator(), uint64(i), mib))
		}
		mu.Lock()
		unused = append(even, odd...)
		mu.Unlock()
	}
	left := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(unused)
	}
	for i, size := range []int{mib / 2, mib, 2 * mib, 4 * mib} {
		fill()
		k := from.key(to, fmt.Sprint("v", i))
		from.send(1, k, s.blob(s.source, uint64(i), size))
		to.recv(1, k).isBlob(uint64(i), size)
		if n := left(); n == sendLimit/mib || size <= mib && n == 0 {
			t.Errorf("a copy of %d bytes left %d of %d", size, n, sendLimit/mib)
		}
		giveBack(sendLimit)
		from.keeps(0)
		s.until("the copy is released", func() bool { return from.transport.Memory().Sending.InUse == 0 })
		fill()
		x := s.blob(from.transport.Allocator(), uint64(i), size)
		if n := left(); n == sendLimit/mib || size <= mib && n != sendLimit/mib-1 {
			t.Errorf("a tensor of %d bytes left %d of %d", size, n, sendLimit/mib)
		}
		x.Release()
		giveBack(sendLimit)
	}
	if m := from.transport.Memory().Sending; m.Exhausted != 0 {
		t.Errorf("%d allocations count as refused", m.Exhausted)
	}
	x := s.blob(from.transport.Allocator(), 1, sendLimit)
	defer x.Release()
	k := from.key(to, "beyond")
	from.send(1, k, s.blob(s.source, 9, mib))
	to.recv(1, k).fails(status.ResourceExhausted, "sending pool")
	if m := from.transport.Memory().Sending; m.Exhausted != 1 {
		t.Errorf("%d allocations count as refused, want 1", m.Exhausted)
	}
}
