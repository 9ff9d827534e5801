package verbstransport_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// keeper compares messages under way with their content at the time of the post: a device
// may read them until they have completed.
type keeper struct {
	verbs.Device
	spy *spy

	mu        sync.Mutex // taken before spy.mu
	keeps     bool
	posted    []message // messages that are not inline
	cancelled int       // number of CANCELLED messages
}

type message struct{ now, was []byte }

func (k *keeper) AllocPD() (verbs.PD, error) {
	pd, err := k.Device.AllocPD()
	return keptPD{pd, k}, err
}

type keptPD struct {
	verbs.PD
	k *keeper
}

func (p keptPD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	qp, err := p.PD.CreateQP(c)
	return keptQP{qp, p.k}, err
}

type keptQP struct {
	verbs.QP
	k *keeper
}

func (q keptQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.k.sees(wrs)
	return q.QP.PostSend(wrs)
}

func (k *keeper) sees(wrs []verbs.SendWR) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spy.mu.Lock()
	defer k.spy.mu.Unlock()
	for i := range wrs {
		if wrs[i].Op != verbs.OpSend {
			continue
		}
		b := k.spy.bytesLocked(&wrs[i])
		if kind, _ := wire.KindOf(b); kind == wire.KindCancelled {
			k.cancelled++
		}
		if k.keeps && wrs[i].Inline == nil {
			k.posted = append(k.posted, message{b, bytes.Clone(b)})
		}
	}
}

// has reports whether that many messages were posted.
func (k *keeper) has(posted, cancelled int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.posted) >= posted && k.cancelled >= cancelled
}

// TestMessagesOfTwoQueuePairsDoNotMeet: the message that ends a content on the second
// queue pair does not overwrite one that the first queue pair still sends.
func TestMessagesOfTwoQueuePairsDoNotMeet(t *testing.T) {
	o, spies := watched(clusterOptions{require: true, path: patient})
	inner, k := o.wrap, &keeper{}
	o.wrap = func(task cluster.Task, d verbs.Device) verbs.Device {
		d = inner(task, d)
		if task.Index != 0 {
			return d
		}
		k.Device, k.spy = d, spies[task]
		return k
	}
	s := newStage(t, tuned(o, func(o *verbstransport.Options) { o.Rails, o.SendQueue = 2, 64 }))
	from, to := s.pair()
	large := from.key(to, "large")
	from.sendsBlob(1, large, 1, 8*mib)
	to.recv(1, large).isBlob(1, 8*mib) // its meta-data is known from now on
	// All messages use the first queue pair, which is n messages ahead, so that the next
	// slot index of the second one is in use on the first.
	const n = 40
	small := func(i int) rendezvous.Key { return from.key(to, fmt.Sprint("small", i)) }
	for i := range n {
		from.sendsBlob(1, small(i), uint64(i), 2*kib)
		to.recv(1, small(i)).isBlob(uint64(i), 2*kib)
	}

	held := s.oneWay(from, to)
	held.Hold()
	k.mu.Lock()
	k.keeps = true
	k.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from.sendsBlob(2, large, 2, 8*mib)
	half := to.recvCtx(ctx, 2, large)
	from.keeps(1)
	var all []*receiving
	for i := range n {
		all = append(all, to.recv(2, small(i)))
	}
	from.waiting(n)
	for i := range n {
		from.sendsBlob(2, small(i), uint64(i), 2*kib)
	}
	s.until("the messages are posted", func() bool { return k.has(n, 0) })
	cancel()
	if out := half.wait(); out.err == nil {
		t.Fatal("it was not cancelled")
	}
	s.until("CANCELLED is posted on both queue pairs", func() bool { return k.has(n, 2) })
	k.mu.Lock()
	for i, m := range k.posted {
		if !bytes.Equal(m.now, m.was) {
			was, _ := wire.KindOf(m.was)
			now, _ := wire.KindOf(m.now)
			t.Errorf("message %d, %v that is on its way, was written over with %v", i, was, now)
		}
	}
	k.mu.Unlock()
	held.Release()
	for i, r := range all {
		r.isBlob(uint64(i), 2*kib)
	}
	if l := to.connection(from); l.Stats.Breaks != 0 {
		t.Errorf("the channel broke %d times: %v", l.Stats.Breaks, l.Reason)
	}
}
