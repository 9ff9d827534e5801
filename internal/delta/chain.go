package delta

import (
	"cmp"
	"maps"
	"slices"
)

// Delta is an encoded delta of a tensor. Nobody changes Content.
type Delta struct {
	Content []byte
	Summary Summary
}

// Digests returns the digests of the base and of the result that the delta names; nil if it is damaged.
func (d Delta) Digests() (base, result []byte) {
	h, _, err := parseHeader(d.Content)
	if err != nil {
		return nil, nil
	}
	return h.base, h.result
}

// Step has the deltas from one version of a publication to the next, by the names of the tensors. A
// tensor without one is taken whole.
type Step struct {
	From, To uint64
	Deltas   map[string]Delta
}

// Bytes is what the step takes.
func (s Step) Bytes() int64 {
	total := int64(stepOverhead)
	for name, d := range s.Deltas {
		total += deltaBytes(name, d)
	}
	return total
}

// deltaBytes is what a delta takes in a step.
func deltaBytes(name string, d Delta) int64 {
	return int64(len(name)) + int64(cap(d.Content)) + deltaOverhead
}

// Chain keeps the deltas between the last versions of a publication, each from one version to the
// next, in at most a tenth of the publication's bytes. It is a value without a lock.
type Chain struct {
	limit int64
	bytes int64
	steps []Step // in order; each begins where the one before ends
}

// NewChain returns an empty chain for a publication of the given length.
func NewChain(publication int64) *Chain { return &Chain{limit: publication / chainShare} }

// Add adds the deltas to the newest version. A step that does not begin where the chain ends, or goes
// back, makes the chain begin anew: what leads to its beginning is lost. Where space is short, the
// oldest steps go first. From a step that alone is larger than the limit, the deltas go that save
// least for what they take; those tensors are taken whole. Add does not change s.
func (c *Chain) Add(s Step) {
	if n := len(c.steps); n > 0 && c.steps[n-1].To != s.From {
		c.Clear()
	}
	if s.To <= s.From {
		c.Clear()
		return
	}
	s = s.within(c.limit)
	c.steps = append(c.steps, s)
	c.bytes += s.Bytes()
	for c.bytes > c.limit || len(c.steps) > maxSteps {
		c.DropOldest()
	}
}

// within returns the step without the deltas that make it larger than limit.
func (s Step) within(limit int64) Step {
	excess := s.Bytes() - limit
	if excess <= 0 {
		return s
	}
	kept := maps.Clone(s.Deltas)
	for _, name := range slices.SortedFunc(maps.Keys(kept), func(a, b string) int {
		return cmp.Or(cmp.Compare(saving(s.Deltas[a]), saving(s.Deltas[b])), cmp.Compare(a, b))
	}) {
		if excess <= 0 {
			break
		}
		excess -= deltaBytes(name, kept[name])
		delete(kept, name)
	}
	s.Deltas = kept
	return s
}

// saving is how many bytes a delta saves for each that it takes.
func saving(d Delta) float64 {
	return float64(d.Summary.Length) / float64(max(len(d.Content), 1))
}

// DropOldest forgets the oldest step, and returns how many bytes that gives back. Paths that were
// returned before stay valid.
func (c *Chain) DropOldest() int64 {
	if len(c.steps) == 0 {
		return 0
	}
	freed := c.steps[0].Bytes()
	c.steps = slices.Delete(c.steps, 0, 1)
	c.bytes -= freed
	return freed
}

// Clear forgets all steps.
func (c *Chain) Clear() {
	clear(c.steps)
	c.steps, c.bytes = c.steps[:0], 0
}

// Bytes is what the chain takes, at most a tenth of the publication.
func (c *Chain) Bytes() int64 { return c.bytes }

// Path returns the steps from one version to a later one, in order. It returns false if the chain does
// not have them all: then the whole must be taken. From a version to itself it has no steps.
func (c *Chain) Path(from, to uint64) ([]Step, bool) {
	if from == to {
		return nil, true
	}
	first := slices.IndexFunc(c.steps, func(s Step) bool { return s.From == from })
	last := slices.IndexFunc(c.steps, func(s Step) bool { return s.To == to })
	if first < 0 || last < first {
		return nil, false
	}
	return slices.Clone(c.steps[first : last+1]), true
}

// Tensor returns the deltas of one tensor along a path, which are applied in this order, and what they
// cost. It returns false if a step lacks one, or if they do not follow one another in length: then
// the tensor must be taken whole. All but the first are applied in place.
func Tensor(path []Step, name string, inPlace bool) ([]Delta, Cost, bool) {
	var deltas []Delta
	var cost Cost
	for _, s := range path {
		d, ok := s.Deltas[name]
		if !ok || len(deltas) > 0 && deltas[0].Summary.Length != d.Summary.Length {
			return nil, Cost{}, false
		}
		cost = cost.Add(d.Summary.Apply(inPlace || len(deltas) > 0))
		deltas = append(deltas, d)
	}
	return deltas, cost, true
}
