//go:build linux

package storm_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs/shm"
)

// A run without faults has so many steps. calmTime bounds it.
const (
	calmSteps = 60
	calmTime  = 4 * time.Second
)

// logDir returns the directory of the logs of a run: one that is kept if STORM_DIR is set.
func logDir(t *testing.T, name string) string {
	t.Helper()
	keep := os.Getenv("STORM_DIR")
	if keep == "" {
		return t.TempDir()
	}
	dir := filepath.Join(keep, strings.ReplaceAll(name, " ", "-"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

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
			runStorm(t, logDir(t, t.Name()), options{seed: 1, time: calmTime, steps: calmSteps, world: w, fallback: "grpc"})
		})
	}
}

// TestTasksComeAndGo: without faults, tasks leave the clusters of others, move and come back while values move. What is
// not with such a task goes on.
func TestTasksComeAndGo(t *testing.T) {
	for _, w := range worlds {
		if len(w.providers) > 1 || testing.Short() && w.name != "tcp" {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			runStorm(t, logDir(t, t.Name()), options{seed: 6, time: calmTime / 2, world: w, fallback: "grpc", churn: true})
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
	for i, p := range []planted{
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

// planted is a mistake and the rule that finds it.
type planted struct {
	plant plant
	rule  string
}

// maxSeeds is how many runs may miss a mistake that only some can make.
const maxSeeds = 6

// TestPlantedMistakesOfVersions is TestPlantedMistakes for the rules of versions and of clusters, each over one route.
func TestPlantedMistakesOfVersions(t *testing.T) {
	var over []world
	for _, w := range worlds {
		if len(w.providers) <= 1 {
			w.same = true
			over = append(over, w)
		}
	}
	for i, p := range []planted{
		{plantOlder, "older"}, {plantRepeat, "repeated"}, {plantMix, "mixed"}, {plantInvent, "invented"}, {plantOld, "old"},
		{plantWrite, "written"}, {plantStuck, "newest"}, {plantEnd, "watch"}, {plantRefuse, "update"}, {plantHold, "held"}, {plantLeak, "memory"},
		{plantAlien, "left"}, {plantUnsaid, "left"}, {plantHang, "ends"}, {plantAway, "error"}, {plantCluster, "cluster"},
	} {
		if testing.Short() && i%4 != 2 { // mix, stuck, leak and away are seen in short runs
			continue
		}
		w := over[i%len(over)]
		if p.plant == plantLeak { // what a watcher has registered for verbs is not counted
			w = over[slices.IndexFunc(over, func(w world) bool { return w.name == "grpc" })]
		}
		t.Run(string(p.plant)+" over "+w.name, func(t *testing.T) {
			t.Parallel()
			findsMistake(t, w, p.plant, p.rule)
		})
	}
}

func findsMistake(t *testing.T, w world, p plant, rule string) {
	o := options{world: w, fallback: "grpc", plant: p, time: calmTime, steps: calmSteps}
	if p.ofVersions() {
		o.steps, o.churn, o.time = 0, p.ofClusters(), p.time()
	}
	for o.seed = 2; o.seed < 2+maxSeeds; o.seed++ {
		_, found := tryStorm(t, logDir(t, t.Name()), o)
		if slices.ContainsFunc(found, func(v violation) bool { return v.rule == rule }) {
			return
		}
		t.Logf("seed %d: the mistake was not found by the rule %q; found %v", o.seed, rule, found)
	}
	t.Error("no seed finds the mistake")
}
