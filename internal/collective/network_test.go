package collective

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// network is processes in memory. Those that are Tryst receive from one another by a fake of the
// ledger; all others, and receives from them, take RecvBuf.
type network struct {
	mu    sync.Mutex // guards what follows
	tasks map[cluster.Task]*process
	bufs  atomic.Int64 // calls of RecvBuf
}

// process is one task of a network.
type process struct {
	*Collectives
	unimplemented
	net     *network
	task    cluster.Task
	devices []*tfpb.DeviceAttributes
	plain   bool // not Tryst
	down    bool
	silent  bool // calls of it wait
}

// unimplemented are the methods that collectives do not call.
type unimplemented struct{ transport.Worker }

// newNetwork starts one process for each number, with so many devices.
func newNetwork(t *testing.T, perTask ...int) *network {
	n := &network{tasks: map[cluster.Task]*process{}}
	for task, devices := range perTask {
		n.start(t, task, devices, uint64(1000*(task+1)))
	}
	return n
}

// start starts a process, in place of one with the same number.
func (n *network) start(t *testing.T, task, devices int, incarnation uint64) *process {
	p := &process{net: n, task: device(task, 0).Task}
	for i := range devices {
		p.devices = append(p.devices, &tfpb.DeviceAttributes{Name: device(task, i).String(), DeviceType: "CPU", Incarnation: incarnation + uint64(i)})
	}
	p.Collectives = New(Options{
		Task: p.task, Devices: func() []*tfpb.DeviceAttributes { return p.devices },
		Workers: n, Remoter: p, Tryst: n.tryst, LeaderTimeout: 1,
	})
	t.Cleanup(p.Close)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tasks[p.task] = p
	return p
}

func (n *network) process(task int) *process {
	p, _ := n.find(device(task, 0).Task)
	return p
}

func (n *network) find(task cluster.Task) (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.tasks[task]
	switch {
	case p == nil:
		return nil, status.Errorf(status.NotFound, "the cluster has no task %v", task)
	case p.down:
		return p, status.Errorf(status.Unavailable, "%v is not reached", task)
	}
	return p, nil
}

// kill makes a process unreachable.
func (n *network) kill(task int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tasks[device(task, 0).Task].down = true
}

// silence stops a process.
func (n *network) silence(task int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tasks[device(task, 0).Task].silent = true
}

func (n *network) tryst(_ context.Context, task cluster.Task) (bool, error) {
	p, err := n.find(task)
	if err != nil {
		return false, err
	}
	return !p.plain, nil
}

// Worker implements transport.WorkerCache.
func (n *network) Worker(task cluster.Task) (transport.Worker, error) {
	p, err := n.find(task)
	if p == nil {
		return nil, err
	}
	return p, nil
}

// Tasks implements transport.WorkerCache: as many as were started.
func (n *network) Tasks() []cluster.Task {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.tasks))
}

func (p *process) reached(ctx context.Context) error {
	_, err := p.net.find(p.task)
	p.net.mu.Lock()
	silent := p.silent
	p.net.mu.Unlock()
	if silent {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return status.From(ctx.Err())
	}
	return err
}

func (p *process) CompleteGroup(ctx context.Context, r *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	if err := p.reached(ctx); err != nil {
		return nil, err
	}
	return p.Collectives.CompleteGroup(ctx, r)
}

func (p *process) CompleteInstance(ctx context.Context, r *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error) {
	return p.Collectives.CompleteInstance(ctx, r)
}

func (p *process) GetStepSequence(ctx context.Context, r *tfpb.GetStepSequenceRequest) (*tfpb.GetStepSequenceResponse, error) {
	return p.Collectives.GetStepSequence(ctx, r)
}

func (p *process) GetStatus(ctx context.Context, _ *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	if err := p.reached(ctx); err != nil {
		return nil, err
	}
	return &tfpb.GetStatusResponse{DeviceAttributes: p.devices}, nil
}

func (p *process) RecvBuf(ctx context.Context, r *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error) {
	p.net.bufs.Add(1)
	if err := p.reached(ctx); err != nil {
		return nil, err
	}
	return p.Collectives.RecvBuf(ctx, r)
}

// receive is a transfer of the fake ledger.
type receive struct {
	p    *process
	step int64
	key  rendezvous.Key
	into *rendezvous.Into
}

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (p *process) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, _ rendezvous.DoneFunc) rendezvous.Transfer {
	return &receive{p, step, key, rendezvous.IntoOf(args)}
}

func (r *receive) Cancel(error) {}

func (r *receive) Wait(ctx context.Context) (v rendezvous.Value, err error) {
	from, err := r.p.net.find(r.key.Src().Task)
	if err != nil {
		return v, err
	}
	if r.into != nil {
		if err := r.into.Claim(); err != nil {
			return v, err
		}
		defer r.into.End(func(f func()) { f() })
	}
	got, ok := from.Publisher().TakePublished(r.key)
	if !ok {
		c := make(chan error, 1)
		from.Publisher().RecvPublished(ctx, r.key, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			got = v
			c <- err
		})
		if err := <-c; err != nil {
			return v, err
		}
	}
	if err := r.into.Check(got.Tensor.DType(), got.Tensor.Shape()); err != nil {
		got.Tensor.Release()
		return v, err
	}
	return rendezvous.Value{Tensor: r.into.Copy(got.Tensor)}, nil
}

// members enters all devices of the processes into a group.
func (n *network) members(t *testing.T, key int32) []*Group {
	t.Helper()
	var devices []cluster.Device
	for _, p := range n.tasks {
		for _, a := range p.devices {
			d, _ := cluster.ParseDevice(a.GetName())
			devices = append(devices, d)
		}
	}
	slices.SortFunc(devices, compareDevices)
	groups := make([]*Group, len(devices))
	errs := each(len(devices), func(i int) (err error) {
		groups[i], err = n.tasks[devices[i].Task].NewGroup(t.Context(), GroupOptions{Key: key, Size: len(devices), Device: devices[i]})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, g := range groups {
		if g.Rank() != i || g.Size() != len(devices) || g.Member(i) != devices[i] {
			t.Fatalf("%v has rank %d of %d", devices[i], g.Rank(), g.Size())
		}
	}
	return groups
}

// each runs f for each number at once.
func each(n int, f func(int) error) []error {
	errs := make([]error, n)
	var w sync.WaitGroup
	for i := range n {
		w.Go(func() { errs[i] = f(i) })
	}
	w.Wait()
	return errs
}

// ramp returns n numbers that differ for each rank.
func ramp(t *testing.T, rank, n int) *tensor.Tensor {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i%1000 + 1000*rank)
	}
	return slice(t, v...)
}
