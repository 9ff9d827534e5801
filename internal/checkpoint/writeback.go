package checkpoint

// writeback decides when the kernel begins to write to the disk what is in its cache. Without it
// most of a file would wait there for the sync at the end, while the disk is idle.
type writeback struct {
	dirty    int64 // bytes written since the last range
	from, to int64 // that have them all; valid if dirty is not 0
}

// wrote takes note of a range that was written. After every writebackBytes it returns the range to
// begin with, from the first to the last of these bytes; otherwise an empty one.
func (w *writeback) wrote(p piece) (begin piece) {
	if w.dirty == 0 {
		w.from, w.to = p.off, p.end()
	}
	w.from, w.to = min(w.from, p.off), max(w.to, p.end())
	if w.dirty += p.n; w.dirty < writebackBytes {
		return piece{}
	}
	w.dirty = 0
	return piece{w.from, w.to - w.from}
}
