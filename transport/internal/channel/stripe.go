package channel

import "math/bits"

// A content goes in shares over some of the rails: one after the other from that which
// the asker chose, and after the last rail the first. Both sides compute this
// (PROTOCOL.md section 8.5): the asker waits for the last of each share.

// Stripes is in how many shares a content of size bytes is written, each over a rail of
// its own.
func (c *Channel) Stripes(size uint64) int {
	return int(min(max(size/c.stripe, 1), uint64(c.cfg.Rails))) //nolint:gosec // at most wire.MaxRails
}

// RailOf is the rail that carries a share of a content whose first share is on first.
func (c *Channel) RailOf(first uint8, share int) int { return (int(first) + share) % c.cfg.Rails }

// shareOf is the share that a rail carries, if there are so many.
func (c *Channel) shareOf(first uint8, rail int) int {
	return (rail - int(first) + c.cfg.Rails) % c.cfg.Rails
}

// expects reports whether the last of a receive's content, whose destination the peer
// knows, is still to come on a rail.
func (c *Channel) expects(x *receive, rail int) bool {
	return c.shareOf(x.dest.First, rail) < c.Stripes(x.value.Size) && x.railsDone&(1<<rail) == 0
}

// complete reports whether the last has come of every share of a receive.
func (c *Channel) complete(x *receive) bool {
	return bits.OnesCount8(x.railsDone) == c.Stripes(x.value.Size)
}

// stripe is the part of a content that is one of its n shares.
func stripe(size uint64, n, share int) (from, to uint64) {
	each := (size + uint64(n) - 1) / uint64(n) //nolint:gosec // not negative
	each = (each + pageSize - 1) / pageSize * pageSize
	from = min(uint64(share)*each, size) //nolint:gosec // not negative
	return from, min(from+each, size)
}
