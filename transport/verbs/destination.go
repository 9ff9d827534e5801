package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// The registered memory that the peer writes the contents of receives into: memory of the
// receiving pool, or the receiver's own memory if it is of that pool's arenas
// (transport.Receive.Into). Any other memory of the receiver's gets a copy (attempt.value).

// destination is memory of the receiving arenas, reserved for one attempt.
type destination struct {
	regmem.Destination
	of     *attempt                    // nil when the attempt had ended already
	leases [wire.MaxRails]verbs.Window // by rail; nil where the peer has the rkey of the arena
}

// destRequest is an attempt that needs a destination of size bytes.
type destRequest struct {
	attemptID
	handle uint64
	size   uint64
	into   bool  // the value goes into the receiver's own memory
	unfit  error // it does not fit there
}

// destRequest returns the request of ActPlace. Called with mu held.
func (l *link) destRequest(e *channel.Action) destRequest {
	p := destRequest{attemptID: attemptID{e.ID, e.Attempt}, handle: e.Handle, size: e.Value.Size}
	if a := l.attempt(p.handle, p.attemptID); a != nil && a.t.Into != nil && !e.Value.Proto {
		p.unfit = a.checkInto(&e.Value)
		p.into = p.unfit == nil
	}
	return p
}

// assignDest gives an attempt a destination, or reports to the machine that there is none.
// Called with mu held.
func (l *link) assignDest(p destRequest, grow regmem.Grow) {
	if p.unfit != nil {
		l.refuseDest(p, p.unfit)
		return
	}
	d, err := l.destination(l.attempt(p.handle, p.attemptID), p.into, p.size, regmem.OnDemand, grow)
	switch {
	case errors.Is(err, regmem.ErrMustGrow):
		l.async(func() { l.growDest(p) })
	case err != nil:
		l.refuseDest(p, err)
	default:
		l.setDest(p, d)
	}
}

// refuseDest reports to the machine that there is no destination. The attempt keeps the
// reason, since the machine knows nothing of pools and limits. Called with mu held.
func (l *link) refuseDest(p destRequest, err error) {
	if a := l.attempt(p.handle, p.attemptID); a != nil {
		a.noDest = err
	}
	l.machine.NoPlace(time.Now(), p.id, p.attempt)
}

// setDest passes a destination to the machine, which releases it if the attempt has ended.
// Called with mu held.
func (l *link) setDest(p destRequest, d channel.Dest) {
	l.machine.Place(time.Now(), p.id, p.attempt, d)
}

// growDest is assignDest on a goroutine that may register memory. Called without mu.
func (l *link) growDest(p destRequest) {
	dest, err := l.account.Destination(int(p.size), regmem.OnDemand, regmem.MayGrow) //nolint:gosec // checked when it was parsed
	l.mu.Lock()
	if l.state == linkGone {
		l.mu.Unlock()
		if err == nil {
			dest.Release()
		}
		return
	}
	if err != nil {
		l.refuseDest(p, err)
	} else if d, err := l.offerDest(l.attempt(p.handle, p.attemptID), dest, p.size); err == nil {
		l.setDest(p, d)
	}
	l.run(time.Now())
}

// destination reserves memory for an attempt, which is nil when it has ended: with into the
// receiver's own if that is registered, else memory of the receiving pool. Called with mu
// held.
func (l *link) destination(a *attempt, into bool, size uint64, early regmem.Early, grow regmem.Grow) (channel.Dest, error) {
	if into && a != nil {
		// What has come over gRPC lies in the same memory, and stays valid: each attempt brings
		// the same content.
		if dest, ok := l.account.Adopt(a.t.Into.Tensor().Buffer(), int(size)); ok { //nolint:gosec // it fits
			return l.offerDest(a, dest, size)
		}
	}
	dest, err := l.account.Destination(int(size), early, grow) //nolint:gosec // checked when it was parsed
	if err != nil {
		return channel.Dest{}, err
	}
	return l.offerDest(a, dest, size)
}

// offerDest returns a destination of size bytes as it is sent to the peer, with the address
// and an rkey for each rail that carries a share of the content. It takes over dest. It fails
// when a queue pair in ERR refuses the memory window, and then leaves the channel. Called
// with mu held.
func (l *link) offerDest(a *attempt, dest regmem.Destination, size uint64) (channel.Dest, error) {
	p := dest.Range()
	var d channel.Dest
	to := destination{Destination: dest, of: a}
	shares := l.machine.Stripes(size)
	d.First = l.firstRail(shares)
	for share := range shares {
		i := l.machine.RailOf(d.First, share)
		at := &d.Rails[i]
		*at = wire.Remote{Addr: p.Addr, RKey: p.RKey}
		if !l.port.memory.Leases() {
			continue
		}
		w, err := dest.Lease(l.rails[i].qp)
		if err != nil {
			l.release(&to)
			l.fail(time.Now(), rankFlushed, err) // a completion has the cause
			return channel.Dest{}, err
		}
		to.leases[i], at.RKey = w, w.RKey()
	}
	d.Handle = l.dests.put(to)
	if a != nil {
		a.dest = d.Handle
	}
	return d, nil
}

// firstRail returns the rail of the first share of a content. Contents with fewer shares
// than rails use the rails in turn. Called with mu held.
func (l *link) firstRail(shares int) uint8 {
	if least := l.machine.RailOf(0, 0); shares == len(l.rails)-least {
		return uint8(least) //nolint:gosec // at most 1
	}
	first := max(l.nextRail, uint8(l.machine.RailOf(0, 0))) //nolint:gosec // a rail
	l.nextRail = uint8(l.machine.RailOf(first, shares))     //nolint:gosec // at most wire.MaxRails
	return first
}

// release revokes the rkeys of a destination, and then releases its memory.
func (l *link) release(d *destination) {
	for _, w := range d.leases {
		if w != nil {
			l.peer.transport.logClose("memory window", w.Close())
		}
	}
	d.Release()
}

// free releases a destination that the peer does not write into any more. Called with mu
// held.
func (l *link) free(handle uint64) {
	if dest, ok := l.takeDest(handle); ok {
		l.release(&dest)
	}
}

// takeDest removes a destination from the table. Called with mu held.
func (l *link) takeDest(handle uint64) (destination, bool) {
	d, ok := l.dests.take(handle)
	if ok && d.of != nil && d.of.dest == handle { // the attempt may have another one by now
		d.of.dest = 0
	}
	return d, ok
}
