package collective

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// groupStep is the step of the operations that belong to no graph. TensorFlow's eager runtime has
// the same, so its workers can be members of a Group. Graphs cannot use it here, and it ends only with
// the Collectives: a Group ends by Close.
const groupStep = 0

// Group is this process's membership in a group of processes that compute together, for a Go
// program. All members call the same operations in the same order. It is safe for concurrent use,
// if all members begin the operations in the same order.
//
// An error of one member ends the operation at all of them: their calls return an error within
// Options.PeerTimeout, and so do all later ones. So do Close at a member, the end of its context, and
// a process that is gone, restarted, or gives no sign: one that is stopped does not answer a call. A
// member that answers, and has not called the operation yet, is waited for without a limit. The
// program then closes the group; the members go on with a new one, under another key.
//
// An error at a member of TensorFlow, whose process lives on, ends only the calls that receive from
// that one: TensorFlow has no message for it.
type Group struct {
	c    *Collectives
	s    *Step
	m    *members
	rank int
	// number is that of the run of the group key in bufs.
	number uint64
	ctx    context.Context // ends with the group
	stop   context.CancelCauseFunc

	mu   sync.Mutex // guards what follows
	next int32      // the instance key of the last operation
	err  error
}

// GroupOptions describe a group.
type GroupOptions struct {
	// Key is the number of the group, the same at all members. Different groups of a cluster have
	// different keys; 0 is not possible.
	Key int32
	// Size is the number of members.
	Size int
	// Device is the device that is the member; the zero Device is CPU:0 of this process. A process
	// may be a member with several devices.
	Device cluster.Device
}

