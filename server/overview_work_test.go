package server

import (
	"context"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// TestStatusHasSessionsAndTheirSteps: a master's graph waits for a value. The status has its session, its step, and the key.
func TestStatusHasSessionsAndTheirSteps(t *testing.T) {
	s := start(t, settings(withMetrics), Options{Kernels: ops.New()})
	session := openSession(t, s, master.Options{})
	g := session.NewGraph()
	g.Fetch("x", g.Recv("never", tensor.Float32, session.Devices()[0]), tensor.Float32)
	p := registerGraph(t, session, g)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, master.NewStep(), nil)
		done <- err
	}()
	running := func(st *statusapi.Status) bool {
		return slices.ContainsFunc(st.Sessions.Oldest, func(x statusapi.Session) bool { return x.Steps == 1 }) && findWait(st, statusapi.WaitLocal, "never") != nil
	}
	st := statusWhen(t, s, "running", running)
	i := slices.IndexFunc(st.Sessions.Oldest, func(x statusapi.Session) bool { return x.Steps == 1 })
	if x := st.Sessions.Oldest[i]; x.Graphs != 1 || x.Task != s.Task().String() || len(x.Running) != 1 || x.Running[0].Step == "" || x.Running[0].Since.IsZero() || st.Sessions.Total < 1 {
		t.Errorf("%+v", st.Sessions)
	}
	cancel()
	wantStatus(t, <-done, status.Cancelled, "")
	statusWhen(t, s, "without a step", func(st *statusapi.Status) bool {
		return !slices.ContainsFunc(st.Sessions.Oldest, func(x statusapi.Session) bool { return x.Steps > 0 })
	})
}

// TestStatusHasGroupsAndWhoIsMissing: one of two tasks has joined a group. The leader's status names the other one.
func TestStatusHasGroupsAndWhoIsMissing(t *testing.T) {
	a, b := twoTasks(t, withMetrics)
	joined := make(chan error, 1)
	go func() {
		_, err := a.collective.NewGroup(t.Context(), collective.GroupOptions{Key: 5, Size: 2})
		joined <- err
	}()
	waits := func(complete bool) func(st *statusapi.Status) bool {
		return func(st *statusapi.Status) bool {
			return slices.ContainsFunc(st.Groups.Oldest, func(g statusapi.Group) bool { return g.Key == 5 && g.Complete == complete })
		}
	}
	st := statusWhen(t, a, "a group that waits", waits(false))
	if g := st.Groups.Oldest[0]; g.Size != 2 || g.Joined != 1 || !slices.Equal(g.Missing, []string{b.Task().String()}) || st.Groups.Total != 1 || g.Since.IsZero() {
		t.Errorf("%+v", st.Groups)
	}
	if _, err := b.collective.NewGroup(t.Context(), collective.GroupOptions{Key: 5, Size: 2}); err != nil {
		t.Fatal(err)
	}
	if err := <-joined; err != nil {
		t.Fatal(err)
	}
	st = statusWhen(t, a, "a group that is complete", waits(true))
	if g := st.Groups.Oldest[0]; g.Joined != 2 || len(g.Missing) != 0 {
		t.Errorf("%+v", st.Groups)
	}
}
