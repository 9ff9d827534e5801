package channel

import "math/bits"

// A content is written in shares over consecutive rails, beginning with the rail that the
// requester chose; rail 0 follows the last rail. With Config.Apart rail 1 does. Both sides compute the shares (PROTOCOL.md
// section 8.5): the requester waits for the last write of each.

// Stripes returns the number of shares of a content of size bytes. Each share goes over
// another rail.
func (c *Channel) Stripes(size uint64) int {
	return int(min(max(size/c.stripe, 1), uint64(c.contentRails()))) //nolint:gosec // at most wire.MaxRails
}

// RailOf returns the rail of a share. first is the rail of the first share.
func (c *Channel) RailOf(first uint8, share int) int {
	n := c.contentRails()
	skipped := c.cfg.Rails - n
	return skipped + (max(int(first), skipped)-skipped+share)%n
}

// contentRails is the number of rails that carry contents: all, or the last ones.
func (c *Channel) contentRails() int {
	if c.cfg.Apart && c.cfg.Rails > 1 {
		return c.cfg.Rails - 1
	}
	return c.cfg.Rails
}

// shareOf returns the number of the share that a rail carries. The content has such a
// share only if the number is less than Stripes.
func (c *Channel) shareOf(first uint8, rail int) int {
	n := c.contentRails()
	skipped := c.cfg.Rails - n
	if rail < skipped {
		return n // no share
	}
	return (rail - max(int(first), skipped) + n) % n
}

// expects reports whether the last write of a share, or the message that replaces it, has
// still to arrive on a rail. The destination of x has been sent.
func (c *Channel) expects(x *receive, rail int) bool {
	return c.shareOf(x.dest.First, rail) < c.Stripes(x.value.Size) && x.railsDone&(1<<rail) == 0
}

// complete reports whether every share of a receive has ended.
func (c *Channel) complete(x *receive) bool {
	return bits.OnesCount8(x.railsDone) == c.Stripes(x.value.Size)
}

// stripe returns the range of bytes of a share, from 0, of the n shares of a content.
func stripe(size uint64, n, share int) (from, to uint64) {
	each := (size + uint64(n) - 1) / uint64(n) //nolint:gosec // not negative
	each = (each + pageSize - 1) / pageSize * pageSize
	from = min(uint64(share)*each, size) //nolint:gosec // not negative
	return from, min(from+each, size)
}
