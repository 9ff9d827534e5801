package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// A content that does not lie in registered memory is staged: copied into memory that a
// device can read. The shell takes that memory when the destination of the content is
// known and not before, so that a peer which never says where a content goes holds none.

// begin is called when the destination of a content is known: it is staged, where that
// is needed, and written.
func (c *Channel) startContent(r ref) {
	a := c.requests.at(r)
	c.requests.move(r, noList)
	if !a.unstaged {
		c.startWrites(r)
		return
	}
	a.state = requestStaging
	c.act(Action{Kind: ActStage, ID: a.id, Attempt: a.attempt, Source: a.source})
}

// staging is the request whose content ActStage wanted; none when it has ended meanwhile.
func (c *Channel) findStaging(id uint64, attempt uint32) ref {
	r, ok := c.requestsByID[id]
	if !ok || c.requests.at(r).attempt != attempt || c.requests.at(r).state != requestStaging || c.state >= Leaving {
		return none
	}
	return r
}

// Staged is the event that a content lies in registered memory, as ActStage wanted: it
// is written from src.
func (c *Channel) Staged(_ time.Time, id uint64, attempt uint32, src Source) {
	r := c.findStaging(id, attempt)
	if r == none {
		c.act(Action{Kind: ActDrop, Source: src})
		return
	}
	a := c.requests.at(r)
	c.act(Action{Kind: ActDrop, Source: a.source})
	a.source, a.unstaged = src, false
	c.startWrites(r)
}

// NotStaged is the event that there is no registered memory for a content, as ActStage
// wanted, because of err: it goes over another wire.
func (c *Channel) NotStaged(now time.Time, id uint64, attempt uint32, err *status.Error) {
	if r := c.findStaging(id, attempt); r != none {
		c.Fail(now, id, attempt, err)
		c.requests.at(r).fallback = true
	}
}
