package transporttest

import (
	"sync"
	"time"
)

// valve implements Faults without doing any I/O. It decides how many bytes may flow over its
// lanes; a lane is one connection. The owner of the valve moves the bytes.
type valve struct {
	mu    sync.Mutex // guards the fields below
	lanes map[*lane]struct{}
	// carried counts the bytes from the task to the requesters.
	carried   int64
	cut, hold mark
	held      chan struct{} // closed by Release; nil without a hold
	rate      int64         // bytes per second; 0 for no limit
	free      time.Time     // when the rate permits the next byte
}

// mark is a number of carried bytes at which a cut or hold happens.
type mark struct {
	at      int64
	reached chan struct{} // nil for no mark
}

// lane is one connection.
type lane struct {
	v      *valve
	broken chan struct{}
	onCut  func() // called once, without the lock; may be nil
}

func newValve() *valve { return &valve{lanes: make(map[*lane]struct{})} }

// open adds a connection.
func (v *valve) open(onCut func()) *lane {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := &lane{v: v, broken: make(chan struct{}), onCut: onCut}
	v.lanes[l] = struct{}{}
	return l
}

// close removes a connection without breaking it.
func (l *lane) close() {
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	delete(l.v.lanes, l)
}

// CutAfter implements Faults.
func (v *valve) CutAfter(n int64) <-chan struct{} {
	v.mu.Lock()
	v.cut = mark{at: v.carried + n, reached: make(chan struct{})}
	c := v.cut.reached
	var cut []*lane
	if n == 0 {
		cut = v.cutLocked()
	}
	v.mu.Unlock()
	breakAll(cut)
	return c
}

// cutLocked removes all lanes and returns them. The caller must call breakAll without the lock.
func (v *valve) cutLocked() []*lane {
	var cut []*lane
	for l := range v.lanes {
		cut = append(cut, l)
		close(l.broken)
	}
	clear(v.lanes)
	if v.cut.reached != nil {
		close(v.cut.reached)
		v.cut = mark{}
	}
	return cut
}

func breakAll(lanes []*lane) {
	for _, l := range lanes {
		if l.onCut != nil {
			l.onCut()
		}
	}
}

// HoldAfter implements Faults.
func (v *valve) HoldAfter(n int64) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hold = mark{at: v.carried + n, reached: make(chan struct{})}
	c := v.hold.reached
	if n == 0 {
		v.holdLocked()
	}
	return c
}

func (v *valve) holdLocked() {
	if v.held == nil {
		v.held = make(chan struct{})
	}
	close(v.hold.reached)
	v.hold = mark{}
}

// Release implements Faults.
func (v *valve) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held != nil {
		close(v.held)
		v.held = nil
	}
	v.cut, v.hold = mark{}, mark{}
}

// Throttle implements Faults.
func (v *valve) Throttle(bytesPerSecond int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rate, v.free = bytesPerSecond, time.Time{}
}

// toTask waits until bytes to the task may flow. It returns false after a cut.
func (l *lane) toTask() bool {
	for {
		l.v.mu.Lock()
		held := l.v.held
		l.v.mu.Unlock()
		if !l.waitFor(held) {
			return false
		}
		if held == nil {
			return true
		}
	}
}

// fromTask waits until some of n bytes to the requesters may flow, and returns how many. It
// returns false after a cut.
func (l *lane) fromTask(n int) (int, bool) {
	for {
		l.v.mu.Lock()
		held := l.v.held
		if held == nil {
			k, wait, cut := l.v.takeLocked(n)
			l.v.mu.Unlock()
			breakAll(cut)
			if k > 0 {
				return k, l.sleep(wait)
			}
			if cut != nil {
				return 0, false
			}
			continue // takeLocked has started a hold
		}
		l.v.mu.Unlock()
		if !l.waitFor(held) {
			return 0, false
		}
	}
}

// takeLocked permits k of n bytes after a wait; none when it reaches a mark.
func (v *valve) takeLocked(n int) (k int, wait time.Duration, cut []*lane) {
	k = n
	if v.cut.reached != nil {
		if k = min(k, int(v.cut.at-v.carried)); k <= 0 {
			return 0, 0, v.cutLocked()
		}
	}
	if v.hold.reached != nil {
		if k = min(k, int(v.hold.at-v.carried)); k <= 0 {
			v.holdLocked()
			return 0, 0, nil
		}
	}
	v.carried += int64(k)
	if v.rate > 0 {
		now := time.Now()
		if v.free.Before(now) {
			v.free = now
		}
		v.free = v.free.Add(time.Duration(int64(k) * int64(time.Second) / v.rate))
		wait = v.free.Sub(now)
	}
	return k, wait, nil
}

// waitFor waits until held, if not nil, is closed. It returns false after a cut.
func (l *lane) waitFor(held <-chan struct{}) bool {
	if held == nil {
		select {
		case <-l.broken:
			return false
		default:
			return true
		}
	}
	select {
	case <-held:
		return true
	case <-l.broken:
		return false
	}
}

func (l *lane) sleep(d time.Duration) bool {
	if d <= 0 {
		return l.waitFor(nil)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.broken:
		return false
	}
}
