package checkpoint

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/delta"
)

// Which tensors a puller gets by deltas, and for which deltas it waits, as pure functions of what its route is like and of what
// is known of the deltas.

// pullRoute is what a puller has measured of its route.
type pullRoute struct {
	rate float64       // bytes a second; 0 if it is not known: then bytes alone count
	trip time.Duration // a round trip; 0 if it is not known
}

// receives is what n receives cost beside their content, one after the other.
func (r pullRoute) receives(n int64) delta.Cost {
	return delta.Cost{Bytes: n * receiveBytes, Work: time.Duration(n) * r.trip}
}

// whole is the cost of a tensor of so many bytes. Its pieces are requested together.
func (r pullRoute) whole(length int64) delta.Cost {
	pieces := max(1, (length+pieceBytes-1)/pieceBytes)
	return delta.Cost{Bytes: length + pieces*receiveBytes, Work: r.trip}
}

// gains reports whether a tensor is there earlier by n deltas, which are received one after the other, than whole.
func (r pullRoute) gains(length int64, deltas delta.Cost, n int) bool {
	return delta.Choose(r.rate, r.whole(length), deltas.Add(r.receives(int64(n)))) == 1
}

// awaited is a tensor of a pull that may come by deltas, of which the last one may still be made.
type awaited struct {
	ready  time.Duration // until it is made; 0 if it is
	gains  bool          // when it is made
	length int64         // of the tensor
	deltas delta.Cost    // with their receives
}

// await returns for how many of these tensors, from the first on, a pull waits, so that all of them are there first. They are
// made in this order, and nothing is received before the wait is over. The others that are not made come whole.
func (r pullRoute) await(all []awaited) (n int) {
	if r.rate <= 0 { // bytes alone count
		for i, a := range all {
			if a.gains && a.ready > 0 {
				n = i + 1
			}
		}
		return n
	}
	rest := 0.0 // seconds for what comes whole without any wait
	for _, a := range all {
		if a.ready > 0 || !a.gains {
			rest += r.seconds(r.whole(a.length))
		} else {
			rest += r.seconds(a.deltas)
		}
	}
	best := rest
	for i, a := range all {
		if !a.gains || a.ready == 0 {
			continue
		}
		rest += r.seconds(a.deltas) - r.seconds(r.whole(a.length))
		if t := a.ready.Seconds() + rest; t < best {
			best, n = t, i+1
		}
	}
	return n
}

// seconds is how long a cost takes.
func (r pullRoute) seconds(c delta.Cost) float64 { return float64(c.Bytes)/r.rate + c.Work.Seconds() }
