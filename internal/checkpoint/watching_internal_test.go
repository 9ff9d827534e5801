package checkpoint

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// How far a watcher is behind is counted in versions, whatever their numbers are, within an epoch, and over so many at most.
func TestBehindIsCountedInVersions(t *testing.T) {
	var n numbers
	for i := range uint64(3) {
		n.entered(1, 100*i)
	}
	for i := range uint64(3 * maxBehind) {
		n.entered(2, 10+10*i)
		n.entered(2, 10+10*i) // files of the same content
	}
	newest := uint64(10 + 10*(3*maxBehind-1))
	for name, tt := range map[string]struct {
		epoch, number uint64
		want          int
	}{
		"the newest": {2, newest, 0}, "the one before": {2, newest - 10, 1}, "one that was dropped": {2, newest - 15, 2}, "a later one": {2, newest + 1, 0},
		"the first": {2, 10, maxBehind}, "none": {0, 0, maxBehind}, "of another epoch": {1, newest, maxBehind},
	} {
		if got := n.behind(Publication{Epoch: tt.epoch, Number: tt.number}); got != tt.want {
			t.Errorf("%s: %d behind, want %d", name, got, tt.want)
		}
	}
}

// The hosts take turns in a status. Of each host, second streams of a task go last, what has a version goes first, and then the
// oldest.
func TestHostsTakeTurns(t *testing.T) {
	begin, l := time.Now(), new(line)
	var streams []*listening
	add := func(host string, task int, number uint64) {
		streams = append(streams, &listening{line: l, host: host, task: cluster.Task{Job: host, Index: task}, since: begin.Add(time.Duration(len(streams))), has: Publication{Number: number}})
	}
	for range 100 {
		add("liar", 1, 1<<60)
	}
	for i := range 100 {
		add("stranger", i, 1<<60)
	}
	add("honest", 1, 0)
	add("honest", 2, 1)
	add("honest", 2, 1)
	add("other", 1, 5)
	var got []string
	for _, w := range mixed(streams)[:9] {
		got = append(got, w.task.Job+" "+strconv.Itoa(w.task.Index))
	}
	want := []string{"liar 1", "stranger 0", "honest 2", "other 1", "stranger 1", "honest 1", "liar 1", "stranger 2", "honest 2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
