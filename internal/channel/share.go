package channel

// share is the part of a content that one rail carries. It exists from the time that the
// destination is known until its last write, or the CANCELLED or ERROR that replaces it,
// is posted.
type share struct {
	node
	request  ref
	rail     uint8
	from, to uint64 // range of the content that is still to be written
	turn     uint64 // order among the shares of a rail; see enqueue
}

// shareList is what a share waits for. Each rail has a list of each.
type shareList uint8

const (
	sharesMore  shareList = iota // for more than one write
	sharesLast                   // for the last write, which consumes a credit
	sharesToEnd                  // for CANCELLED or ERROR
	shareLists
)

// on returns the list of a rail.
func (l shareList) on(rail int) listID {
	return 1 + listID(rail)*listID(shareLists) + listID(l) //nolint:gosec // at most wire.MaxRails
}

// startWrites makes the shares of a content. Its destination is known.
func (c *Channel) startWrites(r ref) {
	a := c.requests.at(r)
	a.state, a.openShares = requestWriting, c.Stripes(a.value.Size)
	for i := range a.openShares {
		s := c.shares.add()
		x := c.shares.at(s)
		*x = share{node: x.node, request: r, rail: uint8(c.RailOf(a.dest.First, i))} //nolint:gosec // at most wire.MaxRails
		x.from, x.to = stripe(a.value.Size, a.openShares, i)
		a.shares[i] = s
		c.enqueue(s)
	}
}

// enqueue puts a share after the others that are to be written on its rail, so that the
// shares of a rail take turns.
func (c *Channel) enqueue(s ref) {
	x := c.shares.at(s)
	c.turn++
	x.turn = c.turn
	l := sharesMore
	if x.to-x.from <= c.chunkOf(c.requests.at(x.request)) {
		l = sharesLast
	}
	c.shares.move(s, l.on(int(x.rail)))
}

// chunkOf returns the most bytes of one write of a content.
func (c *Channel) chunkOf(a *request) uint64 {
	if long := uint64(c.cfg.LongChunk); a.value.Size >= 2*long { //nolint:gosec // not negative
		return long
	}
	return uint64(c.cfg.Chunk) //nolint:gosec // not negative
}

// nextShare returns the share of a rail whose turn it is, and whether its next write is its
// last. Without a credit it returns only shares whose next write needs none.
func (c *Channel) nextShare(rail int, credit bool) (s ref, last bool) {
	more, lasts := c.shares.first(sharesMore.on(rail)), c.shares.first(sharesLast.on(rail))
	switch {
	case lasts == none || !credit:
		return more, false
	case more == none || c.shares.at(lasts).turn < c.shares.at(more).turn:
		return lasts, true
	}
	return more, false
}

// endOnRails queues CANCELLED or ERROR on every rail whose last write is not posted.
func (c *Channel) endOnRails(a *request) {
	a.state = requestEnding
	for _, s := range a.shares[:c.Stripes(a.value.Size)] {
		if s != none {
			c.shares.move(s, sharesToEnd.on(int(c.shares.at(s).rail)))
		}
	}
}

// closeShare removes a share of which nothing is left to post.
func (c *Channel) closeShare(s ref) {
	x := c.shares.at(s)
	a := c.requests.at(x.request)
	a.shares[c.shareOf(a.dest.First, int(x.rail))] = none
	c.shares.remove(s)
	a.openShares--
}

// dropShares removes the shares of a content.
func (c *Channel) dropShares(a *request) {
	if a.openShares == 0 {
		return
	}
	for _, s := range a.shares[:c.Stripes(a.value.Size)] {
		if s != none {
			c.shares.remove(s)
		}
	}
	a.openShares = 0
}
