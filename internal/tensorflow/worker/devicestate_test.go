package worker

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// TestEachDeviceHasItsOwnState: the nodes of each device of a session have a state of the kernel set.
// Sessions that share their state share those of all devices, each with what nodes keep for it alone, and
// a reset or the end is for all.
func TestEachDeviceHasItsOwnState(t *testing.T) {
	set := new(fakeSet)
	f := newFixture(t, Options{Kernels: set, Session: rendezvous.NewSession(here, incarnation, 3)})
	defer f.close()
	nodes := func(indexes ...int) (defs []*tfpb.NodeDef) {
		for i, index := range indexes {
			d := cluster.DeviceOf(here)
			d.Index = index
			defs = append(defs, &tfpb.NodeDef{Name: string(rune('a' + i)), Op: "Neg", Device: d.String()})
		}
		return defs
	}
	for _, c := range []struct {
		session  string
		isolated bool
		devices  []int
		states   int
	}{
		{"first", false, []int{0, 1, 0, 1}, 2},
		{"second", false, []int{1}, 2},
		{"third", false, []int{2, 0}, 3},
		{"isolated", true, []int{1, 0}, 5},
		{"isolated", true, []int{1, 0}, 5},
	} {
		if _, err := f.CreateWorkerSession(t.Context(), &tfpb.CreateWorkerSessionRequest{SessionHandle: c.session, IsolateSessionState: c.isolated}); err != nil {
			t.Fatal(err)
		}
		req := registration(c.session, "a")
		req.GraphDef.Node = nodes(c.devices...)
		if _, err := f.RegisterGraph(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if n := len(set.made()); n != c.states {
			t.Fatalf("%s on the devices %v: %d states, want %d", c.session, c.devices, n, c.states)
		}
	}
	if _, err := f.CleanupAll(t.Context(), &tfpb.CleanupAllRequest{Container: []string{"box"}}); err != nil {
		t.Fatal(err)
	}
	for i, s := range set.made() {
		if shared := i < 3; (len(s.resets) == 1) != shared {
			t.Errorf("state %d was reset %d times", i, len(s.resets))
		}
	}
	if _, err := f.DeleteWorkerSession(t.Context(), &tfpb.DeleteWorkerSessionRequest{SessionHandle: "isolated"}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for i, s := range set.made() {
		if s.closed != 1 {
			t.Errorf("state %d was closed %d times", i, s.closed)
		}
		if want := []int{2, 2, 1, 0, 0}[i]; len(s.sessions) != want {
			t.Errorf("%d sessions share state %d, want %d", len(s.sessions), i, want)
		}
		for _, one := range s.sessions {
			if one.closed != 1 {
				t.Errorf("a session of state %d was closed %d times", i, one.closed)
			}
		}
	}
}

// TestDeviceStatesEnd: a state that was closed makes no state for another device.
func TestDeviceStatesEnd(t *testing.T) {
	s, err := setFor(new(fakeSet), 2).NewState()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, err = stateOf(s, cluster.DeviceOf(here).String())
	wantCode(t, err, status.Aborted, "the session has ended")
}

// TestGraphWithoutNodesNeedsNoDevice: it stays as it is, and no state is made for it.
func TestGraphWithoutNodesNeedsNoDevice(t *testing.T) {
	set := new(fakeSet)
	state, err := setFor(set, 2).NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	empty := new(graph.Graph)
	if g, err := state.Rewrite(empty); g != empty || err != nil || len(set.made()) != 0 {
		t.Errorf("%v, %v, %d states", g, err, len(set.made()))
	}
}
