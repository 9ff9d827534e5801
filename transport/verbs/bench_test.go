package verbstransport_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// BenchmarkReceive measures Send and Recv of one tensor over the in-memory provider,
// including the provider's work. It is meant for profiles and for the allocations of both
// sides.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{8, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkReceive(b, size, clusterOptions{require: true}) })
	}
}

// BenchmarkRoce is BenchmarkReceive over the user-space device.
func BenchmarkRoce(b *testing.B) {
	for _, size := range []int{8, 1 << 20, 16 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			benchmarkReceive(b, size, plainRoce())
		})
	}
}

// plainRoce uses the user-space device of the loopback interface, configured as by the
// server.
func plainRoce() clusterOptions {
	return clusterOptions{
		require: true,
		open:    func(cluster.Task) (verbs.Device, error) { return roce.New(roce.Options{}).Open("roce-lo") },
		path:    verbs.Path{Port: 1, Timeout: 16, Retry: 6, RNRRetry: 6},
	}
}

func benchmarkReceive(b *testing.B, size int, o clusterOptions) {
	r := newBenchRig(b, size, o)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		if err := r.once(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchRig is two processes with a channel between them, and the tensor that one sends.
type benchRig struct {
	t       testing.TB
	out, in *rendezvous.BaseRemote
	key     rendezvous.Key
	x       *tensor.Tensor
	kept    *delivery.ResponseCache
}

func newBenchRig(t testing.TB, size int, o clusterOptions) *benchRig {
	t.Helper()
	from, to := cluster.Task{Job: "w", Index: 0}, cluster.Task{Job: "w", Index: 1}
	c := newCluster(o)(t, []cluster.Task{from, to})
	start := func(task cluster.Task, incarnation uint64) *suiteNode {
		n, ok := c.Start(task, transporttest.NodeOptions{
			Incarnation: incarnation, Allocator: tensor.NewPool(tensor.PoolOptions{}), PeerTimeout: 10 * time.Second,
			Cache: delivery.CacheOptions{KeptTotal: 1 << 30},
		}).(*suiteNode)
		if !ok {
			t.Fatal("another kind of node")
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := n.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	sender, receiver := start(from, 5), start(to, 6)
	key, err := rendezvous.NewKey(cluster.DeviceOf(from), 5, cluster.DeviceOf(to), "x", rendezvous.FrameIter{})
	if err != nil {
		t.Fatal(err)
	}
	shape, err := tensor.NewShape(int64(size))
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensor.Allocate(sender.transport.Allocator(), tensor.Uint8, shape)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	return &benchRig{t: t, out: sender.Manager().Find(1), in: receiver.Manager().Find(1), key: key, x: x, kept: sender.Cache()}
}

// once does one Send and one Recv.
func (r *benchRig) once() error {
	if err := r.out.Send(r.key, rendezvous.Args{}, r.x, false); err != nil {
		return err
	}
	v, err := r.in.Recv(r.t.Context(), r.key, rendezvous.Args{})
	if err == nil {
		v.Tensor.Release()
	}
	return err
}
