package delivery

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Tasks come and go (CacheOptions.Addressed, Left): a name gets an address, or loses it. A process whose task has left
// gets nothing any more.

// ClusterChanged is the event that the cluster is another one. It drops what is kept for processes whose tasks have
// left, whose senders learn that they have not received it, and refuses what they wait for. It returns the steps that
// they had something in, with the error that says so.
func (c *ResponseCache) ClusterChanged() (steps map[int64]error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	steps, acts := c.table.clusterChanged(time.Now())
	c.do(acts)
	return steps
}

func (t *responses) clusterChanged(now time.Time) (steps map[int64]error, acts []responseAction) {
	steps = make(map[int64]error)
	for name, k := range t.requesters {
		if k.incarnation == 0 {
			continue
		}
		if t.left(name) {
			t.stepsOf(k, steps)
			acts = append(acts, t.drop(k, taskLeft(name))...)
			continue
		}
		k.outside = (k.outside || k.addressed) && !t.addressed(name)
		t.address(now, k)
	}
	return steps, append(acts, t.admit(now)...)
}

// stepsOf adds the steps of what k waits for or has not acknowledged, and of lost values that k has not heard of. Published
// values are of none.
func (t *responses) stepsOf(k *requester, steps map[int64]error) {
	for _, e := range k.entries {
		if !t.published(e.request.Key) {
			steps[e.request.Step] = taskLeft(k.name)
		}
	}
	for _, v := range k.past.lost {
		steps[v.step] = taskLeft(k.name)
	}
}

// address notes whether the name of k has an address now.
func (t *responses) address(now time.Time, k *requester) {
	is := t.addressed(k.name)
	if is == k.addressed {
		return
	}
	n := 1
	if is {
		n = -1
	}
	t.take(k)
	k.addressed = is
	t.unaddressed += n
	k.origin.unaddressed += n
	t.enter(now, k)
}

// left reports whether the task of a name has left the cluster.
func (t *responses) left(name string) bool { return t.limits.left != nil && t.limits.left(name) }

// refuseLeft refuses a process whose task has left the cluster. k is its record, if it has one.
func (t *responses) refuseLeft(k *requester, name string) (*requester, []responseAction, error) {
	var acts []responseAction
	if k != nil {
		acts = t.drop(k, taskLeft(name))
	}
	return nil, acts, taskLeft(name)
}

// taskLeft is the error of what a process gets whose task has left the cluster, and of what was sent to it.
func taskLeft(name string) *status.Error {
	return status.Errorf(status.Aborted, "%s has left the cluster", name).WithKind(status.ErrTaskLeft)
}

// leave is the event that the peer has left the cluster: every transfer ends with err, and the peer learns nothing any
// more. The debt is what it has to learn if it comes back.
func (m *requests) leave(err error) (acts []requestAction, d debt) {
	m.over, m.seeks = true, false
	acts = m.fail(err)
	arrived := slices.Concat(m.acking, m.pending)
	return acts, debt{m.incarnation, arrived[max(0, len(arrived)-maxRemembered):], slices.Concat(m.cancelling, m.cancelled)}
}

// debt is what a process has to learn from this one: which responses have arrived, and which receives were cancelled. What
// it knows already it may learn again.
type debt struct {
	to                 uint64 // its incarnation
	arrived, cancelled []uint64
}

func (d debt) isNone() bool { return len(d.arrived)+len(d.cancelled) == 0 }

// owe gives a new record the debt from before. The peer learns it first, if it is still the same process.
func (m *requests) owe(now time.Time, d debt) {
	m.incarnation, m.pending, m.cancelled, m.flushBy = d.to, d.arrived, d.cancelled, now
}

// settle is the event that a peer with a debt is in the cluster again. It is looked for although no receive waits.
func (m *requests) settle(now time.Time) []requestAction {
	if m.conn != connNone {
		return nil // a receive has come before
	}
	return m.reach(now, nil)
}
