package verbstransport

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// Probed describes a channel that Probe has found to work.
type Probed struct {
	Generation uint64
	// GID is the peer's address, and MTU the path MTU of the first rail.
	GID verbs.GID
	MTU verbs.MTU
	// Took is the time from the call until the channel was up.
	Took time.Duration
	// Bytes is the minimum size of the message data that Probe has sent, in full packets.
	Bytes int
}

// Probe checks whether RDMA packets pass between this process and a task. It waits for a
// channel, which takes a bootstrap call and a message in each direction. Then it sends
// acknowledgements that fill packets of the path MTU, and waits until the peer has confirmed
// them: the first messages of a channel are small, and do not reveal a path that loses full
// packets. The acknowledged ids are random, so they change nothing at the peer.
//
// The error is the last one. Probe returns before ctx ends if the error is permanent.
func (t *RdmaRemoteRendezvous) Probe(ctx context.Context, task cluster.Task) (Probed, error) {
	start := time.Now()
	p, l, err := t.channel(ctx, task)
	if err != nil {
		return Probed{}, err
	}
	p.mu.Lock()
	remote := l.route.machine.Peer()
	p.mu.Unlock()
	if remote.Generation != l.own.Generation {
		return Probed{}, status.Errorf(status.Unavailable, "%v was left just after it came up: %v", l, whyNot(p.status().Reason))
	}
	r := Probed{
		Generation: l.own.Generation, GID: remote.Rails[0].GID, MTU: min(l.own.Rails[0].MTU, remote.Rails[0].MTU),
		Took: time.Since(start), Bytes: probeBytes,
	}
	if err := l.sendBatch(ctx, randomIDs(probeBytes), false); err != nil {
		return r, status.Errorf(status.Unavailable,
			"the first messages arrived, and %d bytes in packets of %d did not: the path carries only smaller packets, or loses many; try %d as the setting rdma.mtu, or raise the MTU of every switch on the path (%w)",
			probeBytes, int(r.MTU), int(max(r.MTU/2, verbs.MTU256)), err)
	}
	return r, nil
}

// randomIDs returns ids that fill messages of that many bytes, at least one.
func randomIDs(size int) []uint64 {
	ids := make([]uint64, max(1, size/8))
	for i := range ids {
		ids[i] = rand.Uint64()
	}
	return ids
}

// Echo sends messages of about size bytes over the channel to a task, as Probe does, and returns
// how long the peer has taken to confirm them, and where their packets went. A peer without a
// message of its own confirms after channel.CountsDelay, which is not part of the result. The error
// is Unavailable while there is no channel.
func (t *RdmaRemoteRendezvous) Echo(ctx context.Context, task cluster.Task, size int) (time.Duration, netip.AddrPort, error) {
	p, err := t.peer(task)
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	l, _, _ := p.current()
	if l == nil {
		return 0, netip.AddrPort{}, status.Errorf(status.Unavailable, "the channel to %v has ended: %v", task, whyNot(p.status().Reason))
	}
	begin := time.Now()
	err = l.sendBatch(ctx, randomIDs(size), false)
	took := time.Since(begin)
	if took >= channel.CountsDelay {
		took -= channel.CountsDelay
	}
	return took, l.socket, err
}

// Await waits until a channel to a task is up. The error is the last one. Await returns
// before ctx ends if the error is permanent.
func (t *RdmaRemoteRendezvous) Await(ctx context.Context, task cluster.Task) error {
	_, _, err := t.channel(ctx, task)
	return err
}

// channel waits until a channel to a task is up.
func (t *RdmaRemoteRendezvous) channel(ctx context.Context, task cluster.Task) (*peer, *link, error) {
	p, err := t.peer(task)
	if err != nil {
		return nil, nil, err
	}
	p.keepConnected()
	p.connectNow()
	l, err := p.await(ctx)
	return p, l, err
}

// await waits until a channel to the peer is up. It returns an error when ctx ends, when
// the error is permanent, when this process or the peer has no device, or when probeBreaks channels broke.
func (p *peer) await(ctx context.Context) (*link, error) {
	breaks := p.counters.breaks.Load() + probeBreaks
	tick := time.NewTicker(awaitInterval)
	defer tick.Stop()
	for {
		l, _, changed := p.current()
		if l != nil {
			return l, nil
		}
		reason := p.status().Reason
		if isPermanent(reason) || p.hasNoDevice() || handshake.IsWithoutDevice(p.task, reason) || reason != nil && p.counters.breaks.Load() >= breaks {
			return nil, reason
		}
		select {
		case <-changed:
		case <-tick.C: // changed does not signal a new reason
		case <-ctx.Done():
			if reason == nil {
				reason = status.From(context.Cause(ctx))
			}
			return nil, reason
		}
	}
}

// hasNoDevice reports whether this process has no device at present.
func (p *peer) hasNoDevice() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lostDevices() != nil
}

// isPermanent reports whether another attempt would fail for the same reason.
func isPermanent(reason error) bool {
	switch status.CodeOf(reason) {
	case status.FailedPrecondition, status.InvalidArgument, status.PermissionDenied, status.Unauthenticated, status.Unimplemented:
		return true
	}
	return false
}
