package tfkernels

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/graph"
	"github.com/tryst-rdma/tryst/graph/tfkernels/internal/capi"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// state implements graph.State.
type state struct {
	set *Set
	own graph.State

	// compute and waiting have a token for each function that may run now: those that only compute,
	// and those that may wait for others.
	compute, waiting chan struct{}

	mu      sync.Mutex // guards the fields below; taken before context.mu
	context *context_
	// planned are the functions that Rewrite has made, by the node that stands for each, until
	// NewKernel takes them.
	planned map[*graph.Node]*function
	closed  bool
}

func newState(s *Set, own graph.State, c *context_) *state {
	return &state{set: s, own: own, context: c, planned: map[*graph.Node]*function{},
		compute: make(chan struct{}, runtime.GOMAXPROCS(0)), waiting: make(chan struct{}, s.blocking)}
}

// function is a piece as it is added to a context.
type function struct {
	name    string
	def     []byte
	library []*tfpb.FunctionDef // the functions that its nodes may call
	waits   bool
}

// Rewrite implements graph.State: it makes pieces.
func (s *state) Rewrite(g *graph.Graph) (*graph.Graph, error) {
	c, err := cut(s.set, g)
	if err != nil {
		return nil, err
	}
	for _, p := range c.pieces {
		for _, n := range p.nodes {
			if err := c.supported(n); err != nil {
				return nil, err
			}
		}
	}
	out, units, err := c.assemble(g)
	if err != nil {
		return nil, err
	}
	functions := make([]*function, len(units))
	for i, u := range units {
		if functions[i], err = newFunction(u.definition(c.functions)); err != nil {
			return nil, graph.NodeError(u.node.Name, err)
		}
		functions[i].waits, functions[i].library = u.p.waits, functionsOf(g.Library)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, u := range units {
		s.planned[u.node] = functions[i]
	}
	return out, nil
}

// functionsOf returns the functions of a graph's library.
func functionsOf(l *graph.Library) []*tfpb.FunctionDef {
	if f, ok := any(l).(interface {
		Functions() []*tfpb.FunctionDef
	}); ok && l != nil {
		return f.Functions()
	}
	return nil
}

// newFunction names a function by its content.
func newFunction(def *tfpb.FunctionDef) (*function, error) {
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(def)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	def.Signature.Name = "tryst_" + hex.EncodeToString(sum[:12])
	content, err = proto.MarshalOptions{Deterministic: true}.Marshal(def)
	return &function{name: def.GetSignature().GetName(), def: content}, err
}

// NewKernel implements graph.State.
func (s *state) NewKernel(n *graph.Node) (graph.Kernel, error) {
	s.mu.Lock()
	f := s.planned[n]
	delete(s.planned, n)
	s.mu.Unlock()
	if f == nil {
		return s.own.NewKernel(n)
	}
	k := &kernel{s: s, f: f, call: capi.NewCall(f.name, callConfig)}
	c, err := k.hold() // adds the function, so that a wrong one is refused now
	if err != nil {
		return nil, graph.NodeError(n.Name, err)
	}
	c.release()
	return k, nil
}

// hold returns the present context, with a reference for the caller.
func (s *state) hold() *context_ {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.context.retain()
}

// Reset implements graph.State. TensorFlow's C API cannot empty one container, so a context without
// variables takes the place of the present one; steps that run end with the old one.
func (s *state) Reset(containers []string) {
	s.own.Reset(containers)
	c, err := s.set.newContext()
	if err != nil {
		return // a context needs no more than memory
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		c.release()
		return
	}
	old := s.context
	s.context = c
	s.mu.Unlock()
	old.release()
}

// Close implements graph.State.
func (s *state) Close() {
	s.own.Close()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if !closed {
		s.context.release()
	}
}

// context_ is a TensorFlow context that is counted: the state has a reference, and each run and value.
type context_ struct {
	set *Set
	c   *capi.Context

	mu   sync.Mutex // guards the fields below
	refs int
	uses map[string]int // by the names of the functions that were added, the kernels that use them
}

// newContext returns a context with one reference.
func (s *Set) newContext() (*context_, error) {
	c, err := s.l.NewContext(contextConfig)
	if err != nil {
		return nil, err
	}
	return &context_{set: s, c: c, refs: 1, uses: map[string]int{}}, nil
}

func (c *context_) retain() *context_ {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refs++
	return c
}

func (c *context_) release() {
	c.mu.Lock()
	c.refs--
	last := c.refs == 0
	c.mu.Unlock()
	if last {
		c.c.Delete()
	}
}

// use adds a function, with those that it may call, unless it is there.
func (c *context_) use(f *function) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses[f.name] == 0 {
		for _, other := range f.library {
			name := other.GetSignature().GetName()
			if c.uses[name] > 0 {
				continue
			}
			def, err := proto.Marshal(other)
			if err != nil {
				return err
			}
			if err := c.c.AddFunction(def); err != nil {
				return err
			}
			c.uses[name] = 1
		}
		if err := c.c.AddFunction(f.def); err != nil {
			return err
		}
	}
	c.uses[f.name]++
	return nil
}

// unuse removes a function that no kernel uses any more.
func (c *context_) unuse(f *function) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.uses[f.name]--; {
	case c.uses[f.name] > 0:
		return nil
	case c.uses[f.name] < 0: // of a context before a Reset
		delete(c.uses, f.name)
		return nil
	}
	delete(c.uses, f.name)
	return c.c.RemoveFunction(f.name)
}

// contextConfig and callConfig are ConfigProto messages. The graph has been optimised by the master;
// TensorFlow changes it no more, so that errors name its nodes.
var contextConfig, callConfig = configs()

func configs() (context, call []byte) {
	off := &tfpb.ConfigProto{GraphOptions: &tfpb.GraphOptions{
		OptimizerOptions: &tfpb.OptimizerOptions{OptLevel: tfpb.OptimizerOptions_L0},
		RewriteOptions:   &tfpb.RewriterConfig{DisableMetaOptimizer: true},
	}}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(off)
	if err != nil {
		return nil, nil
	}
	return b, b
}
