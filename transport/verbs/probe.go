package verbstransport

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Probed is what Probe has found out of a channel that works.
type Probed struct {
	Generation uint64
	// GID is the peer's address, and MTU the path MTU of the first rail.
	GID verbs.GID
	MTU verbs.MTU
	// Took is how long it took from the call to the channel.
	Took time.Duration
	// Bytes is the size of what was sent then, at least: full packets.
	Bytes int
}

// Probe finds out whether packets of RDMA pass between this process and a task. It
// waits for a channel, which takes a bootstrap and a message each way, and then for
// the peer to take messages that fill packets of the path MTU: those get lost where
// something on the way takes only smaller ones, and the first messages of a channel
// are small. They name answers that nobody has, so nothing changes at the peer.
//
// The error says what went wrong last; it comes before ctx ends when trying again
// would bring the same.
func (t *RdmaRemoteRendezvous) Probe(ctx context.Context, task cluster.Task) (Probed, error) {
	start := time.Now()
	p, l, err := t.channel(ctx, task)
	if err != nil {
		return Probed{}, err
	}
	p.mu.Lock()
	remote := p.machine.Peer()
	p.mu.Unlock()
	if remote.Generation != l.own.Generation {
		return Probed{}, status.Errorf(status.Unavailable, "%v was left when it had just begun: %v", l, p.link().Reason)
	}
	r := Probed{
		Generation: l.own.Generation, GID: remote.Rails[0].GID, MTU: min(l.own.Rails[0].MTU, remote.Rails[0].MTU),
		Took: time.Since(start), Bytes: probeBytes,
	}
	ids := make([]uint64, probeBytes/8)
	for i := range ids {
		ids[i] = rand.Uint64()
	}
	if err := l.flush(ctx, ids, false); err != nil {
		return r, status.Errorf(status.Unavailable,
			"the first messages came through, and %d bytes in packets of %d did not: something on the way takes only smaller packets, or loses many; try --rdma-mtu %d, or raise the MTU of every switch between (%w)",
			probeBytes, int(r.MTU), int(max(r.MTU/2, verbs.MTU256)), err)
	}
	return r, nil
}

// Await waits until there is a channel to a task, over which its tensors then come.
// The error says what went wrong last; it comes before ctx ends when trying again
// would bring the same.
func (t *RdmaRemoteRendezvous) Await(ctx context.Context, task cluster.Task) error {
	_, _, err := t.channel(ctx, task)
	return err
}

// channel is the one to a task, when it is up.
func (t *RdmaRemoteRendezvous) channel(ctx context.Context, task cluster.Task) (*peer, *link, error) {
	p, err := t.peer(task)
	if err != nil {
		return nil, nil, err
	}
	p.want()
	p.hurry()
	l, err := p.await(ctx)
	return p, l, err
}

// await waits for the peer's channel.
func (p *peer) await(ctx context.Context) (*link, error) {
	breaks := p.counters.breaks.Load() + probeBreaks
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for {
		l, _, changed := p.current()
		if l != nil {
			return l, nil
		}
		reason := p.link().Reason
		if sameAgain(reason) || reason != nil && p.counters.breaks.Load() >= breaks {
			return nil, reason
		}
		select {
		case <-changed:
		case <-tick.C: // a reason makes no change of the channel
		case <-ctx.Done():
			if reason == nil {
				reason = status.From(context.Cause(ctx))
			}
			return nil, reason
		}
	}
}

// sameAgain says that the reason will be the same when it is tried again.
func sameAgain(reason error) bool {
	switch status.CodeOf(reason) {
	case status.FailedPrecondition, status.InvalidArgument, status.PermissionDenied, status.Unauthenticated, status.Unimplemented:
		return true
	}
	return false
}
