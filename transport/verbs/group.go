package verbstransport

import "sync"

// group counts goroutines that start each other: unlike a sync.WaitGroup it may
// be added to at any time, also while somebody waits and nothing runs.
type group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil when nobody waits
}

// Go runs f on a goroutine of its own.
func (g *group) Go(f func()) {
	g.add()
	go func() {
		defer g.done()
		f()
	}()
}

// add counts something that is not a goroutine and ends with done.
func (g *group) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
}

func (g *group) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Wait returns when nothing runs.
func (g *group) Wait() {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	<-idle
}
