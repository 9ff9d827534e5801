package verbstransport_test

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// TestPeersThatHaveGoneAreForgotten: clients come and go under their own names. A server
// serves any number of them, one after the other, and their counts are kept.
func TestPeersThatHaveGoneAreForgotten(t *testing.T) {
	tasks := make([]cluster.Task, 7)
	for i := range tasks {
		tasks[i] = cluster.Task{Job: "worker", Index: i}
	}
	c, ok := newCluster(clusterOptions{tune: func(_ cluster.Task, o *verbstransport.Options) {
		o.Callable = func(task cluster.Task) bool { return task.Index == 0 }
	}})(t, tasks).(*suiteCluster)
	if !ok {
		t.Fatal("it is no cluster of the suite")
	}
	c.tasks = tasks[:1] // the task that the others connect to
	start := func(i int) *suiteNode {
		n, ok := c.Start(tasks[i], transporttest.NodeOptions{
			Incarnation: uint64(i + 1), Allocator: tensortest.NewAllocator(t), PeerTimeout: 10 * time.Second,
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
	from := start(0)
	defer stop(from)
	from.transport.SetMaxPeers(2)
	sent := func() (tensors, messages uint64, records int) {
		for _, l := range from.transport.Connections() {
			tensors, messages = tensors+l.Stats.Sent, messages+l.Stats.MessagesSent
			records++
		}
		return tensors, messages, records
	}
	var before uint64
	for i := 1; i < len(tasks); i++ {
		p := &pair{t: t, to: start(i), from: from, sender: 1, step: int64(100 * i), slow: 20 * time.Second}
		p.until("verbs", isUp)
		p.exchange()
		stop(p.to)
		tensors, messages, records := sent()
		if tensors != uint64(i) || messages <= before || records > 3 { //nolint:gosec // a few
			t.Errorf("after %d: %d tensors and %d messages were sent (before %d), of %d peers", i, tensors, messages, before, records)
		}
		before = messages
	}
}
