package verbstransport

import (
	"context"
	"log/slog"

	"github.com/tryst-rdma/tryst/status"
)

// status returns how the peer is reached, without counts.
func (p *peer) status() Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := Connection{Task: p.task}
	k.State, k.Reason = p.machine.State()
	switch {
	case p.active != nil:
		k.Verbs, k.Generation, k.QueuePairs, k.Reason = true, p.active.own.Generation, len(p.active.rails), nil
	case p.lost != nil:
		k.Reason = p.lost
	}
	return k
}

// statusWithCounts is status with all counts.
func (p *peer) statusWithCounts() Connection {
	k := p.status()
	k.Stats = p.counters.read()
	p.mu.Lock()
	sum := p.closed
	all := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		sum.add(l.totals())
	}
	k.Stats.MessagesSent, k.Stats.MessagesReceived, k.Poll = sum.messages.Sent, sum.messages.Received, sum.poll
	return k
}

// logState logs when the peer has changed between verbs and gRPC, or the reason for gRPC
// has changed. Each state is logged once.
func (p *peer) logState() {
	p.logging.Lock()
	defer p.logging.Unlock()
	p.mu.Lock()
	closing, lost := p.closing, p.lost != nil
	p.mu.Unlock()
	if lost { // one line for all peers says that
		p.logged = ""
	}
	if closing || lost {
		return
	}
	k := p.status()
	state := "grpc"
	switch {
	case k.Verbs:
		state = "verbs"
	case k.Reason != nil:
		state += ": " + k.Reason.Error()
	}
	if state == p.logged {
		return
	}
	p.logged = state
	switch {
	case k.Verbs:
		p.transport.opts.Logger.Info("tensors from and to the peer go over verbs", "peer", p.task.String(), "generation", k.Generation, "queue_pairs", k.QueuePairs)
	case k.Reason != nil:
		p.transport.opts.Logger.Log(context.Background(), levelOf(k.Reason), "no verbs with the peer", "peer", p.task.String(), "reason", k.Reason, "instead", p.transport.fallback())
	}
}

// levelOf returns the log level for the reason why a peer has no verbs channel. Transient
// reasons are no warnings.
func levelOf(reason error) slog.Level {
	switch status.CodeOf(reason) {
	case status.Unavailable, status.DeadlineExceeded, status.Cancelled, status.Aborted:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
