//go:build linux

package storm_test

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// tasks is the number of tasks of the cluster. master, puller and watcher stand for the processes that
// are none of them.
const (
	tasks   = 4
	master  = 90
	puller  = 91
	watcher = 92
)

// plan is what a step does. All processes compute it from the seed and the step.
type plan struct {
	edges []edge
	// ender is the task that ends the step before its time, -1 for none: by Abort, or by End.
	ender  int
	aborts bool
	endAt  time.Duration // after the task began the step
}

// edge is a key of a step: values that one task sends to another, in order.
type edge struct {
	from, to int
	name     string
	values   []value
	// slots is how many receives of the key are under way at once. With one the order of the
	// values is checked, too.
	slots int
	async bool // RecvAsync instead of Recv
	told  bool // SendWait instead of Send
	into  bool // RecvInto, with memory that is of the wrong size at times
	// hasty is the share of receives that end with their context soon, and are made again.
	hasty float64
	// wait is the longest pause before each send. With a pause receives come first.
	wait time.Duration
}

type value struct {
	size int
	dead bool
}

// Sizes of values, in bytes: around the limits between the protocols. They are the
// eager limit (8 KiB), the limit of one message over gRPC (unaryLimit), and what is spread over
// two queue pairs.
const (
	eagerLimit = 8 << 10
	unaryLimit = 256 << 10
)

// size draws a size: many small ones, few large ones, 0 included.
func size(r *rand.Rand) int {
	switch k := r.IntN(100); {
	case k < 5:
		return 0
	case k < 12:
		return 1 + r.IntN(8)
	case k < 50:
		return 9 + r.IntN(2000)
	case k < 62:
		return eagerLimit - 200 + r.IntN(400)
	case k < 80:
		return 10_000 + r.IntN(90_000)
	case k < 90:
		return unaryLimit - 100 + r.IntN(200)
	case k < 98:
		return unaryLimit + r.IntN(1<<20)
	}
	return 1<<20 + r.IntN(3<<20)
}

func planOf(seed uint64, step int64) plan {
	r := rand.New(rand.NewPCG(seed, uint64(step))) //nolint:gosec // reproducible
	p := plan{ender: -1}
	for i := range 1 + r.IntN(5) {
		e := edge{from: r.IntN(tasks), to: r.IntN(tasks - 1), name: fmt.Sprintf("e%d", i), slots: 1}
		if e.to >= e.from {
			e.to++
		}
		if r.IntN(20) == 0 {
			e.to = e.from // also values that stay in their process
		}
		e.async, e.told = r.IntN(2) == 0, r.IntN(3) == 0
		switch r.IntN(3) {
		case 0:
			e.slots = 2 + r.IntN(4)
		case 1:
			e.into = true
		}
		if r.IntN(3) == 0 {
			e.hasty = 0.5
		}
		if r.IntN(2) == 0 {
			e.wait = time.Duration(1+r.IntN(30)) * time.Millisecond
		}
		many := 1 + r.IntN(6)
		if r.IntN(60) == 0 { // more receives at once than a channel has credits or a peer sends again
			many, e.slots, e.wait, e.into = 150, 80, 0, false
			for range many {
				e.values = append(e.values, value{size: r.IntN(2000)})
			}
			many = 0
		}
		for range many {
			e.values = append(e.values, value{size: size(r), dead: r.IntN(30) == 0})
		}
		p.edges = append(p.edges, e)
	}
	if r.IntN(20) == 0 {
		p.ender, p.aborts = p.edges[0].from, r.IntN(2) == 0
		p.endAt = time.Duration(r.IntN(60)) * time.Millisecond
	}
	return p
}

// has reports whether a task takes part.
func (p plan) has(task int) bool {
	for _, e := range p.edges {
		if e.from == task || e.to == task {
			return true
		}
	}
	return false
}

// valueOf is the number from which the content of a value is made. life is that of the sender.
func valueOf(seed uint64, step int64, edge, seq, life int) uint64 {
	return mix(seed, uint64(step), uint64(edge), uint64(seq), uint64(life)) //nolint:gosec // only hashed
}
