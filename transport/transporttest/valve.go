package transporttest

import (
	"sync"
	"time"
)

// valve is a Link as a value: it decides what may flow over lanes, each of which
// is a connection. What flows is its owner's affair.
type valve struct {
	mu    sync.Mutex // guards what follows
	lanes map[*lane]struct{}
	// carried counts the bytes towards the askers.
	carried   int64
	cut, hold mark
	held      chan struct{} // closed by Release; nil while the flow is free
	rate      int64         // bytes per second; 0 for no limit
	free      time.Time     // when the rate lets the next byte pass
}

// mark is a number of carried bytes at which something happens.
type mark struct {
	at      int64
	reached chan struct{} // nil when nothing is to happen
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

// close ends a connection without breaking it.
func (l *lane) close() {
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	delete(l.v.lanes, l)
}

// CutAfter implements Link.
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

// cutLocked takes all lanes out. The caller breaks them without the lock.
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

// HoldAfter implements Link.
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

// Release implements Link.
func (v *valve) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held != nil {
		close(v.held)
		v.held = nil
	}
	v.cut, v.hold = mark{}, mark{}
}

// Throttle implements Link.
func (v *valve) Throttle(bytesPerSecond int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rate, v.free = bytesPerSecond, time.Time{}
}

// toTask waits until bytes towards the task may flow; false when the
// connection was cut.
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

// fromTask waits until some of n bytes towards the askers may flow, and returns
// how many; false when the connection was cut.
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
			continue // it is held now
		}
		l.v.mu.Unlock()
		if !l.waitFor(held) {
			return 0, false
		}
	}
}

// takeLocked lets up to n bytes pass after a wait, or none when it reaches a
// mark.
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

// waitFor waits for the end of a hold, if there is one; false when the
// connection was cut.
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
