package worker

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// Peers reaches the tasks of the cluster that a master has propagated with a session.
type Peers interface {
	rendezvous.Remoter
	// Close ends all receives with Cancelled and waits for their callbacks. Until ctx ends it
	// waits for acknowledgements too.
	Close(ctx context.Context) error
}

// session is one worker session: what a master has registered here. Calls and partial runs use it;
// when it has ended and the last of them is over, it frees what it owns.
type session struct {
	handle string
	// place is the name and the devices that this process has in the session.
	place *rendezvous.Session
	peers Peers // nil: the tasks of the process's own cluster
	// leader is that of collective operations in the session's config; the zero Task without one.
	leader cluster.Task
	// newState makes the state of the session, whose variables are its own or shared.
	newState func() (graph.State, error)
	limits   Limits
	freed    func() // called once, when the session is free

	// ctx ends with the session, with the reason as its cause; it cancels the steps.
	ctx context.Context
	end context.CancelCauseFunc

	rested list.List // of int64: steps that have run, the oldest first; guarded by sessions.mu

	mu         sync.Mutex // guards what follows
	users      int        // calls and partial runs
	used       time.Time  // when the last of them ended; the start of the session before
	over       bool
	graphs     map[string]*registered
	lastGraph  uint64 // number of the newest graph
	graphBytes int64  // of graphs, and of those that are being registered
	bytes      int64  // what these take, and those that are dropped and run
	registers  int    // graphs that are being registered
	steps      int    // that run
	partial    map[int64]*partialRun

	stateMu sync.Mutex  // guards state
	state   graph.State // once it was opened
}

func newSession(handle string, place *rendezvous.Session, limits Limits) *session {
	s := &session{
		handle: handle, place: place, limits: limits, freed: func() {},
		graphs: make(map[string]*registered), partial: make(map[int64]*partialRun), used: time.Now(),
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

// open returns the state of the session, which is made when it is needed.
func (s *session) open() (graph.State, error) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.state == nil {
		state, err := s.newState()
		if err != nil {
			return nil, err
		}
		s.state = state
	}
	return s.state, nil
}

// use announces a call or a partial run; release must follow. It fails when the session has ended.
func (s *session) use() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return context.Cause(s.ctx)
	}
	s.users++
	return nil
}

func (s *session) release() {
	s.mu.Lock()
	s.users--
	s.used = time.Now()
	free := s.over && s.users == 0
	s.mu.Unlock()
	if free {
		s.free()
	}
}

// idleSince returns since when nothing has used the session; false while something does.
func (s *session) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.users == 0
}

// finish ends the session: its steps are cancelled with why. It is called once.
func (s *session) finish(why error) {
	s.mu.Lock()
	s.over = true
	free := s.users == 0
	s.mu.Unlock()
	s.end(why)
	if free {
		s.free()
	}
}

// free gives back what the session owns. Nothing uses it any more.
func (s *session) free() {
	if s.peers != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		_ = s.peers.Close(ctx) // the peers release what they keep at the end of the step
		cancel()
	}
	for _, g := range s.graphs {
		g.close()
	}
	if s.state != nil {
		s.state.Close()
	}
	s.freed()
}

// remoter is what the steps of the session receive through; nil for that of the process.
func (s *session) remoter() rendezvous.Remoter {
	if s.peers == nil {
		return nil
	}
	return s.peers
}

// incarnation returns the incarnation of a device of the session.
func (s *session) incarnation(name string) (uint64, bool) {
	d, err := cluster.ParseDevice(name)
	if err != nil {
		return 0, false
	}
	return s.place.Incarnation(d)
}

// beginStep counts a step that begins to run; endStep must follow.
func (s *session) beginStep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps >= s.limits.Steps {
		return status.Errorf(status.ResourceExhausted,
			"session %s: %d steps run already, the limit of max-running-steps", s.handle, s.steps)
	}
	s.steps++
	return nil
}

func (s *session) endStep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps--
}
