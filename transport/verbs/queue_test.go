package verbstransport_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// cramped makes channels with minimal queues: a window of 8 messages, a send queue of 16,
// writes of one page.
func cramped(o clusterOptions) clusterOptions {
	return tuned(o, func(o *verbstransport.Options) {
		o.Window, o.SendQueue = 8, 16
		o.Chunk, o.Outstanding = 4*kib, 64*kib
	})
}

// TestV13SlotsAndGenerationsWrap: a slot is reused more often than its 12-bit generation
// counts, while a receive is outstanding that used the slot before.
func TestV13SlotsAndGenerationsWrap(t *testing.T) {
	const size, rounds = 12 * kib, wire.SlotGenerations + 100
	o, spies := watched(clusterOptions{require: true})
	s := newStage(t, o)
	from, to := s.pair()
	waits, k := from.key(to, "waits"), from.key(to, "v")
	from.sendsBlob(1, waits, 1, size)
	to.recv(1, waits).isBlob(1, size) // meta-data is known: the next request brings an address, and waits with it
	early := to.recv(2, waits)
	from.waiting(1)
	x := s.blob(from.transport.Allocator(), 2, size)
	defer x.Release()
	for i := range rounds {
		from.send(2, k, x.Retain())
		y := to.recv(2, k).value()
		if i%500 == 0 && !isNoise(y.Bytes(), 2) {
			t.Fatalf("round %d brought something else", i)
		}
		y.Release()
	}
	from.sendsBlob(2, waits, 3, size)
	early.isBlob(3, size)
	used := make(map[uint32]int) // slots
	again := 0
	spy := spies.of(from)
	spy.mu.Lock()
	defer spy.mu.Unlock()
	for imm, n := range spy.imms {
		used[imm.Slot()] += n
		if n > 1 {
			again++
		}
	}
	if again == 0 {
		t.Errorf("no generation of any slot came again in %d receives: %v", rounds, used)
	}
}

// TestV14ManyMoreRequestsThanTheWindow: more than a thousand requests wait for values
// behind a window of eight. They are answered in reverse order.
func TestV14ManyMoreRequestsThanTheWindow(t *testing.T) {
	const n = 1200
	s := newStage(t, cramped(clusterOptions{require: true}))
	from, to := s.pair()
	receives := make([]*receiving, n)
	keys := make([]rendezvous.Key, n)
	for i := range n {
		keys[i] = from.key(to, fmt.Sprint("v", i))
		receives[i] = to.recv(1, keys[i])
	}
	from.waiting(n)
	size := func(i int) int { return 1 + i*131%(20*kib) } // in messages and by writes
	for i := n - 1; i >= 0; i-- {
		from.sendsBlob(1, keys[i], uint64(i), size(i))
	}
	for i, r := range receives {
		r.isBlob(uint64(i), size(i))
	}
	if k := to.connection(from); k.Stats.Received != n || k.Stats.Breaks != 0 {
		t.Errorf("%+v, want %d values and no break", k.Stats, n)
	}
}

// TestValuesThatDependOnLaterRequests: a thousand requests beyond the window, each with a
// value that is sent only after the next one was answered. An implementation in which a
// waiting request holds a credit would deadlock.
func TestValuesThatDependOnLaterRequests(t *testing.T) {
	const n = 1000
	s := newStage(t, cramped(clusterOptions{require: true}))
	from, to := s.pair()
	part := from.in(1)
	keys := make([]rendezvous.Key, n)
	for i := range n {
		keys[i] = from.key(to, fmt.Sprint("v", i))
	}
	send := func(i int) {
		x := s.blob(s.source, uint64(i), 1000)
		defer x.Release()
		if err := part.Send(keys[i], rendezvous.Args{}, x, false); err != nil {
			t.Error(err)
		}
	}
	done := make(chan struct{})
	for i := range n {
		to.in(1).RecvAsync(t.Context(), keys[i], rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			switch {
			case err != nil:
				t.Errorf("value %d: %v", i, err)
				return
			case !isNoise(v.Tensor.Bytes(), uint64(i)):
				t.Errorf("value %d is another one", i)
			}
			v.Tensor.Release()
			if i == 0 {
				close(done)
				return
			}
			send(i - 1)
		})
	}
	from.waiting(n)
	send(n - 1)
	s.happens("all have come", done)
}

