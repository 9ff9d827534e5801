package verbstransport

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// way is the transport.Starter to a peer: the channel while one is up, and gRPC
// otherwise. With Options.Require a receive is never asked over gRPC; who the peer
// is, and what it has to know, still is.
type way struct {
	peer *peer
	grpc transport.Wire
}

// Hello implements transport.Wire. A peer whose channel is up needs no gRPC to be
// known.
func (w *way) Hello(ctx context.Context) (transport.Peer, error) {
	if who, ok := w.peer.known(); ok {
		return who, nil
	}
	w.peer.want()
	who, err := w.grpcHello(ctx)
	if err != nil || !w.peer.transport.opts.Require {
		return who, err
	}
	w.peer.hurry()
	again := time.NewTicker(w.peer.transport.opts.Backoff)
	defer again.Stop()
	for {
		_, _, changed := w.peer.current()
		if who, ok := w.peer.known(); ok {
			return who, nil
		}
		select {
		case <-changed:
		case <-again.C:
			w.peer.hurry() // what was tried meanwhile may have failed, and the next try is far off
		case <-ctx.Done():
			k := w.peer.link()
			return transport.Peer{}, status.Errorf(status.Unavailable,
				"there is no verbs channel to %v (%v), and --fallback none wants nothing else", w.peer.task, k.Reason)
		}
	}
}

// grpcHello asks over gRPC, as long as no channel comes up, which answers as well.
func (w *way) grpcHello(ctx context.Context) (transport.Peer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.peer.transport.work.Go(func() {
		for {
			l, _, changed := w.peer.current()
			if l != nil {
				cancel()
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	who, err := w.grpc.Hello(ctx)
	if err != nil {
		if who, ok := w.peer.known(); ok {
			return who, nil
		}
	}
	return who, err
}

// Start implements transport.Starter: what a channel carries begins at once.
func (w *way) Start(a *transport.Attempt) transport.Pending {
	l, was, _ := w.peer.current()
	if l == nil || a.Elsewhere || a.Plain || l.asker.Incarnation != a.Peer {
		return nil
	}
	a.Left = was.with(a.Peer)
	return l.start(a)
}

// MuchKept implements transport.Starter.
func (*way) MuchKept() int64 { return muchKept }

// Recv implements transport.Wire, for what Start has not begun.
func (w *way) Recv(ctx context.Context, a *transport.Attempt) (rendezvous.Value, error) {
	if p := w.Start(a); p != nil { // a channel has come up
		id := a.ID
		stop := context.AfterFunc(ctx, func() { p.Drop(id) })
		defer stop()
		return p.Wait()
	}
	if w.peer.transport.opts.Require {
		return rendezvous.Value{}, &transport.LostError{Err: status.Errorf(status.Unavailable, "the verbs channel to %v is down", w.peer.task)}
	}
	if !a.Elsewhere {
		w.peer.counters.without.Add(1)
	}
	_, was, _ := w.peer.current()
	a.Left = was.with(a.Peer)
	return w.grpc.Recv(ctx, a)
}

// failed counts what goes another way, where there is one.
func (p *peer) failed(err error) error {
	var lost *transport.LostError
	var elsewhere *transport.ElsewhereError
	switch {
	case errors.As(err, &lost):
		p.counters.lost.Add(1)
	case errors.As(err, &elsewhere):
		if p.transport.opts.Require {
			return &transport.ReceiverError{Err: status.Errorf(status.ResourceExhausted, "%w (--fallback none allows no other wire)", elsewhere.Err)}
		}
	}
	return err
}

// Finish implements transport.Wire.
func (w *way) Finish(ctx context.Context, ids []uint64) error {
	if l, _, _ := w.peer.current(); l != nil {
		return l.tell(ctx, ids, false)
	}
	return w.grpc.Finish(ctx, ids)
}

// Cancel implements transport.Wire.
func (w *way) Cancel(ctx context.Context, ids []uint64) error {
	if l, _, _ := w.peer.current(); l != nil {
		return l.tell(ctx, ids, true)
	}
	return w.grpc.Cancel(ctx, ids)
}
