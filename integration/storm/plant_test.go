//go:build linux

package storm_test

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
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

	plantOlder  plant = "older"  // a version is logged again after the next one
	plantRepeat plant = "repeat" // a version is logged twice
	plantMix    plant = "mix"    // a version has a part of the one before
	plantInvent plant = "invent" // a version is logged as one that nobody has made
	plantOld    plant = "old"    // a version is logged long after it was replaced
	plantWrite  plant = "write"  // the memory of a version is written while the watcher has it
	plantStuck  plant = "stuck"  // watchers of a task take one version and no other
	plantEnd    plant = "end"    // the end of a watch is logged as an error
	plantRefuse plant = "refuse" // the end of an Update is logged as an error
	plantHold   plant = "hold"   // an Update is logged with a version more in memory
	plantLeak   plant = "leak"   // a version is never released

	// of clusters
	plantAlien   plant = "alien"   // a receive from a task that has left is logged with a value
	plantUnsaid  plant = "unsaid"  // the error of a task that has left is logged without its kind
	plantHang    plant = "hang"    // the end of such a receive is not logged
	plantAway    plant = "away"    // a task that comes back is not taken
	plantCluster plant = "cluster" // the end of SetCluster is logged as an error
)

// ofVersions reports whether a mistake is one with versions or clusters, and ofClusters with clusters.
func (p plant) ofVersions() bool {
	return p.ofClusters() || slices.Contains([]plant{plantOlder, plantRepeat, plantMix, plantInvent, plantOld, plantWrite, plantStuck, plantEnd, plantRefuse, plantHold, plantLeak}, p)
}

func (p plant) ofClusters() bool {
	return slices.Contains([]plant{plantAlien, plantUnsaid, plantHang, plantAway, plantCluster}, p)
}

// Times of runs with planted mistakes of versions.
const (
	plantedTime    = 1500 * time.Millisecond
	plantedOldTime = replacedPulls + oldTime + 3*time.Second // what is old takes as long
)

func (p plant) time() time.Duration {
	if p == plantOld {
		return plantedOldTime
	}
	return plantedTime
}

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

// hangs reports whether the end of a receive from a task that has left is not logged.
func (n *node) hangs(r record) bool { return r.Sort == sortLeft && n.strikes(plantHang) }

// staysAway reports whether a cluster is not taken in which all tasks are.
func (n *node) staysAway(r record) bool { return len(r.Tasks) == tasks && n.Plant == plantAway }

// mix writes a part of the version before into one that has come.
func (w *oneWatch) mix(v *checkpoint.Version) {
	if w.last == nil || len(v.Tensors) == 0 || len(w.last.Tensors) == 0 || !w.n.strikes(plantMix) {
		return
	}
	b := v.Tensors[0].Bytes()
	copy(b[len(b)/page/2*page:], w.last.Tensors[0].Bytes()[:stampSize])
}

// yielded logs a version.
func (w *oneWatch) yielded(r record) {
	switch {
	case w.n.strikes(plantInvent):
		s := *r.Stamp
		s.Serial += 1000
		r.Stamp = &s
	case w.n.Plant == plantOld && w.task == 1:
		pause(w.parent, replacedPulls+oldTime+time.Second)
	}
	w.n.log.write(r)
	if w.n.strikes(plantRepeat) {
		w.n.log.write(r)
	}
	if w.last != nil && w.last.Epoch == r.Epoch && w.n.strikes(plantOlder) {
		w.n.log.write(w.last.rec)
	}
}

func (n *node) changed(r record) record {
	switch {
	case r.Kind == kindUpdated:
		switch {
		case n.strikes(plantHold):
			r.Held = maxVersions + 1
		case n.strikes(plantRefuse):
			r.Code = status.Internal.String()
		}
	case r.Sort == sortLeft && n.strikes(plantAlien):
		r.Code, r.Sort, r.Content = "", "", &content{Size: 100, Head: []byte("12345678")}
	case r.Sort == sortLeft && n.strikes(plantUnsaid):
		r.Sort = ""
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