// TestSendQueueFull: more contents and messages at once, in both directions, than a send
// queue of sixteen holds. None is lost, and no channel breaks.
func TestSendQueueFull(t *testing.T) {
	const each, size = 40, 300*kib + 1
	o, spies := watched(cramped(clusterOptions{require: true}))
	s := newStage(t, o)
	a, b := s.pair()
	var receives []*receiving
	for i := range each {
		receives = append(receives, b.recv(1, a.key(b, fmt.Sprint("v", i))), a.recv(1, b.key(a, fmt.Sprint("v", i))))
	}
	a.waiting(each)
	b.waiting(each)
	var sends sync.WaitGroup
	for _, from := range []*actor{a, b} {
		to, part := b, from.in(1)
		if from == b {
			to = a
		}
		sends.Go(func() {
			for i := range each {
				x := s.blob(from.transport.Allocator(), uint64(i), size)
				if err := part.Send(from.key(to, fmt.Sprint("v", i)), rendezvous.Args{}, x, false); err != nil {
					t.Error(err)
				}
				x.Release()
			}
		})
	}
	sends.Wait()
	for i, r := range receives {
		r.isBlob(uint64(i/2), size)
	}
	if a.connection(b).Stats.Breaks+b.connection(a).Stats.Breaks != 0 {
		t.Errorf("a channel broke: %+v, %+v", a.connection(b), b.connection(a))
	}
	if sent := spies.of(a).tally(); sent.Writes < each*size/(4*kib)-each {
		t.Errorf("%+v: the content went by fewer writes than the send queue has places for", sent)
	}
}

// TestQueuesHaveRoomForABreak (fault 6 of TensorFlow's extension): a completion queue has
// an entry for everything that its queue pairs can have outstanding.
func TestQueuesHaveRoomForABreak(t *testing.T) {
	for _, rails := range []int{1, 3} {
		o, spies := watched(tuned(clusterOptions{}, func(o *verbstransport.Options) { o.Rails, o.Window, o.SendQueue = rails, 24, 40 }))
		s := newStage(t, o)
		from, to := s.pair()
		third := s.start(2)
		third.meets(to)
		third.meets(from)
		k := from.key(to, "v")
		from.sendsBlob(1, k, 1, 4*mib)
		to.recv(1, k).isBlob(1, 4*mib)
		spy := spies.of(to)
		spy.mu.Lock()
		channels := 0
		for _, q := range spy.cqs {
			if q.load > 1 { // the one of port.udpEndpoint is destroyed already
				channels++
			}
			if q.load > q.size || q.load > 1 && q.load < rails*(24+40) {
				t.Errorf("%d rails: a completion queue has %d entries, and its queue pairs may have %d outstanding", rails, q.size, q.load)
			}
		}
		if channels < 2 {
			t.Errorf("two peers share %d completion queues", channels)
		}
		spy.mu.Unlock()
	}
}

// TestAThousandCancelsBeyondTheWindow: waiting receives are cancelled all at once, and
// the others go on.
func TestAThousandCancelsBeyondTheWindow(t *testing.T) {
	const n = 1000
	s := newStage(t, cramped(clusterOptions{require: true}))
	from, to := s.pair()
	var ended, failed atomic.Int32
	var stays []*receiving
	step := int64(2)
	for i := range n {
		to.in(step).RecvAsync(t.Context(), from.key(to, fmt.Sprint("v", i)), rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			ended.Add(1)
			if err != nil {
				failed.Add(1)
				return
			}
			v.Tensor.Release()
		})
		if i%100 == 0 {
			stays = append(stays, to.recv(1, from.key(to, fmt.Sprint("s", i))))
		}
	}
	from.waiting(n + len(stays))
	to.in(step).Abort(status.New(status.Internal, "the kernel of node mul failed"))
	s.until("all have ended", func() bool { return ended.Load() == n })
	if failed.Load() != n {
		t.Errorf("%d of %d aborted receives brought a value", n-failed.Load(), n)
	}
	from.waiting(len(stays))
	for i, r := range stays {
		from.sendsBlob(1, r.key, uint64(i), 30*kib)
		r.isBlob(uint64(i), 30*kib)
	}
}

