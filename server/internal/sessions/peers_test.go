package sessions

import (
	"maps"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func taskOf(job string, index int) cluster.Task { return cluster.Task{Job: job, Index: index} }

func specOf(t *testing.T, text string) *cluster.Spec {
	t.Helper()
	s, err := cluster.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fixed(s *cluster.Spec) func() *cluster.Spec { return func() *cluster.Spec { return s } }

// TestNamesOfASession: which tasks of a session's cluster have a name in that of the process.
func TestNamesOfASession(t *testing.T) {
	s := &Sessions{Options: Options{Task: taskOf("worker", 0), Spec: fixed(specOf(t, "worker=h0:1,h1:1,h2:1,[::1]:1;ps=twice:1,twice:1"))}}
	known := s.knownAs(s.Spec(), specOf(t, "worker=h0:1,h2:1,H1.:1,h1:2;ps=twice:1,h9:1;trainer=h0:1,twice:1,[0:0::1]:1,/bns/h1"))
	want := map[cluster.Task]cluster.Task{
		taskOf("worker", 1):  taskOf("worker", 2),
		taskOf("worker", 2):  taskOf("worker", 1),
		taskOf("ps", 0):      taskOf("ps", 0),
		taskOf("trainer", 2): taskOf("worker", 3),
	}
	if !maps.Equal(known, want) {
		t.Errorf("%v, want %v", known, want)
	}
	if known := (&Sessions{Options: Options{Task: s.Task}}).knownAs(nil, s.Spec()); len(known) != 0 {
		t.Errorf("a process without a cluster knows %v", known)
	}
}

// TestPlacesOfASession: a task of a session's cluster is the task of the process's cluster that has its
// address, or is elsewhere.
func TestPlacesOfASession(t *testing.T) {
	s := &Sessions{Options: Options{Task: taskOf("worker", 0), Spec: fixed(specOf(t, "worker=h0:1,h1:1"))}}
	places := s.Places(specOf(t, "worker=h1:1,H0.:1;ps=h1:2,/bns/h1"))
	want := map[cluster.Task]cluster.Place{
		taskOf("worker", 0): {Task: taskOf("worker", 1), Host: "h1"},
		taskOf("worker", 1): {Task: taskOf("worker", 0), Host: "h0"},
		taskOf("ps", 0):     {Task: taskOf("ps", 0), Host: "h1", Elsewhere: true},
		taskOf("ps", 1):     {Task: taskOf("ps", 1), Elsewhere: true},
	}
	if !maps.Equal(places, want) {
		t.Errorf("%+v, want %+v", places, want)
	}
}
