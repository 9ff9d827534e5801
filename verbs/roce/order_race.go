//go:build race

package roce

import "sync/atomic"

// order tells the race detector what the network does: what happened before a
// packet was sent happened before it was received. Without it a region that its
// owner fills and a peer in the same process reads would count as a race.
type order struct{ n atomic.Uint64 }

func (o *order) onSend()    { o.n.Add(1) }
func (o *order) onReceive() { o.n.Load() }
