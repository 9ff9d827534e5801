package rendezvous_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// TestAbortWithEndsTheStepsOfATask: those in which something is under way with it, and no others.
func TestAbortWithEndsTheStepsOfATask(t *testing.T) {
	const ps10 = "/job:ps/replica:0/task:10/device:CPU:0"
	c := counted(t)
	a, _, _ := connected(t)
	gone := device(t, ps1).Task
	why := status.New(status.Aborted, "it has left").WithKind(status.ErrTaskLeft)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	c.mustSend(t, a.Find(1), between(t, ps, ps1, "x"), 1)
	receive := recvAsync(ctx, a.Find(2), between(t, ps1, ps, "x"))
	request := ask(ctx, a, 3, between(t, ps, ps1, "x"))
	a.Find(4)
	foreign := ask(ctx, a, 5, between(t, ps1, ps1, "x")) // waits for the step to begin
	x := c.make(6)
	if _, err := a.Find(6).SendWait(ctx, between(t, ps, ps1, "x"), noArgs, x, false); err != nil {
		t.Fatal(err)
	}
	x.Release()
	var taken rendezvous.Value
	a.RecvLocalAsync(ctx, 6, between(t, ps, ps1, "x"), func(v rendezvous.Value, _ rendezvous.Args, _ error) { taken = v })
	c.mustSend(t, a.Find(7), between(t, ps, ps10, "x"), 7) // a name that begins with that of the task
	c.mustSend(t, a.Find(8), key(t, "x"), 8)

	a.AbortWith(gone, why)
	for step, want := range map[int64]bool{1: true, 2: true, 3: true, 4: false, 5: true, 6: true, 7: false, 8: false} {
		if ended := a.Err(step) != nil; ended != want {
			t.Errorf("step %d has ended: %v, want %v", step, ended, want)
		}
	}
	for _, p := range []*pending{receive, request, foreign} {
		if o := p.wait(t); !errors.Is(o.err, status.ErrTaskLeft) {
			t.Errorf("%v", o)
		}
	}
	taken.Tensor.Release()
}
