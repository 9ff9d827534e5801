package library

import (
	"container/list"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// The kernel of a random node has a generator, which TensorFlow keeps by session and node: all graphs of
// a session take from one sequence. Here a kernel belongs to a function of a context. So a random node
// has a function of its own that is the same in all graphs of the session (its inputs are arguments),
// whose name is that of no other session, and which the session keeps when its graphs are gone. So has a
// node with an object of its own (private.go).

// isRandom reports whether each node of an op has a generator. A queue of random order has one too,
// which lives with the queue.
func isRandom(op *tfpb.OpDef) bool {
	seeds := 0
	for _, a := range op.GetAttr() {
		switch a.GetName() {
		case "seed", "seed2":
			seeds++
		case "shared_name":
			return false
		}
	}
	return seeds == 2 && op.GetIsStateful()
}

// saltFor returns a text that no other library has when a node of the functions has a generator or an
// object of its own.
func (s *Set) saltFor(functions []*tfpb.FunctionDef) string {
	for _, f := range functions {
		for _, n := range f.GetNodeDef() {
			if op := s.ops[n.GetOp()]; isRandom(op) || isPrivate(op, n) {
				return "graph " + strconv.FormatUint(s.salts.Add(1), 10)
			}
		}
	}
	return ""
}

// NewSession implements graph.State.
func (s *state) NewSession() graph.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	return &state{shared: s.shared, own: s.own.NewSession(), session: s.sessions}
}

// identity returns what is equal for the functions of a node in all graphs of the session, and in those of
// no other session unless all have the node's kernel in common.
func (s *state) identity(l lifetime, def *tfpb.FunctionDef) (string, error) {
	of := "session " + strconv.FormatUint(s.session, 10)
	if l == ofState {
		of = "all sessions"
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(def)
	return of + "\n" + string(content), err
}

// kept are the functions of lasting nodes that a session has used last.
type kept struct {
	mu    sync.Mutex // guards the fields below; taken after kernel.mu, before state.mu and context.mu
	of    map[string]*list.Element
	order list.List // of added, the longest unused first
}

// added is a function that was added to a context, without a reference to the context.
type added struct {
	x *countedContext
	f *function
	// turn is held while the function runs. TensorFlow makes the kernel in the first run: two at once
	// would make two, each with a generator of its own.
	turn *sync.Mutex
}

// takeTurn waits until no other run of a lasting node's function is under way, and begins one.
func (s *state) takeTurn(x *countedContext, f *function) (release func()) {
	turn := new(sync.Mutex) // for a function that is not kept any more
	switch f.lasts {
	case ofGraph:
		return func() {}
	case ofSession:
		s.kept.mu.Lock()
		if e := s.kept.of[f.name]; e != nil {
			if a, ok := e.Value.(added); ok {
				turn = a.turn
			}
		}
		s.kept.mu.Unlock()
	case ofState:
		turn = x.turnOf(f)
	}
	turn.Lock()
	return turn.Unlock
}

// keep keeps the function of a lasting node, which x has.
func (s *state) keep(x *countedContext, f *function) {
	switch f.lasts {
	case ofGraph:
		return
	case ofState:
		x.pin(f)
		return
	case ofSession:
	}
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.of[f.name]; e != nil {
		k.order.MoveToBack(e)
		if old, _ := e.Value.(added); old.x == x {
			return
		}
		e.Value = added{x, f, new(sync.Mutex)} // the other context went with its functions
	} else {
		if k.of == nil {
			k.of = map[string]*list.Element{}
		}
		k.of[f.name] = k.order.PushBack(added{x, f, new(sync.Mutex)})
	}
	_ = x.use(f) // it is there: only counts
	if k.order.Len() > maxKept {
		oldest, _ := k.order.Remove(k.order.Front()).(added)
		delete(k.of, oldest.f.name)
		s.forget(oldest)
	}
}

// dropKept forgets all functions that the session has kept.
func (s *state) dropKept() {
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	for e := k.order.Front(); e != nil; e = e.Next() {
		if a, ok := e.Value.(added); ok {
			s.forget(a)
		}
	}
	k.order.Init()
	k.of = nil
}

// forget removes a function unless a kernel uses it.
func (s *state) forget(a added) {
	x, _ := s.hold()
	defer x.release()
	if x == a.x { // otherwise it went with its context
		_ = x.unuse(a.f) // what is left goes with the context
	}
}
