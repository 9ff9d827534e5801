package tensor

import (
	"testing"
	"testing/synctest"
	"time"
)

// burst allocates n blocks at once and releases them.
func burst(t *testing.T, p *Pool, n, size int) {
	t.Helper()
	var all []*Buffer
	for range n {
		all = append(all, allocate(t, p, size))
	}
	for _, b := range all {
		b.Release()
	}
}

// TestPoolGivesMemoryBackAfterABurst: nothing is kept when the pool has been idle for twice its
// time, and no timer runs then.
func TestPoolGivesMemoryBackAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(PoolOptions{})
		for range 2 {
			for _, size := range []int{100, 40_000, 1 << 20, 30 << 20} {
				burst(t, p, 4, size)
			}
			if s := p.Stats(); s.Kept < 4*31<<20 || !p.timer.Running() {
				t.Fatalf("%d bytes are kept, the timer runs: %v", s.Kept, p.timer.Running())
			}
			time.Sleep(2*DefaultIdle + time.Second)
			synctest.Wait()
			if s := p.Stats(); s.Kept != 0 || p.held.Load() != 0 {
				t.Errorf("%d bytes are kept and %d held after %v", s.Kept, p.held.Load(), 2*DefaultIdle)
			}
			time.Sleep(DefaultIdle)
			synctest.Wait()
			if p.timer.Running() {
				t.Error("the timer of an empty pool runs")
			}
		}
	})
}

// TestPoolKeepsWhatASteadyLoadUses: with pauses below the time the blocks in use stay, and those
// of a burst before go.
func TestPoolKeepsWhatASteadyLoadUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 2 << 20
		p := NewPool(PoolOptions{Idle: 10 * time.Second})
		defer p.Trim()
		burst(t, p, 20, size)
		for range 20 {
			time.Sleep(9 * time.Second)
			burst(t, p, 3, size)
		}
		c := p.Stats().Classes[0]
		if c.Misses != 20 || c.Kept != 3 {
			t.Errorf("%d allocations found no block after a burst of 20, %d blocks are kept; want 3", c.Misses-20, c.Kept)
		}
	})
}

// TestPoolThatKeepsItsMemory: a negative time keeps blocks until Trim.
func TestPoolThatKeepsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(PoolOptions{Idle: -1})
		burst(t, p, 3, 1<<20)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := p.Stats(); s.Kept != 3<<20 {
			t.Errorf("%d bytes are kept", s.Kept)
		}
		p.Trim()
	})
}

// TestEvictionBetweenIdleSweeps: blocks that were evicted are not counted as unused ones.
func TestEvictionBetweenIdleSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(PoolOptions{Keep: 8 << 20, Idle: 10 * time.Second})
		defer p.Trim()
		burst(t, p, 4, 2<<20)
		time.Sleep(11 * time.Second) // four are unused from now on
		burst(t, p, 3, 1<<20)        // evicts two of them
		burst(t, p, 2, 2<<20)        // uses two, or makes new ones
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := p.Stats(); s.Kept < 4<<20 {
			t.Errorf("%d bytes are kept: blocks that were used 10 s ago are gone", s.Kept)
		}
	})
}
