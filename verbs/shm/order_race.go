//go:build race

package shm

import "sync/atomic"

// order tells the race detector that sending a packet happens before receiving it.
// Otherwise the detector would report a race when a region's owner fills it and a peer
// in the same process reads it.
type order struct{ n atomic.Uint64 }

func (o *order) onSend()    { o.n.Add(1) }
func (o *order) onReceive() { o.n.Load() }