// NewGroup enters a group and waits until all members have entered. The members find each other
// through the leader (Options.Leader), which may start later than they do. If ctx ends first, NewGroup
// returns Cancelled or DeadlineExceeded, and names the members that have not entered. A leader that is a Tryst
// process tells them; the request takes half a second at most. A group key that is in use with another size is Internal; a
// member whose process has restarted since the group was made is FailedPrecondition, and the next
// NewGroup makes the group again.
func (c *Collectives) NewGroup(ctx context.Context, o GroupOptions) (*Group, error) {
	if o.Key == 0 {
		return nil, status.New(status.InvalidArgument, "a group needs a key that is not 0, the same at all members")
	}
	if o.Device == (cluster.Device{}) {
		o.Device = cluster.Device{Task: c.opts.Task, Type: "CPU"}
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.work.Done()
	s := c.Step(groupStep)
	ctx, stop := s.within(ctx, timeout{})
	defer stop()
	m, err := s.join(ctx, "NewGroup", o.Device, groupKey{o.Key, o.Size}, reduction, 0)
	if err != nil {
		return nil, err
	}
	g := &Group{c: c, s: s, m: m, rank: m.rank(o.Device), number: s.bufs.beginGroup(o.Key, o.Device)}
	g.ctx, g.stop = context.WithCancelCause(context.Background())
	return g, nil
}

// groupKey names a group as an operation does.
type groupKey struct {
	key  int32
	size int
}

// join enters a device of this process into a group.
func (s *Step) join(ctx context.Context, name string, d cluster.Device, g groupKey, k kind, patience time.Duration) (*members, error) {
	attributes, err := s.c.attributes(d)
	if err != nil {
		return nil, err
	}
	r := joinRequest{name: name, key: g.key, size: g.size, deviceType: d.Type, device: attributes, patience: patience}
	m, err := s.c.group(ctx, r, k)
	if err != nil {
		return nil, s.c.nameAbsent(ctx, r, err)
	}
	if m.rank(d) < 0 { // another process had the name when the group was made
		s.c.groups.forget(m)
		return nil, status.Errorf(status.FailedPrecondition, "group %d does not contain the device %s", g.key, d)
	}
	return m, nil
}

// Rank returns the place of this member, from 0 on: the members are in the order of their names.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of members.
func (g *Group) Size() int { return g.m.size() }

// Member returns the device that has a rank.
func (g *Group) Member(rank int) cluster.Device { return g.m.list[rank].device }

// AllReduce merges the tensors of all members, element by element, and returns the result, which is
// the same at all of them. The caller releases it. The tensors have the same type and number of
// elements; float, double, half, bfloat16, int32 and int64 are possible, anything else is
// InvalidArgument.
//
// Nobody may write to t or to the result while peers may still read them: until
// Buffer().Unique reports true. In a group of one, and for no elements, the result is t itself with
// another reference.
func (g *Group) AllReduce(ctx context.Context, t *tensor.Tensor, merge Merge) (*tensor.Tensor, error) {
	if merge < Add || merge > Mean {
		return nil, status.Errorf(status.InvalidArgument, "AllReduce: %d is no Merge", merge)
	}
	var out *tensor.Tensor
	err := g.run(ctx, "AllReduce", func(x *exchange) (err error) {
		rings := allReduceRings(g.m, g.rank, []int{0}) // TensorFlow's default, too
		out, err = x.allReduce(t, merge, merge == Mean, rings)
		return err
	})
	return out, err
}

// Gather returns the tensors of all members, joined along the first dimension in the order of the
// ranks. They have the same type and shape, which is not a scalar. The caller releases the result.
func (g *Group) Gather(ctx context.Context, t *tensor.Tensor) (*tensor.Tensor, error) {
	var out *tensor.Tensor
	err := g.run(ctx, "Gather", func(x *exchange) (err error) {
		out, err = x.gather(t)
		return err
	})
	return out, err
}

// Broadcast sends t of the member with the rank root to all others, which receive it into their t.
// These have the same type and shape, and nobody else may have a reference to them. After an error
// their content is undefined, and peers may write to them until Buffer().Unique reports true.
func (g *Group) Broadcast(ctx context.Context, root int, t *tensor.Tensor) error {
	if root < 0 || root >= g.m.size() {
		return status.Errorf(status.InvalidArgument, "Broadcast: the group has no rank %d; its ranks are 0 to %d", root, g.m.size()-1)
	}
	return g.run(ctx, "Broadcast", func(x *exchange) error {
		if err := g.agree(x, t, root); err != nil {
			x.fail(err)
		}
		return x.broadcast(t, root)
	})
}

// agree enters a broadcast at the leader if there are members of TensorFlow, which learn the source
// from it.
func (g *Group) agree(x *exchange, t *tensor.Tensor, root int) error {
	mixed := false
	for _, m := range g.m.list {
		if task := m.device.Task; task != g.c.opts.Task {
			tryst, err := g.m.isTryst(x.ctx, task, g.c.opts.Tryst)
			if err != nil {
				return err
			}
			mixed = mixed || !tryst
		}
	}
	if !mixed {
		return nil
	}
	source, err := g.s.confirm(x.ctx, g.m, "Broadcast", x.exec, entry{
		key: instanceKey{group: g.m.key, instance: x.instance}, what: operation{broadcast, t.DType(), t.Shape()}, rank: g.rank, isSource: g.rank == root,
	})
	if err == nil && source != root {
		err = status.Errorf(status.InvalidArgument, "rank %d broadcasts, but rank %d of the group expects rank %d to do it", source, g.rank, root)
	}
	return err
}

// Barrier returns when all members have called it.
func (g *Group) Barrier(ctx context.Context) error {
	t, err := tensor.FromSlice(tensor.Vector(1), []int32{0}) // its one chunk visits all members
	if err != nil {
		return err
	}
	out, err := g.AllReduce(ctx, t, Max)
	if err == nil {
		out.Release()
	}
	return err
}

// run runs one operation.
func (g *Group) run(ctx context.Context, name string, f func(*exchange) error) error {
	if err := g.c.enter(); err != nil {
		return err
	}
	defer g.c.work.Done()
	g.mu.Lock()
	if err := g.err; err != nil {
		g.mu.Unlock()
		return err
	}
	g.next++
	instance := g.next
	g.mu.Unlock()
	ctx, stop := g.s.within(ctx, timeout{})
	defer stop()
	x := g.s.newExchange(ctx, g.m, g.rank, execKey(g.m.key, instance, 0, 0), g.end)
	x.instance = instance
	defer context.AfterFunc(g.ctx, func() { x.fail(causeOf(g.ctx)) })()
	err := f(x)
	if err != nil {
		return status.From(err).WithPrefix(name + " in group " + describeGroup(g.m, g.rank))
	}
	return nil
}

// end ends the group with err: all calls, here and at the others.
func (g *Group) end(err error) {
	err = abortedBy(err)
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.mu.Unlock()
	g.s.bufs.abortGroup(g.m.key, g.number, err)
	g.stop(err)
}

// Close leaves the group. An operation that is under way ends with Aborted, here and at members that
// still wait for this one. Close does not wait.
func (g *Group) Close() {
	g.end(status.Errorf(status.Aborted, "%s has left the group", g.m.list[g.rank].device.Task))
}
