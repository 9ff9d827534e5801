package grpctransport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
)

// movable is the connections of one task, which may get another address while they are in use.
type movable struct{ to atomic.Pointer[connections] }

func newMovable(to connections) *movable {
	m := new(movable)
	m.to.Store(&to)
	return m
}

func (m *movable) now() connections { return *m.to.Load() }

// at returns the address of the task.
func (m *movable) at() string { return m.now().at() }

func (m *movable) state() PeerState { return m.now().state() }

// Invoke implements grpc.ClientConnInterface.
func (m *movable) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return m.now().Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (m *movable) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return m.now().NewStream(ctx, desc, method, opts...)
}

// SetSpec makes spec the cluster. The connections to tasks that are not in it any more are closed, and those to tasks
// with another address are made anew there when they are needed; calls in progress end with Cancelled. Connections that
// a task shares with one that stays go on. A task whose new address cannot be dialed is as one that has left; the error
// says so.
func (c *Conns) SetSpec(spec *cluster.Spec) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errConnsClosed()
	}
	c.spec = spec
	var errs []error
	for task, p := range c.peers {
		address, ok := c.addressLocked(task)
		if ok && address == p.channel.at() {
			continue
		}
		if ok {
			to, err := c.channelLocked(address)
			if err == nil {
				p.channel.to.Store(&to)
				continue
			}
			errs = append(errs, err)
		}
		delete(c.peers, task)
	}
	unused := c.unusedLocked()
	c.mu.Unlock()
	closed := make([]error, len(unused))
	var all sync.WaitGroup
	for i, ch := range unused { // without the lock, which disconnected takes; each may wait for its peer to read
		all.Go(func() { closed[i] = ch.close() })
	}
	all.Wait()
	return errors.Join(append(errs, closed...)...)
}

// unusedLocked takes out the connections that no task uses any more.
func (c *Conns) unusedLocked() (unused []connections) {
	used := make(map[string]bool, len(c.peers))
	for _, p := range c.peers {
		used[p.channel.at()] = true
	}
	for address, ch := range c.channels {
		if !used[address] {
			delete(c.channels, address)
			unused = append(unused, ch)
		}
	}
	return unused
}
