package verbstransport_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// TestAClientThatJoinsIsCalled: a task that called before it was in the cluster is a client. When it has come, this side makes
// the channel to its next process, which does not call.
func TestAClientThatJoinsIsCalled(t *testing.T) {
	tasks := []cluster.Task{{Job: "worker"}, {Job: "worker", Index: 1}}
	var joined atomic.Bool
	c, ok := newCluster(clusterOptions{tune: func(_ cluster.Task, o *verbstransport.Options) {
		o.Callable = func(task cluster.Task) bool { return task.Index == 0 || joined.Load() }
	}})(t, tasks).(*suiteCluster)
	if !ok {
		t.Fatal("it is no cluster of the suite")
	}
	start := func(i int, incarnation uint64, connectsTo ...cluster.Task) *suiteNode {
		c.tasks = connectsTo
		n, ok := c.Start(tasks[i], transporttest.NodeOptions{
			Incarnation: incarnation, Allocator: tensortest.NewAllocator(t), PeerTimeout: 10 * time.Second,
		}).(*suiteNode)
		if !ok {
			t.Fatal("it is no node of the suite")
		}
		return n
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stop := func(n *suiteNode) {
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	from := start(0, 1)
	defer stop(from)
	meet := func(to *suiteNode, step int64) {
		p := &pair{t: t, to: to, from: from, sender: 1, step: step, slow: 20 * time.Second}
		p.until("verbs", isUp)
		p.exchange()
	}
	to := start(1, 2, tasks[0])
	meet(to, 100)
	joined.Store(true)
	from.transport.Joined(tasks[1])
	meet(to, 200) // over the same channel
	stop(to)
	next := start(1, 3)
	defer stop(next)
	meet(next, 300)
	if n := len(from.transport.Connections()); n != 1 {
		t.Errorf("%d records", n)
	}
}

// TestTaskThatHasJustLeftIsNotFound: the task was in the cluster when the receive began, and
// has left when it looks for a connection.
func TestTaskThatHasJustLeftIsNotFound(t *testing.T) {
	task := cluster.Task{Job: "worker"}
	c, ok := newCluster(clusterOptions{tune: func(_ cluster.Task, o *verbstransport.Options) {
		o.Left = func(cluster.Task) bool { return true }
	}})(t, []cluster.Task{task}).(*suiteCluster)
	if !ok {
		t.Fatal("it is no cluster of the suite")
	}
	c.tasks = nil
	n, ok := c.Start(task, transporttest.NodeOptions{Incarnation: 1, Allocator: tensortest.NewAllocator(t)}).(*suiteNode)
	if !ok {
		t.Fatal("it is no node of the suite")
	}
	defer func() {
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := n.transport.Conn(task); status.CodeOf(err) != status.NotFound || !errors.Is(err, status.ErrTaskLeft) {
		t.Errorf("%v", err)
	}
}
