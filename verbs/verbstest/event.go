package verbstest

import (
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// agenda is what is going to happen, in order of time and, at one time, in the
// order in which it was entered: a heap.
type agenda struct {
	entries []entry
	entered uint64
}

// entry is one thing that happens: a packet arrives, or a queue pair is woken.
type entry struct {
	at     time.Duration // since the fabric was made
	number uint64
	packet *packet
	qp     *qp
	rnr    bool // the queue pair has waited for receives of its peer, else its retry timer
}

func (a *entry) before(b *entry) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

func (g *agenda) add(e entry) {
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

// due takes the first entry if its time has come.
func (g *agenda) due(now time.Duration) (entry, bool) {
	if len(g.entries) == 0 || g.entries[0].at > now {
		return entry{}, false
	}
	first, last := g.entries[0], len(g.entries)-1
	g.entries[0] = g.entries[last]
	g.entries[last] = entry{}
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

// clock runs the agenda under the fabric's lock.
type clock struct {
	mu     sync.Mutex // the fabric's lock: guards everything but the completion queues' entries
	start  time.Time
	now    time.Duration // since start, as of enter
	agenda agenda
	timer  *time.Timer
	set    bool // the timer is going to fire
	setTo  time.Duration
	closed bool
}

// enter takes the lock for something that may let things happen; leave gives it
// back.
func (f *Fabric) enter() {
	f.mu.Lock()
	f.now = time.Since(f.start)
}

// leave does what is due, sets the timer for what is not, and unlocks.
func (f *Fabric) leave() {
	for !f.closed {
		e, ok := f.agenda.due(f.now)
		if !ok {
			break
		}
		switch {
		case e.packet != nil:
			f.arrive(e.packet)
		case e.rnr:
			e.qp.receivesMayBeThere()
		default:
			e.qp.retryTimer()
		}
	}
	if len(f.agenda.entries) > 0 && !f.closed {
		if first := f.agenda.entries[0].at; !f.set || first < f.setTo {
			f.set, f.setTo = true, first
			f.timer.Reset(first - f.now)
		}
	}
	f.mu.Unlock()
}

// tick is the timer's.
func (f *Fabric) tick() {
	f.mu.Lock()
	f.set = false
	f.now = time.Since(f.start)
	f.leave()
}

// asyncQueue holds a device's asynchronous events until somebody asks.
type asyncQueue struct {
	events []verbs.AsyncEvent // guarded by the fabric's lock
	wake   chan struct{}      // one token: look at events
}

func (a *asyncQueue) push(e verbs.AsyncEvent) {
	a.events = append(a.events, e)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
