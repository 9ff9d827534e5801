package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTimeIsAnnounced: before the first benchmark begins a line says how many there are and how
// long they take; each then says its number, its own time and what is left.
func TestTimeIsAnnounced(t *testing.T) {
	o := smoke(t, "local-match", "waiting-value", "recv")
	var lines []string
	o.Progress = func(s string) { lines = append(lines, s) }
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	announced := slices.Index(lines, "3 benchmarks will take about 3s")
	first := slices.Index(lines, "local-match: benchmark 1 of 3, about 1s; about 3s left in all")
	if announced < 0 || first != announced+1 || lines[first+1] != "local-match: beside "+LockedMap {
		t.Errorf("the time is not announced before the first benchmark:\n%s", strings.Join(lines, "\n"))
	}
	if !slices.Contains(lines, "recv: benchmark 3 of 3, about 2s; about 2s left in all") {
		t.Errorf("the last benchmark is not announced:\n%s", strings.Join(lines, "\n"))
	}
}

// TestEachBenchmarkHasAnEstimate, and the whole takes minutes with the default options.
func TestEachBenchmarkHasAnEstimate(t *testing.T) {
	o := Options{Command: peerCommand("serve"), Transports: []string{"grpc", "verbs"}}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	s := &suite{Options: o}
	for _, b := range s.chosen() {
		if b.takes == nil || b.takes(s) < 100*time.Millisecond || b.takes(s) > 10*time.Minute {
			t.Errorf("%s has no estimate, or a wrong one", b.name)
		}
	}
	if got, want := perReceive(3)(s), 2*time.Second+24*49*300*time.Millisecond; got != want {
		t.Errorf("recv is estimated at %v, want %v", got, want)
	}
}

// TestEstimateOfAContest: it is the time that the runs of a contest have.
func TestEstimateOfAContest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := contest{pairs: 5, time: time.Second}
		one := func(_ context.Context, d time.Duration) (run, error) {
			time.Sleep(d)
			return run{score: 1, count: 1, time: d}, nil
		}
		begin := time.Now()
		if _, _, err := c.compare(t.Context(), one, one); err != nil || time.Since(begin) != c.takes() {
			t.Errorf("a contest took %v, estimated were %v; %v", time.Since(begin), c.takes(), err)
		}
		begin = time.Now()
		if _, err := c.measure(t.Context(), one); err != nil || time.Since(begin) != c.takesAlone() {
			t.Errorf("without a baseline it took %v, estimated were %v; %v", time.Since(begin), c.takesAlone(), err)
		}
	})
}

// TestRough: an estimate has no digits that it cannot keep.
func TestRough(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: time.Second, 1700 * time.Millisecond: 2 * time.Second, 59 * time.Second: 59 * time.Second, 363 * time.Second: 360 * time.Second,
	} {
		if got := rough(d); got != want {
			t.Errorf("rough(%v) = %v, want %v", d, got, want)
		}
	}
}
