//go:build linux

package storm_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs/shm"
)

// A run without faults has so many steps. calmTime bounds it.
const (
	calmSteps = 60
	calmTime  = 4 * time.Second
)

// runStorm runs a storm, reports what the checker finds, and returns it.
func runStorm(t *testing.T, dir string, o options) []violation {
	t.Helper()
	all, found := tryStorm(t, dir, o)
	text, routes := count(all)
	t.Logf("seed %d, %s, fallback %s, %v:\n%s", o.seed, o.world.name, o.fallback, o.time, text)
	for _, route := range o.world.carry {
		if routes[route] == 0 {
			t.Errorf("no value was received over %s", route)
		}
	}
	if len(found) > 0 {
		t.Errorf("%d breaches of the rules (check_test.go) with seed %d; the logs are in %s%s", len(found), o.seed, dir, report(all, found))
	}
	return found
}

// tryStorm runs a storm and returns all records and what the checker finds.
func tryStorm(t *testing.T, dir string, o options) ([]record, []violation) {
	t.Helper()
	s := newStorm(t, dir, o)
	s.run()
	for _, f := range s.failures {
		if o.plant != plantNone {
			t.Log("as is right with a planted mistake:", f)
			continue
		}
		t.Error(f)
	}
	all, err := readLogs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all, checkLogs(all, o)
}

// TestCalm: without faults each value is received, and no receive fails.
func TestCalm(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			if w.name == "all" {
				w.carry = []string{shm.DeviceName} // the best one carries all
			}
			runStorm(t, t.TempDir(), options{seed: 1, time: calmTime, steps: calmSteps, world: w, fallback: "grpc"})
		})
	}
}

// TestPlantedMistakes: a mistake that a process makes on purpose is found, over gRPC, TCP and shared
// memory. Short runs make each mistake over one of them.
func TestPlantedMistakes(t *testing.T) {
	var over []world
	for _, w := range worlds {
		if w.name == "grpc" || w.name == "tcp" || w.name == "shm" {
			w.same = true
			over = append(over, w)
		}
	}
	for i, p := range []struct {
		plant plant
		rule  string
	}{
		{plantLose, "order"}, {plantDouble, "twice"}, {plantSwap, "order"}, {plantDamage, "wrong"}, {plantAbort, "error"},
		{plantUnreach, "error"}, {plantWrong, "wrong"}, {plantTwice, "ends"}, {plantTold, "told"},
	} {
		for k, w := range over {
			if testing.Short() && k != i%len(over) {
				continue
			}
			t.Run(string(p.plant)+" over "+w.name, func(t *testing.T) { findsMistake(t, w, p.plant, p.rule) })
		}
	}
}

func findsMistake(t *testing.T, w world, p plant, rule string) {
	_, found := tryStorm(t, t.TempDir(), options{seed: 2, time: calmTime, steps: calmSteps, world: w, fallback: "grpc", plant: p})
	for _, v := range found {
		if v.rule == rule {
			return
		}
	}
	t.Errorf("the mistake was not found by the rule %q; found %d others", rule, len(found))
}
