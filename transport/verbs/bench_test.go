package verbstransport_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/transporttest"
	"github.com/tryst-rdma/tryst/worker"
)

// BenchmarkReceive is a Send and a Recv of one tensor over the in-memory provider,
// whose own work is in the time. It is for profiles, and shows what a receive
// allocates on both sides.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{8, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkReceive(b, size) })
	}
}

func benchmarkReceive(b *testing.B, size int) {
	from, to := cluster.Task{Job: "w", Index: 0}, cluster.Task{Job: "w", Index: 1}
	c := newCluster(clusterOptions{require: true})(b, []cluster.Task{from, to})
	start := func(task cluster.Task, incarnation uint64) *suiteNode {
		n, ok := c.Start(task, transporttest.NodeOptions{
			Incarnation: incarnation, Allocator: tensor.NewPool(tensor.PoolOptions{}), PeerTimeout: 10 * time.Second,
			Kept: transport.KeptOptions{KeptTotal: 1 << 30},
		}).(*suiteNode)
		if !ok {
			b.Fatal("another kind of node")
		}
		b.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := n.Stop(ctx); err != nil {
				b.Error(err)
			}
		})
		return n
	}
	sender, receiver := start(from, 5), start(to, 6)
	key, err := rendezvous.NewKey(worker.Device(from), 5, worker.Device(to), "x", rendezvous.FrameIter{})
	if err != nil {
		b.Fatal(err)
	}
	shape, err := tensor.NewShape(int64(size))
	if err != nil {
		b.Fatal(err)
	}
	x, err := tensor.Allocate(sender.transport.Allocator(), tensor.Uint8, shape)
	if err != nil {
		b.Fatal(err)
	}
	defer x.Release()
	out, in := sender.Manager().Find(1), receiver.Manager().Find(1)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		if err := out.Send(key, rendezvous.Args{}, x, false); err != nil {
			b.Fatal(err)
		}
		v, err := in.Recv(b.Context(), key, rendezvous.Args{})
		if err != nil {
			b.Fatal(err)
		}
		v.Tensor.Release()
	}
}
