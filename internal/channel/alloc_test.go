package channel

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// allocPair is a pair that records nothing, so that it allocates nothing.
type allocPair struct {
	ends  [2]*Channel
	now   time.Time
	value wire.Value
	early Dest
	ended int
	buf   [2][]byte
}

func newAllocPair(t testing.TB, size int64) *allocPair {
	p := newPair(t)
	c := &allocPair{ends: [2]*Channel{p.ends[0].ch, p.ends[1].ch}, now: p.now, value: valueOf(size), early: Dest{Handle: 1}}
	c.buf[0], c.buf[1] = make([]byte, 0, 12<<10), make([]byte, 0, 12<<10)
	return c
}

func (c *allocPair) run() {
	for busy := true; busy; {
		busy = false
		for i, ch := range c.ends {
			acts := ch.Actions(c.now)
			for k := range acts {
				busy = true
				switch a := &acts[k]; a.Kind {
				case ActEnd:
					c.ended++
				case ActRequest:
					ch.Respond(c.now, a.Request.ID, a.Request.Attempt, Response{Value: c.value, Source: Source{Handle: 1}})
				case ActPlace:
					ch.Place(c.now, a.ID, a.Attempt, c.early)
				case ActPost:
					p := &a.Post
					switch p.Op {
					case verbs.OpSend:
						b := append(c.buf[i][:0], p.Message...)
						b = b[:len(b)+int(p.Length)]
						c.ends[1-i].Message(c.now, 0, b)
					case verbs.OpWriteImm:
						c.ends[1-i].Imm(c.now, 0, p.Imm)
					}
					if p.Signaled {
						ch.Sent(c.now, 0, p.Slot)
					}
				}
			}
		}
	}
}

func (c *allocPair) receive(id uint64, riders []uint64) {
	r := Receive{ID: id, Attempt: 1, Responder: 2, Key: "k", Acks: riders}
	if v, ok := c.ends[0].CachedMeta(r.Key); ok {
		r.Early, r.Value = &c.early, v
	}
	c.ends[0].Receive(c.now, r)
	c.run()
}

// TestSteadyStateAllocatesNothing at either side, for small and large values.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for name, size := range map[string]int64{"8 bytes": 8, "8 KiB": 8 << 10, "1 MiB": 1 << 20} {
		c := newAllocPair(t, size)
		id := uint64(0)
		riders := make([]uint64, 1)
		one := func() {
			id++
			riders[0] = id - 1
			c.receive(id, riders)
		}
		for range 100 {
			one()
		}
		if n := testing.AllocsPerRun(1000, one); n != 0 {
			t.Errorf("%s: %v allocations for each receive", name, n)
		}
		if c.ended != int(id) {
			t.Errorf("%s: %d of %d ended", name, c.ended, id)
		}
	}
}

// BenchmarkReceive measures the time of both channels for one receive.
func BenchmarkReceive(b *testing.B) {
	for _, bench := range []struct {
		name string
		size int64
	}{{"8B", 8}, {"1MiB", 1 << 20}, {"16MiB", 16 << 20}} {
		b.Run(bench.name, func(b *testing.B) {
			c := newAllocPair(b, bench.size)
			b.ReportAllocs()
			id := uint64(0)
			riders := make([]uint64, 1)
			for b.Loop() {
				id++
				riders[0] = id
				c.receive(id, riders)
			}
		})
	}
}
