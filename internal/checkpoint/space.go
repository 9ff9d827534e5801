package checkpoint

import (
	"sync"

	"github.com/tryst-rdma/tryst/status"
)

// The size of a file is a claim of the server until its bytes have come. So a pull asks the file system
// whether there is space for all of it, which is an early error on a disk that is too small, and
// reserves disk only a little ahead of what has come (maxReserved).

// checkSpace returns ResourceExhausted if the files, which are in one directory and will have these
// sizes, do not fit on the disk.
func checkSpace(targets []*target, sizes []int64) error {
	if len(targets) == 0 {
		return nil
	}
	free, ok := freeSpace(targets[0].file)
	if !ok {
		return nil
	}
	need := float64(0) // a sum of claims
	for n, t := range targets {
		need += max(float64(sizes[n]-usedSpace(t.file)), 0)
	}
	if need <= float64(free) {
		return nil
	}
	what := targets[0].path + partExt
	if n := len(targets); n > 1 {
		return status.Errorf(status.ResourceExhausted, "creating %s and %d other files needs %.0f bytes of disk, and %d are free", what, n-1, need, free)
	}
	return status.Errorf(status.ResourceExhausted, "creating %s needs %.0f bytes of disk, and %d are free", what, need, free)
}

// reserve is the disk that the files of one pull have reserved ahead of what has come.
type reserve struct {
	mu    sync.Mutex
	ahead int64 // in bytes, at most maxReserved
}

// take returns how much of n bytes may be reserved.
func (r *reserve) take(n int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = max(min(n, maxReserved-r.ahead), 0)
	r.ahead += n
	return n
}

func (r *reserve) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead -= n
}

// reserveLocked reserves the next step when little is left of what the file has ahead of the n bytes that
// are about to be written. The caller holds writing.
func (t *target) reserveLocked(n int64) error {
	came := min(n, t.ahead)
	t.ahead -= came
	t.reserve.give(came)
	if t.ahead >= reserveStep/2 || t.reserved >= t.size {
		return nil
	}
	step := t.reserve.take(min(reserveStep, t.size-t.reserved))
	if step == 0 {
		return nil
	}
	ok, err := allocate(t.file, piece{t.reserved, step})
	if !ok {
		t.reserve.give(step)
		t.reserved = t.size // not again
		return err
	}
	t.reserved += step
	t.ahead += step
	return nil
}
