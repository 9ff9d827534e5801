//go:build linux

package storm_test

import (
	"github.com/tryst-rdma/tryst/status"
)

// plant is a mistake that a process makes on purpose, between the product and the log, so that the
// log looks as if the product had made it.
type plant string

const (
	plantNone    plant = ""
	plantLose    plant = "lose"    // a value that came is not logged, and the next is received
	plantDouble  plant = "double"  // each value is sent twice
	plantSwap    plant = "swap"    // two values are sent in the wrong order
	plantDamage  plant = "damage"  // a bit of a value is flipped
	plantAbort   plant = "abort"   // a receive is logged as Aborted
	plantUnreach plant = "unreach" // a receive is logged as Unavailable
	plantWrong   plant = "wrong"   // the end of a receive is logged with another value
	plantTold    plant = "told"    // the outcome of a value is logged as an error
	plantTwice   plant = "twice"   // the end of a receive is logged twice
)

// every is how often a mistake is made: one of so many times that it could be. Most of the run is
// right.
const every = 15

// strikes reports whether a mistake is made now.
func (n *node) strikes(p plant) bool { return n.Plant == p && n.chances.Add(1)%every == 3 }

// sends returns which value is sent in place of value k of n.
func (p plant) sends(k, n int) int {
	if p == plantSwap && k < 2 && n > 1 {
		return 1 - k
	}
	return k
}

func (n *node) damage(b []byte) {
	if len(b) > page && n.strikes(plantDamage) {
		b[len(b)/2] ^= 1
	}
}

// hides reports whether the end of a receive is not logged. The receive then looks as one that has
// not ended. Its value is one that another follows, which then comes too early: the last value of a
// key would only be missing.
func (n *node) hides(r record) bool { return r.Code == "" && n.strikes(plantLose) }

func (n *node) changed(r record) record {
	switch {
	case r.Kind == kindTold:
		if r.Code == "" && n.strikes(plantTold) {
			r.Code = status.Unavailable.String()
		}
	case r.Code == "" && n.strikes(plantAbort):
		r.Code, r.Content = status.Aborted.String(), nil
	case r.Code == "" && n.strikes(plantUnreach):
		r.Code, r.Content = status.Unavailable.String(), nil
	case r.Code == "" && n.strikes(plantWrong):
		c := content{Size: 100, Head: []byte("12345678")}
		r.Content = &c
	}
	return r
}
