package verbstransport

// status returns how the peer is reached, without counts.
func (p *peer) status() Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := Connection{Task: p.task, Since: p.since.verbsAt, StateSince: p.since.stateAt}
	k.State, k.Reason = p.shown().machine.State()
	switch {
	case p.active != nil:
		k.Verbs, k.Generation, k.QueuePairs, k.Reason = true, p.active.own.Generation, len(p.active.rails), nil
		k.Device, k.Local, k.Remote = p.active.port.name, p.active.own.Rails[0].GID, p.active.remote
		k.Socket = p.active.socket
	default:
		if lost := p.lostDevices(); lost != nil {
			k.Reason = lost
		}
	}
	return k
}

// statusWithCounts is status with all counts.
func (p *peer) statusWithCounts() Connection {
	k := p.status()
	k.Stats = p.counters.read()
	p.mu.Lock()
	sum := p.closed
	var all []*link
	for _, r := range p.routes {
		for _, l := range r.links {
			all = append(all, l)
		}
	}
	p.mu.Unlock()
	for _, l := range all {
		sum.add(l.totals())
	}
	k.Stats.MessagesSent, k.Stats.MessagesReceived, k.Poll = sum.messages.Sent, sum.messages.Received, sum.poll
	return k
}
