//go:build linux

package storm_test

import (
	"slices"
	"testing"
)

// The logs of these tests are made by hand: task 0 publishes, a watcher watches it. Numbers are those of the first
// life and publication, whose epoch is 7.

// handStamp is the content of a version.
func handStamp(gen int, number uint64) *stamp {
	return &stamp{Name: weights, Life: 1, Gen: gen, Number: number, Serial: 100*gen + int(number), Base: 1} //nolint:gosec // small
}

// updates is an Update that takes a millisecond.
func updates(t int64, number uint64) []record { return updatesOf(t, 1, number, 7) }

func updatesOf(t int64, gen int, number, epoch uint64) []record {
	s := handStamp(gen, number)
	r := record{At: t, Kind: kindUpdate, Life: 1, Name: weights, Gen: gen, Number: number, Seq: s.Serial, Stamp: s}
	done := r
	done.At, done.Kind, done.Stamp, done.Epoch, done.Held = t+ms, kindUpdated, nil, epoch, 1
	return []record{r, done}
}

// ofWatch is a record of a watch.
func ofWatch(t int64, k kind, number uint64) record {
	return record{At: t, Kind: k, Task: watcher, Life: 1, Recv: 1, Name: weights, Number: number, Epoch: 7}
}

func begins(place bool) []record {
	r := ofWatch(0, kindWatch, 0)
	r.Place = place
	return []record{at(0, kindUp, watcher, 1), r}
}

// yields is a version that comes.
func yields(t int64, number uint64) []record {
	r := ofWatch(t, kindYield, number)
	r.Stamp = handStamp(1, number)
	return []record{r}
}

// applies is a version that comes in place; the memory has another one before.
func applies(t int64, number, before uint64) []record {
	list := append(yields(t, number), ofWatch(t+ms, kindApplied, number))
	list[0].Stamp, list[1].Stamp = handStamp(1, before), handStamp(1, number)
	return list
}

// quiet is the end: what each task says it has, and that watchers have had time.
func quiet(t int64, number uint64) []record {
	var list []record
	for task := range tasks {
		for _, name := range []string{weights, shapes} {
			list = append(list, record{At: t, Kind: kindStill, Task: task, Life: 1, Name: name, Number: number, Epoch: 7})
		}
	}
	return append(list, record{At: t + second, Kind: kindQuiet})
}

// with changes the last of some records.
func with(list []record, change func(r *record)) []record {
	list = slices.Clone(list)
	change(&list[len(list)-1])
	return list
}

