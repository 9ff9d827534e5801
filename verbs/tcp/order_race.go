//go:build race

package tcp

import "sync/atomic"

// copiesFirst: the race detector counts the read of a long content when writev has returned,
// which may be after the peer, in the same process, has received it. A copy before the system
// call has no such gap.
const copiesFirst = true

// order tells the race detector that writing to a connection happens before reading from it.
var order atomic.Uint64

func onWrite() { order.Add(1) }
func onRead()  { order.Load() }