// TestSidesWithDifferentQueuePairs: a channel has as many queue pairs as the side with
// fewer. A content uses one queue pair per MiB, and only those get an rkey.
func TestSidesWithDifferentQueuePairs(t *testing.T) {
	rails := map[int]int{0: 4, 1: 2}
	o, spies := watched(clusterOptions{require: true, tune: func(task cluster.Task, o *verbstransport.Options) { o.Rails = rails[task.Index] }})
	s := newStage(t, o)
	a, b := s.pair()
	type seen struct{ last, windows int }
	sees := func(from, to *actor) seen {
		sender, receiver := spies.of(from), spies.of(to)
		last := sender.tally().Imms
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		return seen{last, receiver.windows}
	}
	for _, pair := range [][2]*actor{{a, b}, {b, a}} {
		from, to := pair[0], pair[1]
		for i, tt := range []struct{ size, over int }{{mib, 1}, {2*mib - 1, 1}, {2 * mib, 2}, {5*mib + 3, 2}} {
			k := from.key(to, fmt.Sprint("v", i))
			before := sees(from, to)
			from.sendsBlob(1, k, uint64(i), tt.size)
			to.recv(1, k).isBlob(uint64(i), tt.size)
			after := sees(from, to)
			if got := (seen{after.last - before.last, after.windows - before.windows}); got != (seen{tt.over, tt.over}) {
				t.Errorf("%d bytes from %v: %d last writes, %d windows; want %d of each", tt.size, from.task, got.last, got.windows, tt.over)
			}
		}
	}
	if na, nb := a.connection(b).QueuePairs, b.connection(a).QueuePairs; na != 2 || nb != 2 {
		t.Errorf("the sides report %d and %d queue pairs", na, nb)
	}
	if n := a.connection(b).Stats.Breaks + b.connection(a).Stats.Breaks; n != 0 {
		t.Errorf("the channel broke %d times", n)
	}
}

// TestSmallContentsTakeQueuePairsInTurn: contents that use fewer than all queue pairs are
// spread over them.
func TestSmallContentsTakeQueuePairsInTurn(t *testing.T) {
	o, spies := watched(clusterOptions{require: true, tune: func(_ cluster.Task, o *verbstransport.Options) { o.Rails = 2 }})
	s := newStage(t, o)
	a, b := s.pair()
	for _, pair := range [][2]*actor{{a, b}, {b, a}} {
		from, to := pair[0], pair[1]
		for i, size := range []int{64 * kib, mib, 2*mib - 1, 100 * kib, mib + 1, 30 * kib} {
			k := from.key(to, fmt.Sprint("v", i))
			from.sendsBlob(1, k, uint64(i), size)
			to.recv(1, k).isBlob(uint64(i), size)
		}
		if got, want := spies.of(from).lasts(), []int{3, 3}; !slices.Equal(got, want) {
			t.Errorf("last writes of %v by queue pair: %v, want %v", from.task, got, want)
		}
	}
	if n := a.connection(b).Stats.Breaks + b.connection(a).Stats.Breaks; n != 0 {
		t.Errorf("the channel broke %d times", n)
	}
}

// TestLargestEagerLimit: channels work with the largest eager limit, and a content of
// that size is sent within a message.
func TestLargestEagerLimit(t *testing.T) {
	o, spies := watched(clusterOptions{require: true, tune: func(_ cluster.Task, o *verbstransport.Options) {
		o.EagerLimit, o.Window = mib, 8
		o.Memory.Arena = 16 * mib
	}})
	s := newStage(t, o)
	from, to := s.pair()
	spies.of(from).tally()
	from.sendsBlob(1, from.key(to, "v"), 1, mib)
	to.recv(1, from.key(to, "v")).isBlob(1, mib)
	if n := spies.of(from).tally(); n.Kinds[wire.KindEager] != 1 || n.Writes+n.Imms != 0 {
		t.Errorf("it went by %d messages and %d writes", n.Kinds[wire.KindEager], n.Writes+n.Imms)
	}
}

// TestChannelMemory: ChannelMemory is what a channel registers beside the arenas.
func TestChannelMemory(t *testing.T) {
	var own verbstransport.Options
	o, spies := watched(clusterOptions{require: true, tune: func(_ cluster.Task, o *verbstransport.Options) {
		o.Rails, o.Memory.Arena = 2, 16*mib
		own = *o
	}})
	s := newStage(t, o)
	from, to := s.pair()
	from.sendsBlob(1, from.key(to, "v"), 1, 100)
	to.recv(1, from.key(to, "v")).isBlob(1, 100)
	seen, sum := spies.of(from), uint64(0)
	if !s.holds(func() bool { // one channel for each peer; that of the peer which is not there may still be made
		seen.mu.Lock()
		defer seen.mu.Unlock()
		sum = 0
		for _, r := range seen.memory {
			if int64(len(r.mem)) != own.Memory.Arena {
				sum += uint64(len(r.mem))
			}
		}
		return sum > 0 && sum%own.ChannelMemory() == 0
	}) {
		t.Errorf("%d bytes are registered for messages, and ChannelMemory is %d", sum, own.ChannelMemory())
	}
}