func TestVersionChecker(t *testing.T) {
	two := join(begins(false), updates(ms, 1), updates(second, 2))
	place := join(begins(true), updates(ms, 1), updates(second, 2))
	withdrawn := one(record{At: 2 * second, Kind: kindWithdrawn, Life: 1, Name: weights})
	anew := updatesOf(3*second, 2, 1, 9)
	yieldsAnew := with(yields(4*second, 1), func(r *record) { r.Stamp, r.Epoch = handStamp(2, 1), 9 })
	ended := func(code, ctx string) []record {
		return with(one(ofWatch(5*second, kindUnwatch, 0)), func(r *record) { r.Code, r.Ctx = code, ctx })
	}
	fails := func(code, ctx, sort string) []record {
		list := with(updates(ms, 1), func(r *record) { r.Code, r.Ctx, r.Sort = code, ctx, sort })
		list[0].Sort = sort
		return list
	}
	halt := []record{{At: second, Kind: kindFault, Task: watcher, Text: "stopped by SIGSTOP, 9s", Blocks: true, Recv: 1}, {At: 10 * second, Kind: kindHeal, Task: watcher, Text: "stopped by SIGSTOP", Blocks: true, Recv: 1}}
	for _, c := range []struct {
		name string
		log  []record
		want string // the rule that is broken; "" for none
	}{
		{"each version", join(two, yields(2*ms, 1), yields(2*second, 2), quiet(3*second, 2)), ""},
		{"a version is left out", join(two, yields(2*second, 2), quiet(3*second, 2)), ""},
		{"a version before its Update has returned", join(begins(false), updates(second, 1), yields(second+ms/2, 1)), ""},
		{"the same version twice", join(two, yields(2*ms, 1), yields(second, 1)), "repeated"},
		{"an older version", join(two, yields(2*second, 2), yields(2*second+ms, 1)), "older"},
		{"another epoch", join(two, yields(2*ms, 1), withdrawn, anew, yieldsAnew), ""},
		{"an epoch comes back", join(two, yields(2*ms, 1), withdrawn, anew, yieldsAnew, yields(4*second+ms, 2)), "older"},
		{"a mix", join(two, with(yields(2*ms, 1), func(r *record) { r.Torn = "bytes 4096 to 8192" })), "mixed"},
		{"no content", join(two, with(yields(2*ms, 1), func(r *record) { r.Stamp = nil })), "mixed"},
		{"a version that nobody made", join(two, with(yields(2*ms, 1), func(r *record) { r.Stamp = handStamp(1, 3) })), "invented"},
		{"a version before its Update", join(begins(false), yields(ms, 1), updates(second, 1)), "invented"},
		{"a version of another task", join(two, with(yields(2*ms, 1), func(r *record) { r.Peer = 1 })), "invented"},
		{"a version under another number", join(two, with(yields(2*second, 2), func(r *record) { r.Stamp = handStamp(1, 1) })), "invented"},
		{"a version of an Update that failed", join(begins(false), fails("Cancelled", "context canceled", ""), yields(second, 1)), "invented"},
		{"one epoch for two publications", join(two, withdrawn, updatesOf(3*second, 2, 1, 7)), "invented"},
		{"a version that is old", join(two, yields(second+int64(replacedPulls+oldTime)+10*ms, 1)), "old"},
		{"a version that was withdrawn long before", join(two, withdrawn, yields(3*second+int64(replacedPulls+oldTime), 2)), "old"},
		{"a version that is old since its watcher was stopped", join(two, halt, yields(10*second+ms, 1)), ""},
		{"in place", join(place, applies(2*ms, 1, 0), applies(2*second, 2, 1), quiet(3*second, 2)), ""},
		{"in place, a newer one than was yielded", join(place, with(applies(2*second, 1, 0), func(r *record) { r.Number, r.Stamp = 2, handStamp(1, 2) })), ""},
		{"in place, an older one than was yielded", join(place, with(applies(2*second, 2, 0), func(r *record) { r.Number, r.Stamp = 1, handStamp(1, 1) })), "older"},
		{"in place, written between", join(place, applies(2*ms, 1, 0), applies(2*second, 2, 2)), "written"},
		{"in place, after an Apply that failed", join(place, applies(2*ms, 1, 0), with(applies(second+2*ms, 2, 1), func(r *record) { r.Code, r.Ctx = "Cancelled", "context canceled" })), ""},
		{"an Apply fails for no reason", join(place, with(applies(2*ms, 1, 0), func(r *record) { r.Code = "Unavailable" })), "watch"},
		{"written while the watcher has it", join(two, yields(2*ms, 1), with(one(ofWatch(second, kindKept, 1)), func(r *record) { r.Torn = "bytes 4096 to 8192" })), "written"},
		{"a watch ends with its context", join(two, ended("Cancelled", "context canceled")), ""},
		{"a watch ends for no reason", join(two, ended("", "")), "watch"},
		{"a watch ends with an error", join(two, ended("FailedPrecondition", "")), "watch"},
		{"a watch ends while the process stops", join(two, one(at(4*second, kindLeave, watcher, 1)), ended("Unavailable", "")), ""},
		{"the newest is not reached", join(two, yields(2*ms, 1), quiet(3*second, 2)), "newest"},
		{"nothing is reached", join(two, quiet(3*second, 2)), "newest"},
		{"a watch that has ended", join(two, yields(2*ms, 1), ended("Cancelled", "context canceled"), quiet(6*second, 2)), ""},
		{"a watch whose process is gone", join(two, yields(2*ms, 1), one(at(second, kindDown, watcher, 1)), quiet(6*second, 2)), ""},
		{"a task that does not say what it has", join(two, yields(2*second, 2), quiet(3*second, 2)[1:]), "newest"},
		{"an Update is cancelled", fails("Cancelled", "context canceled", ""), ""},
		{"an Update fails", fails("Unavailable", "", ""), "update"},
		{"an Update fails while the server stops", join(one(at(0, kindLeave, 0, 1)), fails("Unavailable", "", "")), ""},
		{"a number that does not ascend", fails("InvalidArgument", "", wrongNumber), ""},
		{"a number that does not ascend is taken", fails("", "", wrongNumber), "update"},
		{"an Update is refused", fails("InvalidArgument", "", ""), "update"},
		{"an Update goes back", join(updates(ms, 2), updates(second, 1)), "update"},
		{"an Update does not end", updates(ms, 1)[:1], "update"},
		{"an Update of a process that is gone", join(updates(ms, 1)[:1], one(at(second, kindDown, 0, 1))), ""},
		{"an Update takes long", with(updates(ms, 1), func(r *record) { r.At = 2*ms + int64(updateTime) }), "update"},
		{"three versions in memory", with(updates(ms, 1), func(r *record) { r.Held = 3 }), "held"},
		{"after the end", join(two, one(record{At: 2 * second, Kind: kindOver}), yields(3*second, 1), yields(4*second, 1)), ""},
	} {
		t.Run(c.name, func(t *testing.T) { judges(t, join(ups(), c.log), c.want) })
	}
}

// judges checks that a log breaks a rule; "" for none.
func judges(t *testing.T, all []record, want string) {
	t.Helper()
	found := checkWith(all, handSeed, handPlan, false)
	switch {
	case want == "" && len(found) > 0:
		t.Errorf("found %q in a log that is right%s", found[0].rule, report(all, found))
	case want != "" && !slices.ContainsFunc(found, func(v violation) bool { return v.rule == want }):
		t.Errorf("found %v, want %q", found, want)
	}
}
