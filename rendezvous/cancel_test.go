package rendezvous_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// The tests H14 are those of TensorFlow's cancellation manager. Contexts take
// its place: a child manager is a child context, registering a callback is
// beginning a receive, and it is deregistered when the value comes.

// cancellations runs test for each kind in a bubble, in which synctest.Wait
// says that no callback is on its way any more.
func cancellations(t *testing.T, test func(t *testing.T, r rendezvous.Rendezvous, c *tensors)) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, _ *tensors) {
		synctest.Test(t, func(t *testing.T) { test(t, r, counted(t)) })
	})
}

// mustHaveRunOnce checks that done ran exactly once, once nothing is on its way.
func (p *pending) mustHaveRunOnce(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if n := p.calls.Load(); n != 1 {
		t.Errorf("done ran %d times", n)
	}
}

func TestH14CancelledBeforeRecv(t *testing.T) {
	cancellations(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.mustSend(t, r, key(t, "a"), 1)
		p := recvAsync(ctx, r, key(t, "a"))
		mustBeDerived(t, p.wait(t).err, status.Cancelled, "RecvAsync of edge ")
		cancel()
		p.mustHaveRunOnce(t)
		mustRecv(t, r, key(t, "a"), 1)
	})
}

// Whatever ends a receive, in whatever order, only the first thing does.
func TestH14CallbackRunsOnce(t *testing.T) {
	for name, order := range map[string][]string{
		"child, parent":               {"child", "parent"},
		"parent, child":               {"parent", "child"},
		"child twice":                 {"child", "child"},
		"child, value, parent":        {"child", "value", "parent"},
		"value, parent, child":        {"value", "parent", "child"},
		"parent, abort, child":        {"parent", "abort", "child"},
		"abort, child, parent":        {"abort", "child", "parent"},
		"value, abort, child, parent": {"value", "abort", "child", "parent"},
	} {
		t.Run(name, func(t *testing.T) {
			cancellations(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
				parent, cancelParent := context.WithCancel(t.Context())
				child, cancelChild := context.WithCancel(parent)
				end := map[string]func(){
					"parent": cancelParent, "child": cancelChild,
					"value": func() { c.mustSend(t, r, key(t, "a"), 1) },
					"abort": func() { r.Abort(errBoom) },
				}
				p := recvAsync(child, r, key(t, "a"))
				for _, what := range order {
					end[what]()
					p.mustHaveRunOnce(t)
				}
				switch order[0] {
				case "value":
					p.mustGet(t, 1)
				case "abort":
					p.mustFail(t, errBoom)
				default:
					p.mustFail(t, context.Canceled)
				}
				cancelParent()
				cancelChild()
				r.Abort(errBoom) // drops a value that nobody took
			})
		})
	}
}

func TestH14ParentCancelsChildren(t *testing.T) {
	cancellations(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		parent, cancelParent := context.WithCancel(t.Context())
		child, cancelChild := context.WithCancel(parent)
		grandchild, cancelGrandchild := context.WithCancel(child)
		sibling, cancelSibling := context.WithCancel(t.Context())
		defer cancelChild()
		defer cancelGrandchild()
		defer cancelSibling()
		both := []*pending{recvAsync(child, r, key(t, "a")), recvAsync(grandchild, r, key(t, "a"))}
		other := recvAsync(sibling, r, key(t, "a"))
		cancelParent()
		for _, p := range both {
			mustBeDerived(t, p.wait(t).err, status.Cancelled, "RecvAsync of edge ")
			p.mustHaveRunOnce(t)
		}
		c.mustSend(t, r, key(t, "a"), 1)
		other.mustGet(t, 1)
	})
}

func TestH14ChildLeavesParent(t *testing.T) {
	cancellations(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		parent, cancelParent := context.WithCancel(t.Context())
		defer cancelParent()
		child, cancelChild := context.WithCancel(parent)
		stays, goes := recvAsync(parent, r, key(t, "a")), recvAsync(child, r, key(t, "a"))
		cancelChild()
		goes.mustFail(t, context.Canceled)
		synctest.Wait()
		if !stays.waits() {
			t.Error("the child's cancel ended a receive of its parent")
		}
		c.mustSend(t, r, key(t, "a"), 1)
		stays.mustGet(t, 1)
	})
}

func TestH14ParentCancelledAlready(t *testing.T) {
	cancellations(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		parent, cancelParent := context.WithCancel(t.Context())
		cancelParent()
		child, cancelChild := context.WithCancel(parent)
		defer cancelChild()
		c.mustSend(t, r, key(t, "a"), 1)
		p := recvAsync(child, r, key(t, "a"))
		mustBeDerived(t, p.wait(t).err, status.Cancelled, "RecvAsync of edge ")
		p.mustHaveRunOnce(t)
		mustRecv(t, r, key(t, "a"), 1)
	})
}

func TestH14CancelAfterTheValue(t *testing.T) {
	cancellations(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		p := recvAsync(ctx, r, key(t, "a"))
		next := recvAsync(t.Context(), r, key(t, "a"))
		c.mustSend(t, r, key(t, "a"), 1)
		cancel()
		p.mustHaveRunOnce(t)
		p.mustGet(t, 1)
		if !next.waits() {
			t.Error("the late cancel ended another receive of the key")
		}
		c.mustSend(t, r, key(t, "a"), 2)
		next.mustGet(t, 2)
	})
}

// The callback of a cancelled receive runs on a goroutine of its own; Close
// waits for it, and for no value.
func TestH14CloseWaitsForTheCallback(t *testing.T) {
	cancellations(t, func(t *testing.T, r rendezvous.Rendezvous, _ *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		hold, ended := make(chan struct{}), false
		r.RecvAsync(ctx, key(t, "a"), noArgs, func(_ rendezvous.Value, _ rendezvous.Args, err error) {
			mustBeDerived(t, err, status.Cancelled, "RecvAsync of edge ")
			<-hold
			ended = true
		})
		cancel()
		synctest.Wait()
		var wg sync.WaitGroup
		closed := false
		wg.Go(func() {
			r.(interface{ Close() }).Close()
			closed = true
		})
		synctest.Wait()
		if closed {
			t.Error("Close returned while the callback runs")
		}
		close(hold)
		wg.Wait()
		if !ended {
			t.Error("the callback did not end")
		}
	})
}
