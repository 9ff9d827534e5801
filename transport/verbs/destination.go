package verbstransport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/transport/internal/channel"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// The memory that the contents of receives are written into.

// destination is memory that a receive has been given, and which one: nil when that
// had ended before.
type destination struct {
	regmem.Destination
	of     *attempt
	leases [wire.MaxRails]verbs.Window // by rail; nil where the arena's key was told
}

// placing is a receive that wants a destination.
type placing struct {
	attemptID
	handle uint64
	size   uint64
}

// place finds the destination of a receive. Called with the lock held.
func (l *link) place(p placing, grow regmem.Grow) {
	d, err := l.destination(l.attempt(p.handle, p.attemptID), p.size, regmem.OnDemand, grow)
	switch {
	case errors.Is(err, regmem.ErrMustGrow):
		l.aside(func() { l.placeGrown(p) })
	case err != nil:
		l.noPlace(p, err)
	default:
		l.placed(p, d)
	}
}

// noPlace ends a receive that has no destination, and keeps why: the machine knows
// nothing of pools and limits.
func (l *link) noPlace(p placing, err error) {
	if a := l.attempt(p.handle, p.attemptID); a != nil {
		a.noPlace = err
	}
	l.machine.NoPlace(time.Now(), p.id, p.attempt)
}

// placed gives a receive its destination, which the machine gives back when the
// receive has ended meanwhile.
func (l *link) placed(p placing, d channel.Dest) {
	l.machine.Place(time.Now(), p.id, p.attempt, d)
}

// placeGrown is place where it may take time.
func (l *link) placeGrown(p placing) {
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
		l.noPlace(p, err)
	} else if d, err := l.told(l.attempt(p.handle, p.attemptID), dest, p.size); err == nil {
		l.placed(p, d)
	}
	l.run(time.Now())
}

// destination takes memory of the receiving pool for a receive; nil when that has
// ended meanwhile.
func (l *link) destination(a *attempt, size uint64, early regmem.Early, grow regmem.Grow) (channel.Dest, error) {
	dest, err := l.account.Destination(int(size), early, grow) //nolint:gosec // checked when it was parsed
	if err != nil {
		return channel.Dest{}, err
	}
	return l.told(a, dest, size)
}

// told is a destination of size bytes as the machine and the peer are told of it: with
// a key for each rail that carries so much. The error, which ends the channel, is that
// of a queue pair that is broken: it takes no window.
func (l *link) told(a *attempt, dest regmem.Destination, size uint64) (channel.Dest, error) {
	p := dest.Piece()
	var d channel.Dest
	to := destination{Destination: dest, of: a}
	shares := l.machine.Stripes(size)
	d.First = l.firstRail(shares)
	for share := range shares {
		i := l.machine.RailOf(d.First, share)
		at := &d.Rails[i]
		*at = wire.Remote{Addr: p.Addr, RKey: p.RKey}
		if !l.peer.transport.port.memory.Leases() {
			continue
		}
		w, err := dest.Lease(l.rails[i].qp)
		if err != nil {
			l.release(&to)
			l.fails(time.Now(), witnessFlushed, err) // the completions know why
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

// firstRail is the rail on which a content of some shares begins: those that do not
// take all rails take them in turn. Called with the lock held.
func (l *link) firstRail(shares int) uint8 {
	if shares == len(l.rails) {
		return 0
	}
	first := l.turn
	l.turn = uint8(l.machine.RailOf(first, shares)) //nolint:gosec // at most wire.MaxRails
	return first
}

// release ends the keys of a destination, and then the channel's hold on its memory.
func (l *link) release(d *destination) {
	for _, w := range d.leases {
		if w != nil {
			l.peer.transport.closedObject("memory window", w.Close())
		}
	}
	d.Release()
}

// free gives back a destination that nothing is written into any more.
func (l *link) free(handle uint64) {
	if dest, ok := l.takeDest(handle); ok {
		l.release(&dest)
	}
}

// takeDest takes a destination out of the table.
func (l *link) takeDest(handle uint64) (destination, bool) {
	d, ok := l.dests.take(handle)
	if ok && d.of != nil && d.of.dest == handle { // else it has another one by now
		d.of.dest = 0
	}
	return d, ok
}
