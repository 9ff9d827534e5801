package verbstransport

import "sync"

// group counts goroutines that start each other. Unlike sync.WaitGroup it allows an add at
// any time, also during Wait when the count is 0.
type group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n becomes 0; nil when no goroutine waits
}

// Go runs f on a new goroutine.
func (g *group) Go(f func()) {
	g.add()
	go func() {
		defer g.done()
		f()
	}()
}

// add counts something other than a goroutine, until done is called.
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

// Wait returns when the count is 0.
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
