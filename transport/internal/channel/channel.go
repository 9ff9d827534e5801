package channel

import (
	"errors"
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// State is where a channel is in its life.
type State uint8

// The states, in order; see the package comment.
const (
	Opening State = iota
	Up
	Leaving
	Gone
)

func (s State) String() string { return [...]string{"opening", "up", "leaving", "gone"}[s] }

// Channel is one generation of a channel to one peer. It is not safe for
// concurrent use.
type Channel struct {
	cfg   Config
	state State
	err   error // why it was left
	began time.Time

	helloSent     bool // our HELLO is posted
	helloReceived bool // the peer's has come
	bye           bye

	rails [wire.MaxRails]rail // cfg.Rails of them

	// The asker's side.
	receives    slab[receive, *receive]
	byID        map[uint64]ref
	slots       slots
	metas       metas
	quarantined int64 // bytes of destinations in listQuarantine

	// The sender's side.
	requests     slab[request, *request]
	requestsByID map[uint64]ref
	shares       slab[share, *share] // of contents that are being written
	turn         uint64              // of the share that was put in line last
	cancelledIDs queue[uint64]       // CANCELLED is to be said of them, over rail 0 alone
	waitingIDs   queue[uint64]       // WAITING
	unknownIDs   queue[uint64]       // UNKNOWN

	pending pendingIDs

	lastContact time.Time // when something last came from the peer, or arrived there
	watched     bool
	countsBy    time.Time // when counts are to be said at the latest; zero when nobody asked

	acts   []Action // since Actions was called
	spare  []Action // what it gave then
	out    []byte   // messages in acts
	ackBuf []byte   // ids of the message that is being written

	// Numbers of limits.go. Tests change them.
	stripe  uint64 // stripeUnit
	reserve int    // creditReserve

	messages Messages
}

// Messages counts what takes a receive: messages and WRITE_WITH_IMMs.
type Messages struct{ Sent, Received uint64 }

// Messages returns the counts since the channel began.
func (c *Channel) Messages() Messages { return c.messages }

type bye struct {
	wanted bool
	posted bool
	reason []byte
	by     time.Time
}

// New is a channel whose queue pairs are connected, or will be before an event
// comes, with all receives posted. The error is a fault of cfg.
func New(now time.Time, cfg Config) (*Channel, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Channel{
		cfg: cfg, began: now, lastContact: now, stripe: stripeUnit, reserve: creditReserve,
		receives: newSlab[receive](listCancelled), byID: make(map[uint64]ref),
		slots: slots{most: wire.Slots}, metas: newMetas(cfg.MaxMetas),
		requests: newSlab[request](listAwaitsDest), requestsByID: make(map[uint64]ref),
		shares: newSlab[share](sharesToEnd.on(cfg.Rails - 1)),
	}, nil
}

// State is where the channel is in its life.
func (c *Channel) State() State { return c.state }

// Err is why the channel was left; nil before.
func (c *Channel) Err() error { return c.err }

// Ready is the event that our own bootstrap was answered: the peer's queue pairs
// take messages.
func (c *Channel) Ready(time.Time) {
	if c.state == Opening {
		c.state = Up
	}
}

// Watch is the event that the shell begins, or ends, to care whether the peer is
// there although the channel knows of nothing outstanding: an answer is kept for it.
func (c *Channel) Watch(_ time.Time, on bool) {
	c.watched = on
}

// Bye is the event that the channel is to be closed in order: the peer is told
// the reason, and ActClose follows, in a second at the latest.
func (c *Channel) Bye(now time.Time, reason string) {
	switch {
	case c.state == Opening:
		c.close(errors.New(reason))
	case c.state == Up && !c.bye.wanted:
		if len(reason) > wire.MaxText {
			reason = reason[:wire.MaxText]
		}
		c.bye = bye{wanted: true, reason: []byte(reason), by: now.Add(byeTime)}
	}
}

// Leave is the event that the channel is left: a work request failed, the peer
// left this generation, the device is gone. Nothing is posted from now on. Unlike
// the machine's own ActClose it is the shell's decision, so no action asks for it.
func (c *Channel) Leave(_ time.Time, why error) {
	c.leave(why)
}

// leave posts nothing more. Requests of the peer that have no value are
// forgotten: its next attempt stands in for them (ARCHITECTURE.md section 6c).
func (c *Channel) leave(why error) {
	if c.state >= Leaving {
		return
	}
	c.state, c.err = Leaving, why
	c.requests.each(func(r ref, a *request) {
		switch {
		case a.state == requestWaiting:
			c.act(Action{Kind: ActDetach, ID: a.id, Attempt: a.attempt})
			c.forget(r)
		case a.inFlight == 0:
			c.release(r)
		}
	})
}

// close leaves the channel and has the shell destroy it.
func (c *Channel) close(why error) {
	if c.state >= Leaving {
		return
	}
	c.leave(why)
	c.act(Action{Kind: ActClose, Err: why})
}

// fault is the end of the channel because of what the peer did.
func (c *Channel) fault(format string, args ...any) {
	c.close(fmt.Errorf("%s, channel generation %d: %w", c.cfg.Peer, c.cfg.Generation, fmt.Errorf(format, args...)))
}

// Destroyed is the event that the queue pairs have been destroyed: nothing of
// them touches memory any more. What has not ended is given back.
func (c *Channel) Destroyed(time.Time) {
	if c.state == Gone {
		return
	}
	c.leave(errors.New("the channel was destroyed"))
	c.state = Gone
	c.requests.each(func(r ref, _ *request) { c.release(r) })
	c.receives.each(func(r ref, x *receive) {
		if !x.ended {
			c.act(Action{Kind: ActEnd, ID: x.id, Attempt: x.attempt, Handle: x.handle, Outcome: OutcomeLost, Err: c.err})
		}
		c.end(r)
	})
}

// Actions gives what is to be done about the events since it was called last, and what
// was to be said by now at the latest. They are good until it is called again; only the
// value of OutcomeWritten is good no longer than until the next Receive. Events may come
// while they are carried out: what follows from them is in the next list.
func (c *Channel) Actions(now time.Time) []Action {
	c.out = c.out[:0]
	c.repost()
	if c.state == Up {
		c.pump(now)
	}
	given := c.acts
	clear(c.spare) // what they refer to
	c.acts, c.spare = c.spare[:0], given
	return given
}

func (c *Channel) act(a Action) { c.acts = append(c.acts, a) }

// repost has the receives posted again that were taken since the last time: an eighth of
// the window at once, or all of them when the peer wants to know that something was taken.
// In a channel that is left they would come back at once.
func (c *Channel) repost() {
	least := max(1, c.cfg.Window/repostPart)
	if !c.countsBy.IsZero() {
		least = 1
	}
	for i := range c.rails[:c.cfg.Rails] {
		if r := &c.rails[i]; r.toRepost >= least && c.state < Leaving {
			c.act(Action{Kind: ActRepost, Rail: i, Count: r.toRepost})
			r.toRepost = 0
		}
	}
}
