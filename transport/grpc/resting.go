package grpctransport

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/status"
)

// Bounds bounds what the connections to peers take that this process does not know from its settings, such as
// the tasks of a cluster that a master propagates.
type Bounds struct {
	// Place, which is needed, is called before connections to an address are made, with their number. They end, and release
	// is called, when no call has used them for Rest, or with Close. An error ends the calls that need them.
	Place func(connections int) (release func(), err error)
	// Rest is how long connections may be without a call; DefaultRest when 0.
	Rest time.Duration
}

// connections are those to one address.
type connections interface {
	grpc.ClientConnInterface
	at() (address string)
	state() PeerState
	close() error
}

func (c *channel) at() string { return c.address }

// resting is the connections to one address with Bounds. It has them while calls need them:
//
//	none ──call, with a place──► channel ──no call for Rest──► closed, the place is given back
type resting struct {
	address string
	bounds  *Bounds
	number  int // of connections
	dial    func() (*channel, error)

	mu      sync.Mutex // guards what follows
	channel *channel   // nil: none
	release func()     // gives back its place
	calls   int
	idle    time.Time // since when calls is 0
	timer   *time.Timer
	closed  bool
}

func (r *resting) at() string { return r.address }

// ownError is an error of a call that was not sent, or whose response this process cannot take.
type ownError struct{ why *status.Error }

// Error implements error.
func (e ownError) Error() string { return e.why.Error() }

// Unwrap returns the status error.
func (e ownError) Unwrap() error { return e.why }

// GRPCStatus is for gRPC's status package.
func (e ownError) GRPCStatus() *grpcstatus.Status { return e.why.GRPCStatus() }

// enter begins a call. The channel is there until leave.
func (r *resting) enter() (*channel, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errConnsClosed()
	}
	if r.channel == nil {
		release, err := r.bounds.Place(r.number)
		if err != nil {
			return nil, ownError{status.From(err).WithPrefix(r.address)}
		}
		ch, err := r.dial()
		if err != nil {
			release()
			return nil, err
		}
		r.channel, r.release = ch, release
	}
	r.calls++
	return r.channel, nil
}

// leave ends a call.
func (r *resting) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls--; r.calls > 0 || r.channel == nil {
		return
	}
	r.idle = time.Now()
	if r.timer == nil {
		r.timer = time.AfterFunc(r.bounds.Rest, r.rest)
	} else {
		r.timer.Reset(r.bounds.Rest)
	}
}

// rest runs when the timer fires. It closes the channel unless calls have come meanwhile.
func (r *resting) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == 0 && time.Since(r.idle) >= r.bounds.Rest {
		_ = r.endLocked() // no caller waits for the result
	}
}

// endLocked closes the channel. Nothing of that takes r.mu.
func (r *resting) endLocked() error {
	if r.channel == nil {
		return nil
	}
	err := r.channel.close()
	r.channel = nil
	r.release()
	return err
}

// Invoke implements grpc.ClientConnInterface.
func (r *resting) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ch, err := r.enter()
	if err != nil {
		return err
	}
	defer r.leave()
	return ch.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (r *resting) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ch, err := r.enter()
	if err != nil {
		return nil, err
	}
	leave := sync.OnceFunc(r.leave)
	stream, err := ch.NewStream(ctx, desc, method, append(opts, grpc.OnFinish(func(error) { leave() }))...)
	if err != nil {
		leave()
	}
	return stream, err
}

func (r *resting) state() PeerState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.channel == nil {
		return PeerState{Address: r.address}
	}
	return r.channel.state()
}

func (r *resting) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	return r.endLocked()
}
