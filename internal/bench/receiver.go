package bench

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// receiver is the receiving side of Tryst as a program has it: a client with its
// rendezvous. It receives publications, whose keys are answered as often as
// asked, so that the way of a receive is measured and no Send.
type receiver struct {
	client *server.Client
	ctx    context.Context // of the steps that are open
	stop   context.CancelFunc
}

// dialReceiver makes the receiver from the server at address. The end of ctx
// ends what it does.
func dialReceiver(ctx context.Context, c server.Config, address string, pool tensor.Allocator) (*receiver, error) {
	client, err := server.Dial(ctx, c, address, server.Options{Allocator: pool})
	if err != nil {
		return nil, err
	}
	r := &receiver{client: client}
	r.ctx, r.stop = context.WithCancel(ctx)
	return r, nil
}

func (r *receiver) close() error {
	r.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return r.client.Close(ctx)
}

// target is a published tensor, ready to be received.
type target struct {
	step int64
	key  rendezvous.Key
	size int64
}

// published is a tensor that the server has.
type published struct {
	publication, version, name string
	size                       int64
}

// targets opens, for each size, the published tensor that is nearest to it.
// Sizes that have the same nearest tensor give one target.
func (r *receiver) targets(sizes []int64) ([]target, error) {
	all, err := r.published()
	if err != nil {
		return nil, err
	}
	var chosen []published
	for _, size := range sizes {
		if p := nearest(all, size); !slices.Contains(chosen, p) {
			chosen = append(chosen, p)
		}
	}
	targets := make([]target, len(chosen))
	for i, p := range chosen {
		if targets[i], err = r.open(p); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// published lists what the server publishes; it is an error when that is
// nothing.
func (r *receiver) published() ([]published, error) {
	puller := r.client.Puller()
	publications, err := puller.List(r.ctx)
	if err != nil {
		return nil, err
	}
	var all []published
	for _, p := range publications {
		m, err := puller.Describe(r.ctx, p.Name, p.Version)
		if err != nil {
			return nil, err
		}
		for _, e := range m.Entries {
			all = append(all, published{p.Name, p.Version, e.Name, e.Bytes})
		}
	}
	if len(all) == 0 {
		return nil, status.Errorf(status.NotFound,
			"the server at %s publishes no tensor, so there is nothing to receive: start it with --publish", r.client.Target())
	}
	return all, nil
}

// nearest returns the tensor whose size is the fewest times more or less than
// size.
func nearest(all []published, size int64) published {
	distance := func(p published) float64 { return math.Abs(math.Log(float64(p.size+1) / float64(size+1))) }
	return slices.MinFunc(all, func(a, b published) int {
		switch da, db := distance(a), distance(b); {
		case da < db:
			return -1
		case da > db:
			return 1
		}
		return 0
	})
}

// open asks for a step with the key of a tensor. The step lives until close.
func (r *receiver) open(p published) (target, error) {
	stream, err := trystgrpc.NewPublicationsClient(r.client.Conn()).Open(r.ctx, &trystpb.OpenRequest{
		Publication: p.publication, Version: p.version, Tensors: []string{p.name},
		Puller: r.client.Task().String(), PullerIncarnation: r.client.Incarnation(),
	})
	var resp *trystpb.OpenResponse
	if err == nil {
		resp, err = stream.Recv()
	}
	if err != nil {
		return target{}, status.Errorf(status.Unavailable, "opening publication %s: %w", p.publication, err)
	}
	if len(resp.GetKeys()) != 1 {
		return target{}, status.Errorf(status.Internal, "opening publication %s gave %d keys for one tensor", p.publication, len(resp.GetKeys()))
	}
	key, err := rendezvous.ParseKey(resp.GetKeys()[0].GetKey())
	return target{step: resp.GetStepId(), key: key, size: p.size}, err
}

// received is the outcome of one receive.
type received struct {
	v    rendezvous.Value
	err  error
	took time.Duration // until the callback, or until the call returns; 0 where it is not measured
}

// check releases what was received, and says what is wrong with it.
func (t *target) check(got *received) error {
	if got.err != nil {
		return got.err
	}
	size := got.v.Tensor.Size()
	got.v.Tensor.Release()
	if size != t.size {
		return status.Errorf(status.DataLoss, "%s: %d bytes arrived in place of %d", t.key, size, t.size)
	}
	return nil
}

// receive returns an operation for load, which receives t. Each worker waits on
// a channel of its own, made here, so that waiting allocates nothing.
func (r *receiver) receive(t target, workers int) func(ctx context.Context, worker, n int) error {
	outcomes := make([]chan received, workers)
	dones := make([]rendezvous.DoneFunc, workers)
	for i := range workers {
		c := make(chan received, 1)
		outcomes[i], dones[i] = c, func(v rendezvous.Value, _ rendezvous.Args, err error) { c <- received{v: v, err: err} }
	}
	return func(ctx context.Context, worker, n int) error {
		for range n {
			r.client.RecvAsync(ctx, t.step, t.key, dones[worker])
			got := <-outcomes[worker]
			if err := t.check(&got); err != nil {
				return err
			}
		}
		return nil
	}
}

// callback returns a side that receives t, one after the other, each timed from the
// request to the callback, and scores the median: a few that took long, since the
// machine did something else, do not count. The callback asks for the next one, as
// ib_send_lat sends when it has received; a goroutine that it woke to do so would be timed
// with it, and is the program's affair.
func (r *receiver) callback(t target) side {
	return func(ctx context.Context, d time.Duration) (m run, err error) {
		over := make(chan error, 1)
		var asked time.Time
		var ask func()
		begin := time.Now()
		done := func(v rendezvous.Value, _ rendezvous.Args, err error) {
			got := received{v: v, err: err, took: time.Since(asked)}
			if err := t.check(&got); err != nil {
				over <- err
				return
			}
			m.latencies.add(got.took, 1)
			if m.time = time.Since(begin); m.time >= d {
				over <- nil
				return
			}
			ask()
		}
		ask = func() {
			asked = time.Now()
			r.client.RecvAsync(ctx, t.step, t.key, done)
		}
		ask()
		if err := <-over; err != nil {
			return m, err
		}
		m.count = m.latencies.count
		return m, m.byMedian()
	}
}

// blocking is callback by a call that waits, timed until it returns.
func (r *receiver) blocking(t target) side {
	return func(ctx context.Context, d time.Duration) (m run, err error) {
		for begin := time.Now(); m.time < d; m.time = time.Since(begin) {
			asked := time.Now()
			v, err := r.client.Recv(ctx, t.step, t.key)
			got := received{v: v, err: err, took: time.Since(asked)}
			if err := t.check(&got); err != nil {
				return m, err
			}
			m.latencies.add(got.took, 1)
		}
		m.count = m.latencies.count
		return m, m.byMedian()
	}
}

// pull pulls a whole publication, checks its digests, and returns how long the
// transfer alone took.
func (r *receiver) pull(name string) (checkpoint.Summary, error) {
	var s checkpoint.Summary
	for t, err := range r.client.Puller().Pull(r.ctx, checkpoint.PullRequest{Publication: name, Summary: &s}) {
		if err != nil {
			return s, err
		}
		t.Release()
	}
	return s, nil
}
