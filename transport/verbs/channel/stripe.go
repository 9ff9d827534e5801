package channel

// Stripes is over how many of the rails, the first ones, a content of size bytes is
// written. Both sides compute it (PROTOCOL.md section 8): the asker waits for so many.
func (c *Channel) Stripes(size uint64) int {
	return int(min(max(size/c.stripe, 1), uint64(c.cfg.Rails))) //nolint:gosec // at most wire.MaxRails
}

// stripe is the part of a content that one of n rails carries.
func stripe(size uint64, n, rail int) (from, to uint64) {
	share := (size + uint64(n) - 1) / uint64(n) //nolint:gosec // not negative
	share = (share + pageSize - 1) / pageSize * pageSize
	from = min(uint64(rail)*share, size) //nolint:gosec // not negative
	return from, min(from+share, size)
}
