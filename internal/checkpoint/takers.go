package checkpoint

import (
	"cmp"
	"maps"
	"slices"
)

// takers are the pullers that take deltas of a publication, as a value. A watcher says with each pull that it does, and which
// rate it has measured. That counts for the next wantedVersions versions.
//
// What a puller says is not proven. So no puller can end the claim of a slower one, whatever it says and under however many
// names: of too many the fastest ones lose their names, and the slowest of these still counts.
type takers struct {
	of   map[string]taker // by the task of the puller, at most maxWants
	rest *taker           // of those for which there was no room; nil without any
}

// taker is what one puller has said.
type taker struct {
	rate    float64 // bytes a second; 0 if it has not measured any
	version uint64  // how many versions had entered
}

// note takes note of a puller. entered counts the versions.
func (w *takers) note(puller string, rate float64, entered uint64) {
	if w.of == nil {
		w.of = make(map[string]taker)
	}
	before := w.of[puller]
	switch {
	case before.rate == 0:
	case rate == 0:
		rate = before.rate
	case before.version == entered: // another one may use the name
		rate = min(rate, before.rate)
	}
	w.of[puller] = taker{rate, entered}
	if len(w.of) > maxWants {
		w.dropFastest()
	}
}

// dropFastest forgets the name of the fastest puller: of several the one that has not come for longest.
func (w *takers) dropFastest() {
	name := slices.MaxFunc(slices.Collect(maps.Keys(w.of)), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.of[a].rate, w.of[b].rate), cmp.Compare(w.of[b].version, w.of[a].version))
	})
	if one := w.of[name]; w.rest == nil || one.rate <= w.rest.rate {
		w.rest = &one
	}
	delete(w.of, name)
}

// slowest returns the rate of the slowest puller, for which deltas gain most; false if there is none. It forgets those
// that have not come for long.
func (w *takers) slowest(entered uint64) (rate float64, any bool) {
	late := func(one taker) bool { return one.version+wantedVersions < entered }
	maps.DeleteFunc(w.of, func(_ string, one taker) bool { return late(one) })
	if w.rest != nil && late(*w.rest) {
		w.rest = nil
	}
	if w.rest != nil {
		rate, any = w.rest.rate, true
	}
	for _, one := range w.of {
		if !any || one.rate < rate {
			rate, any = one.rate, true
		}
	}
	return rate, any
}

// measured takes note of the rate at which a puller has got a version, unless it has said one.
func (w *takers) measured(puller string, rate float64) {
	if one, ok := w.of[puller]; ok && one.rate == 0 {
		one.rate = rate
		w.of[puller] = one
	}
}
