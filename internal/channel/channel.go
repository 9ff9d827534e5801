package channel

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
)

// State is the state of a channel.
type State uint8

// The states, in order. See the package comment.
const (
	Opening State = iota
	Up
	Leaving
	Gone
)

func (s State) String() string { return [...]string{"opening", "up", "leaving", "gone"}[s] }

// Channel is one generation of a channel to one peer. It is not safe for concurrent use.
type Channel struct {
	cfg   Config
	state State
	err   error // why the channel was left
	began time.Time

	helloSent     bool // HELLO is posted
	helloReceived bool
	bye           bye

	rails [wire.MaxRails]rail // the first cfg.Rails are used

	// The requester's side.
	receives    slab[receive, *receive]
	byID        map[uint64]ref
	slots       slots
	metas       metas
	quarantined int64 // bytes of destinations in listQuarantine

	// The responder's side.
	requests     slab[request, *request]
	requestsByID map[uint64]ref
	shares       slab[share, *share] // of contents that are being written
	turn         uint64              // of the share that was queued last; see enqueue
	cancelledIDs queue[uint64]       // to send in CANCELLED over rail 0
	waitingIDs   queue[uint64]       // to send in WAITING
	unknownIDs   queue[uint64]       // to send in UNKNOWN

	pending pendingIDs

	lastContact time.Time // when something last arrived from the peer or completed at it
	watched     bool      // see Watch
	countsBy    time.Time // when counts are to be sent at the latest; zero without WANT_COUNTS

	acts   []Action // since the last call of Actions
	spare  []Action // what that call returned
	out    []byte   // messages in acts
	ackBuf []byte   // acknowledged ids of the message that is being encoded

	// Numbers of limits.go. Tests change them.
	stripe  uint64 // stripeUnit
	reserve int    // creditReserve

	messages Messages
}

// Messages counts what consumes a posted receive: messages and WRITE_WITH_IMMs.
type Messages struct{ Sent, Received uint64 }

// Messages returns the counts since the channel began.
func (c *Channel) Messages() Messages { return c.messages }

// bye is a close in order.
type bye struct {
	wanted bool
	posted bool
	reason []byte
	by     time.Time // when the channel closes at the latest
}

// New returns a channel. Before its first event, the shell connects the queue pairs and
// posts all receives. The error says which field of cfg is invalid.
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

// State returns the state of the channel.
func (c *Channel) State() State { return c.state }

// Err returns why the channel was left, nil before.
func (c *Channel) Err() error { return c.err }

// Ready is the event that the peer has answered our bootstrap call: its queue pairs
// receive messages.
func (c *Channel) Ready(time.Time) {
	if c.state == Opening {
		c.state = Up
	}
}

// Watch is the event that the response cache begins or ceases to keep responses for the
// peer. While it does, the channel checks that the peer is alive even when nothing is
// outstanding on it.
func (c *Channel) Watch(_ time.Time, on bool) {
	c.watched = on
}

// Doubt is the event that there is a reason to believe that the peer is not there any more. The channel checks at once, if it
// can, whether it is alive, and goes on as with Watch.
func (c *Channel) Doubt(now time.Time) {
	c.watched = true
	if c.shouldProbe() {
		c.lastContact = now.Add(-probeAfter)
	}
}

// Bye is the event that the channel is to be closed in order: BYE gives the peer the
// reason. ActClose follows within byeTime.
func (c *Channel) Bye(now time.Time, reason string) {
	switch {
	case c.state == Opening:
		c.close(errByeSent([]byte(reason)))
	case c.state == Up && !c.bye.wanted:
		if len(reason) > wire.MaxText {
			reason = strings.ToValidUTF8(reason[:wire.MaxText], "")
		}
		c.bye = bye{wanted: true, reason: []byte(reason), by: now.Add(byeTime)}
	}
}

// Leave is the event that the shell leaves the channel: a work request failed, the peer
// left this generation, or the device is gone. Nothing is posted from now on, and no
// ActClose follows.
func (c *Channel) Leave(_ time.Time, why error) {
	c.leave(why)
}

// leave ends posting. It drops requests of the peer that have no response: the peer sends
// them again with the next attempt (ARCHITECTURE.md section 6, rule c).
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

// fault closes the channel because of an error of the peer.
func (c *Channel) fault(format string, args ...any) {
	c.close(fmt.Errorf("%s, channel generation %d: %w", c.cfg.Peer, c.cfg.Generation, fmt.Errorf(format, args...)))
}

// silent closes the channel because the peer does not answer. The code DeadlineExceeded tells
// that from a fault.
func (c *Channel) silent(format string, args ...any) {
	c.close(status.Errorf(status.DeadlineExceeded, "%s, channel generation %d: %w", c.cfg.Peer, c.cfg.Generation, fmt.Errorf(format, args...)))
}

// Destroyed is the event that the queue pairs are destroyed, so that they do not access
// memory any more. Every receive ends, and every destination and source is returned.
func (c *Channel) Destroyed(time.Time) {
	if c.state == Gone {
		return
	}
	c.leave(errors.New("the channel was destroyed"))
	c.state = Gone
	c.requests.each(func(r ref, _ *request) { c.release(r) })
	c.receives.each(func(r ref, _ *receive) {
		c.endWith(r, Action{Outcome: OutcomeLost, Err: c.err})
	})
}

// Actions returns what to do about the events since the last call, and what is due at now.
// The slice is valid until the next call; the value of OutcomeWritten only until the next
// Receive. Events may be passed while the actions are carried out: their actions are in
// the next slice.
func (c *Channel) Actions(now time.Time) []Action {
	c.out = c.out[:0]
	c.repost()
	if c.state == Up {
		c.pump(now)
	}
	given := c.acts
	clear(c.spare) // release what they refer to
	c.acts, c.spare = c.spare[:0], given
	return given
}

func (c *Channel) act(a Action) { c.acts = append(c.acts, a) }

// repost posts receives again that were consumed since the last time: an eighth of the
// window at once, or all of them when the peer has set WANT_COUNTS. Queue pairs of a
// channel that is left would flush them at once, so it posts none there.
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
