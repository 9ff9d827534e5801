package library

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// state implements graph.State: it is one session.
type state struct {
	*shared
	own graph.State
	// session is its number among those that share.
	session uint64
	kept    kept
}

// shared is the common part of sessions that share their variables.
type shared struct {
	set *Set

	// waiting has a token for each function that runs and may wait for others.
	waiting chan struct{}

	mu      sync.Mutex // guards the fields below; taken before context.mu
	context *countedContext
	// generations are those of the containers of the present context.
	generations *generations
	// used are the containers that functions have named since the state was made.
	used   map[string]bool
	closed bool
	// sessions is the number of sessions so far, without the first.
	sessions uint64
}

func newState(s *Set, own graph.State, c *countedContext) *state {
	return &state{own: own, shared: &shared{set: s, context: c,
		generations: &generations{}, used: map[string]bool{}, waiting: make(chan struct{}, s.blocking)}}
}

// function is a subgraph as it is added to a context.
type function struct {
	name string
	def  []byte
	// identity is what the name is made of, for a function that lasts longer than its graph: the same
	// for all graphs that have its node, whatever functions they have.
	identity string
	lasts    lifetime
	library  *library // the functions that its nodes may call
	waits    bool
	// perStep says that a node makes or uses what lives only for a step.
	perStep bool
	// containers are those that its nodes, and those of the library, name.
	containers []string
	// generations are those that the nodes have, or nil when they have the names of the client.
	generations *generations
}

// Rewrite implements graph.State: it makes subgraphs.
func (s *state) Rewrite(g *graph.Graph) (*graph.Graph, error) {
	c, err := cut(s.set, g)
	if err != nil {
		return nil, err
	}
	for _, p := range c.subgraphs {
		for _, n := range p.nodes {
			if err := c.supported(n); err != nil {
				return nil, err
			}
			if err := c.bodiesSupported(n); err != nil {
				return nil, err
			}
		}
	}
	out, units, err := c.assemble(g)
	if err != nil {
		return nil, err
	}
	for _, u := range units {
		def := u.definition(c)
		s.separateBatches(def)
		identity, called := "", c.library
		if u.p.lasts != ofGraph {
			if identity, err = s.identity(u.p.lasts, def); err != nil {
				return nil, graph.NodeError(u.node.Name, err)
			}
			if !slices.ContainsFunc(def.GetNodeDef(), func(n *tfpb.NodeDef) bool { return len(called.calls(n)) > 0 }) {
				called = new(library)
			}
		}
		called.renameIn(def)
		f, err := newFunction(def, identity)
		if err != nil {
			return nil, graph.NodeError(u.node.Name, err)
		}
		f.containers = slices.Concat(s.set.containers(def), called.containers)
		f.waits, f.perStep, f.lasts, f.library = u.p.waits, u.p.perStep(), u.p.lasts, called
		u.node.Subgraph = f // not in s: a graph that is refused later leaves nothing behind
	}
	return out, nil
}

// newFunction names a function by its identity, or by its content if it has none.
func newFunction(def *tfpb.FunctionDef, identity string) (*function, error) {
	of := []byte(identity)
	if identity == "" {
		var err error
		if of, err = (proto.MarshalOptions{Deterministic: true}).Marshal(def); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(of)
	def.Signature.Name = "tryst_" + hex.EncodeToString(sum[:12])
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(def)
	return &function{name: def.GetSignature().GetName(), def: content, identity: identity}, err
}

// NewKernel implements graph.State.
func (s *state) NewKernel(n *graph.Node) (graph.Kernel, error) {
	f, ok := n.Subgraph.(*function)
	if !ok {
		return s.own.NewKernel(n)
	}
	s.mu.Lock()
	for _, name := range f.containers {
		s.used[name] = true // before the function can run: see Reset
	}
	s.mu.Unlock()
	if err := s.renew(); err != nil {
		return nil, graph.NodeError(n.Name, err)
	}
	k := &kernel{s: s, f: f}
	v, err := k.hold() // adds the function, so that a wrong one is refused now
	if err != nil {
		return nil, graph.NodeError(n.Name, err)
	}
	k.put(v)
	return k, nil
}

// renew gives the state a new context when the process of the present one has ended. Steps of graphs
// that are registered then go on without their variables, as those of a worker that was restarted.
func (s *state) renew() error {
	x, _ := s.hold()
	defer x.release()
	if x.e.ended() == nil {
		return nil
	}
	c, err := s.set.newContext()
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.context != x || s.closed {
		s.mu.Unlock()
		c.release()
		return nil
	}
	s.context = c
	s.mu.Unlock()
	x.release()
	return nil
}

// hold returns the present context, with a reference for the caller, and the generations of its
// containers.
func (s *state) hold() (*countedContext, *generations) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.context.retain(), s.generations
}

