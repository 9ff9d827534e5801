package bench

import (
	"sync"
	"time"
)

// memoryWatch looks at the memory of this process again and again.
type memoryWatch struct {
	ended chan struct{}
	work  sync.WaitGroup
	peak  int64
	err   error
}

// watchMemory begins with it. The caller stops it.
func watchMemory() *memoryWatch {
	m := &memoryWatch{ended: make(chan struct{})}
	m.work.Go(m.run)
	return m
}

func (m *memoryWatch) run() {
	tick := time.NewTicker(memoryTick)
	defer tick.Stop()
	for m.err == nil {
		var n int64
		n, m.err = owned()
		m.peak = max(m.peak, n)
		select {
		case <-tick.C:
		case <-m.ended:
			return
		}
	}
}

// stop returns the most that was seen.
func (m *memoryWatch) stop() (int64, error) {
	close(m.ended)
	m.work.Wait()
	return m.peak, m.err
}
