package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// A content outside registered memory is staged: copied into registered memory. The shell
// allocates that memory only when the destination is known, so that a peer that never
// sends one does not occupy any.

// startContent is called when the destination of a content is known. It stages the content
// if necessary, and starts its writes.
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

// findStaging returns the request of an ActStage, none when it has ended meanwhile.
func (c *Channel) findStaging(id uint64, attempt uint32) ref {
	r, ok := c.requestsByID[id]
	if !ok || c.requests.at(r).attempt != attempt || c.requests.at(r).state != requestStaging || c.state >= Leaving {
		return none
	}
	return r
}

// Staged answers ActStage: src is a copy of the content in registered memory.
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

// NotStaged answers ActStage when there is no registered memory for the content, for the
// reason err: the requester repeats the request over gRPC.
func (c *Channel) NotStaged(now time.Time, id uint64, attempt uint32, err *status.Error) {
	if r := c.findStaging(id, attempt); r != none {
		c.Fail(now, id, attempt, err)
		c.requests.at(r).fallback = true
	}
}