// Reset implements graph.State. When no function has named another container, a context without
// variables takes the place of the present one; steps that run end with the old one. Otherwise the
// containers get a new generation, and their old values keep their memory until the context ends.
func (s *state) Reset(containers []string) {
	s.own.Reset(containers)
	names := orDefault(containers)
	if len(names) == 0 {
		names = []string{defaultContainer}
	}
	s.mu.Lock()
	all := s.areAllLocked(names)
	s.mu.Unlock()
	var c *countedContext
	if all {
		var err error
		if c, err = s.set.newContext(); err != nil {
			c = nil // the kernel process has ended and cannot be started again; its variables are gone
		}
	}
	s.mu.Lock()
	if c != nil && !s.closed && s.areAllLocked(names) {
		c, s.context = s.context, c
		s.generations = &generations{}
	} else {
		// Ignore containers that no function has named: a stranger may send any number of names.
		names = slices.DeleteFunc(names, func(name string) bool { return !s.used[name] })
		s.generations = s.generations.next(names)
	}
	s.mu.Unlock()
	if c != nil {
		c.release()
	}
}

// areAllLocked reports whether the named containers are all that functions have named.
func (s *state) areAllLocked(names []string) bool {
	for used := range s.used {
		if !slices.Contains(names, used) {
			return false
		}
	}
	return true
}

// Close implements graph.State.
func (s *state) Close() {
	s.own.Close()
	s.dropKept()
	if s.session != 0 {
		return
	}
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if !closed {
		s.context.release()
	}
}

// countedContext is a TensorFlow context with a count of references. The state holds one, and so does each
// run and each value.
type countedContext struct {
	c engineContext
	e engine

	mu   sync.Mutex // guards the fields below
	refs int
	uses map[string]int // by the names of the functions that were added, the kernels that use them
	// pinned are the functions that stay as long as the context, with what is held while they run.
	pinned map[string]*sync.Mutex
	// steps are the runs of graphs that have made what lives only for a step, by their contexts.
	steps map[context.Context]bool
}

// newContext returns a context with one reference.
func newContext(e engine) (*countedContext, error) {
	c, err := e.newContext()
	if err != nil {
		return nil, err
	}
	return &countedContext{c: c, e: e, refs: 1, uses: map[string]int{}, pinned: map[string]*sync.Mutex{}, steps: map[context.Context]bool{}}, nil
}

// newContext returns a context of the running engine.
func (s *Set) newContext() (*countedContext, error) {
	e, err := s.live()
	if err != nil {
		return nil, err
	}
	return newContext(e)
}

func (c *countedContext) retain() *countedContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refs++
	return c
}

func (c *countedContext) release() {
	c.mu.Lock()
	c.refs--
	last := c.refs == 0
	c.mu.Unlock()
	if last {
		c.c.delete()
	}
}

// inStep keeps what lives only for a step until the run of the graph that ctx belongs to has ended.
// TensorFlow frees it when no such run is under way in the session.
func (c *countedContext) inStep(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps[ctx] {
		return
	}
	c.steps[ctx] = true
	c.refs++
	c.c.startStep()
	context.AfterFunc(ctx, func() {
		c.c.endStep()
		c.mu.Lock()
		delete(c.steps, ctx)
		c.mu.Unlock()
		c.release()
	})
}

// use adds a function, with those that it may call, unless they are there.
func (c *countedContext) use(f *function) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.useLocked(f)
}

// pin keeps a function, which is there, until the context ends.
func (c *countedContext) pin(f *function) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinned[f.name] == nil {
		c.pinned[f.name] = new(sync.Mutex)
		_ = c.useLocked(f) // it is there: only counts
	}
}

// turnOf returns what is held while a pinned function runs; nil for another one.
func (c *countedContext) turnOf(f *function) *sync.Mutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pinned[f.name]
}

func (c *countedContext) useLocked(f *function) error {
	for i, other := range f.library.all {
		if err := c.addLocked(other.name, other.def); err != nil {
			return errors.Join(err, c.dropLocked(f.library.all[:i]))
		}
	}
	if err := c.addLocked(f.name, f.def); err != nil {
		return errors.Join(err, c.dropLocked(f.library.all))
	}
	return nil
}

func (c *countedContext) addLocked(name string, def []byte) error {
	if c.uses[name] == 0 {
		if err := c.c.addFunction(name, def); err != nil {
			return err
		}
	}
	c.uses[name]++
	return nil
}

// unuse removes a function, and those that it may call, when no kernel uses them any more.
func (c *countedContext) unuse(f *function) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.removeLocked(f.name), c.dropLocked(f.library.all))
}

func (c *countedContext) dropLocked(called []callee) error {
	var errs []error
	for _, f := range called {
		errs = append(errs, c.removeLocked(f.name))
	}
	return errors.Join(errs...)
}

func (c *countedContext) removeLocked(name string) error {
	if c.uses[name]--; c.uses[name] > 0 {
		return nil
	}
	delete(c.uses, name)
	return c.c.removeFunction(name)
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
