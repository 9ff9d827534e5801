package membership

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func worker(index int) cluster.Task { return cluster.Task{Job: "worker", Index: index} }

func specOf(t *testing.T, text string) *cluster.Spec {
	t.Helper()
	s, err := cluster.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestChangeOfACluster: which tasks come, go and move, and which have left.
func TestChangeOfACluster(t *testing.T) {
	first := New(worker(0), specOf(t, "worker=h0:1,h1:1,h2:1")).Now()
	next, c, err := first.Next(specOf(t, "worker=h0:1,2@h2:2,h3:1"), worker(0))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Added, []cluster.Task{worker(3)}) || !slices.Equal(c.Removed, []cluster.Task{worker(1)}) || !slices.Equal(c.Moved, []cluster.Task{worker(2)}) {
		t.Errorf("%+v", c)
	}
	if next.Version() != first.Version()+1 {
		t.Errorf("version %d follows %d", next.Version(), first.Version())
	}
	if !next.Left(worker(1)) || next.Left(worker(2)) || next.Left(worker(9)) || first.Left(worker(1)) {
		t.Error("not exactly task 1 has left")
	}
	back, c, err := next.Next(first.Spec(), worker(0))
	if err != nil || back.Left(worker(1)) || !back.Left(worker(3)) || !slices.Equal(c.Added, []cluster.Task{worker(1)}) {
		t.Errorf("a task that comes back: %+v, %v", c, err)
	}
	if _, c, err := back.Next(first.Spec(), worker(0)); err != nil || !c.Empty() {
		t.Errorf("the same cluster: %+v, %v", c, err)
	}
}

// TestAProcessNeitherRemovesNorMovesItself, and stays in the cluster as it was.
func TestAProcessNeitherRemovesNorMovesItself(t *testing.T) {
	m := New(worker(0), specOf(t, "worker=h0:1,h1:1"))
	for _, text := range []string{"worker=1@h1:1", "", "worker=h0:2,h1:1"} {
		if _, err := m.Set(specOf(t, text), func(Change) { t.Error("a change was applied") }); status.CodeOf(err) != status.FailedPrecondition {
			t.Errorf("%q: %v", text, err)
		}
	}
	if m.Spec().Len() != 2 {
		t.Errorf("the cluster is %v", m.Spec())
	}
	alone := New(worker(0), nil)
	if c, err := alone.Set(m.Spec(), func(Change) {}); err != nil || len(c.Added) != 2 {
		t.Errorf("the first cluster of a process: %+v, %v", c, err)
	}
}

// TestTasksThatHaveLeftAreBounded: the last ones are remembered.
func TestTasksThatHaveLeftAreBounded(t *testing.T) {
	jobs := map[int]string{}
	for i := range maxLeft + 10 {
		jobs[i] = "h:1"
	}
	many, err := cluster.NewSpec(map[string]map[int]string{"worker": jobs})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := New(worker(0), many).Now().Next(specOf(t, "worker=h:1"), worker(0))
	if err != nil || len(s.left) != maxLeft || len(s.order) != maxLeft || !s.Left(worker(maxLeft+9)) {
		t.Errorf("%d tasks are remembered, %v", len(s.left), err)
	}
}

// TestNoChangeAfterClose: it is Aborted, because of the end of the server.
func TestNoChangeAfterClose(t *testing.T) {
	m := New(worker(0), specOf(t, "worker=h0:1"))
	m.Close()
	_, err := m.Set(specOf(t, "worker=h0:1,h1:1"), func(Change) { t.Error("a change was applied") })
	if !errors.Is(err, status.ErrShutdown) || m.Spec().Len() != 1 {
		t.Errorf("%v", err)
	}
}
