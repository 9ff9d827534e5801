package verbstest

import (
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// schedule is a heap of future events, ordered by time, and by insertion for equal times.
type schedule struct {
	entries []timedEvent
	entered uint64
}

// timedEvent is the arrival of a packet or a timer of a queue pair.
type timedEvent struct {
	at     time.Duration // since the creation of the fabric
	number uint64
	packet *packet
	qp     *qp
	rnr    bool // the timer that follows an RNR NAK, else the retry timer
}

func (a *timedEvent) before(b *timedEvent) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

func (g *schedule) add(e timedEvent) {
	g.entered++
	e.number = g.entered
	g.entries = append(g.entries, e)
	for i := len(g.entries) - 1; i > 0; {
		up := (i - 1) / 2
		if !g.entries[i].before(&g.entries[up]) {
			break
		}
		g.entries[i], g.entries[up] = g.entries[up], g.entries[i]
		i = up
	}
}

// due removes and returns the first event if its time has come.
func (g *schedule) due(now time.Duration) (timedEvent, bool) {
	if len(g.entries) == 0 || g.entries[0].at > now {
		return timedEvent{}, false
	}
	first, last := g.entries[0], len(g.entries)-1
	g.entries[0] = g.entries[last]
	g.entries[last] = timedEvent{}
	g.entries = g.entries[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && g.entries[down].before(&g.entries[least]) {
				least = down
			}
		}
		if least == i {
			return first, true
		}
		g.entries[i], g.entries[least] = g.entries[least], g.entries[i]
		i = least
	}
}

// clock runs the schedule, under the fabric's lock.
type clock struct {
	mu       sync.Mutex // the fabric's lock: guards everything but the entries of completion queues
	start    time.Time
	now      time.Duration // since start, as of enter
	schedule schedule
	timer    *time.Timer
	set      bool          // the timer is running
	setTo    time.Duration // when it fires
	closed   bool
}

// enter locks the fabric and reads the time. Operations that can schedule events call it,
// and leave at their end.
func (f *Fabric) enter() {
	f.mu.Lock()
	f.now = time.Since(f.start)
}

// leave handles the events that are due, sets the timer for the next one, and unlocks.
func (f *Fabric) leave() {
	for !f.closed {
		e, ok := f.schedule.due(f.now)
		if !ok {
			break
		}
		switch {
		case e.packet != nil:
			f.arrive(e.packet)
		case e.rnr:
			e.qp.rnrTimer()
		default:
			e.qp.retryTimer()
		}
	}
	if len(f.schedule.entries) > 0 && !f.closed {
		if first := f.schedule.entries[0].at; !f.set || first < f.setTo {
			f.set, f.setTo = true, first
			f.timer.Reset(first - f.now)
		}
	}
	f.mu.Unlock()
}

// tick runs when the timer fires.
func (f *Fabric) tick() {
	f.mu.Lock()
	f.set = false
	f.now = time.Since(f.start)
	f.leave()
}

// asyncQueue holds asynchronous events of a device until NextEvent takes them.
type asyncQueue struct {
	events []verbs.AsyncEvent // guarded by the fabric's lock
	wake   chan struct{}      // holds a token when events changed
}

func (a *asyncQueue) push(e verbs.AsyncEvent) {
	a.events = append(a.events, e)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
