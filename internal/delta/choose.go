package delta

import "time"

// Cost is what one way to the next version takes.
type Cost struct {
	Bytes int64         // that are transferred
	Work  time.Duration // before and after that: encoding, unless it was done for others, and applying
}

// Add returns the cost of both, one after the other.
func (c Cost) Add(other Cost) Cost {
	return Cost{Bytes: c.Bytes + other.Bytes, Work: c.Work + other.Work}
}

// seconds is the time until the version is there, over a route of rate bytes a second.
func (c Cost) seconds(rate float64) float64 { return float64(c.Bytes)/rate + c.Work.Seconds() }

// Choose returns the index of the way by which the next version is there first, over a route of rate
// bytes a second. The earlier of two that take the same time is chosen, so the whole belongs to the
// front. Without a rate (0, or no number) the bytes alone count. There must be one way at least.
func Choose(rate float64, ways ...Cost) int {
	best := 0
	for i, w := range ways {
		if known(rate) && w.seconds(rate) < ways[best].seconds(rate) || !known(rate) && w.Bytes < ways[best].Bytes {
			best = i
		}
	}
	return best
}

func known(rate float64) bool { return rate > 0 }

// Summary is what a delta has, for the choice and for metrics.
type Summary struct {
	Method  Method
	Length  int64 // of the tensor, in bytes
	Bytes   int64 // of the delta
	Changes int64 // elements in sparse blocks
	Dense   int64 // bytes of the tensor in XOR blocks
}

// Whole is the cost of the tensor without a delta.
func (s Summary) Whole() Cost { return Cost{Bytes: s.Length} }

// Encode is the cost of making the delta.
func (s Summary) Encode() Cost {
	return Cost{Work: work(s.Length, speedScan) + work(s.Dense, speedXOR) + time.Duration(float64(s.Changes)*perChangeMade*second)}
}

// Apply is the cost of taking the delta, into the memory of its base or into other memory.
func (s Summary) Apply(inPlace bool) Cost {
	c := Cost{Bytes: s.Bytes, Work: work(s.Dense, speedPlane) + time.Duration(float64(s.Changes)*perChangeTaken*second)}
	if !inPlace {
		c.Work += work(s.Length, speedCopy)
	}
	return c
}

// work is the time of n bytes at a speed.
func work(n int64, speed float64) time.Duration { return time.Duration(float64(n) / speed * second) }
