package channel

// share is the part of a content that one rail carries, from the answer until its last
// write, or what takes its place, is posted.
type share struct {
	node
	request  ref
	rail     uint8
	from, to uint64 // of the content: what is still to be written
	turn     uint64 // orders the shares of a rail: each write of one puts it behind the others
}

// shareList is what a share waits for. A rail has one list of each.
type shareList uint8

const (
	sharesMore  shareList = iota // to be written, with more than one write
	sharesLast                   // to be written, with the last write: it takes a credit
	sharesToEnd                  // CANCELLED or ERROR is to be posted
	shareLists
)

// on is the list of a rail.
func (l shareList) on(rail int) listID {
	return 1 + listID(rail)*listID(shareLists) + listID(l) //nolint:gosec // at most wire.MaxRails
}

// write begins to write a content into the destination that is known.
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

// line puts a share behind the others that are to be written on its rail.
func (c *Channel) enqueue(s ref) {
	x := c.shares.at(s)
	c.turn++
	x.turn = c.turn
	l := sharesMore
	if x.to-x.from <= uint64(c.cfg.Chunk) { //nolint:gosec // not negative
		l = sharesLast
	}
	c.shares.move(s, l.on(int(x.rail)))
}

// turnOf is the share of a rail whose turn it is, and whether its next write is its last.
// While last writes have no credit, only those are considered that need none.
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

// endEach has CANCELLED or ERROR posted on every rail that has not had its last write.
func (c *Channel) endOnRails(a *request) {
	a.state = requestEnding
	for _, s := range a.shares[:c.Stripes(a.value.Size)] {
		if s != none {
			c.shares.move(s, sharesToEnd.on(int(c.shares.at(s).rail)))
		}
	}
}

// lastPosted is the end of a share: nothing of it is to be posted any more.
func (c *Channel) closeShare(s ref) {
	x := c.shares.at(s)
	a := c.requests.at(x.request)
	a.shares[c.shareOf(a.dest.First, int(x.rail))] = none
	c.shares.remove(s)
	a.openShares--
}

// dropShares forgets the shares of a content.
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
