package worker

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// registered is a graph that a master has registered in a session. It does not change.
type registered struct {
	handle string
	size   int64 // of the GraphDef in bytes
	// collectiveKey is not 0 when the graph has collective operations.
	collectiveKey int64
	parts         []part

	// Guarded by the session.
	runs    int  // that are under way
	dropped bool // no run may begin any more
}

// part is the graph of one device.
type part struct {
	device   string
	graph    *graph.Graph // as the kernel set has rewritten it
	executor executor
	// partition has the nodes as they were registered, with those of communication.
	partition *tfpb.GraphDef
	// bytes is what the whole graph takes, in its first part; 0 in the others.
	bytes int64
	// held counts these bytes in the memory of the process; likewise.
	held *tensor.Buffer
}

// executor is a graph.Executor. An io.Closer is closed when no run is under way any more.
type executor interface {
	Run(ctx context.Context, step *graph.Step) error
}

// RegisterGraph makes a graph ready to run. An op, type or value of an attribute that the
// kernels of this process lack is refused here, with the name of the node.
func (w *Worker) RegisterGraph(ctx context.Context, req *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error) {
	if w.sessions == nil {
		return nil, refuse("RegisterGraph")
	}
	s, err := w.sessions.find(req.GetCreateWorkerSessionCalled(), req.GetSessionHandle())
	if err != nil {
		return nil, err
	}
	defer s.release()
	handle, err := w.register(ctx, s, req)
	if err != nil {
		return nil, err
	}
	return &tfpb.RegisterGraphResponse{GraphHandle: handle}, nil
}

func (w *Worker) register(ctx context.Context, s *session, req *tfpb.RegisterGraphRequest) (handle string, err error) {
	g := &registered{size: int64(proto.Size(req.GetGraphDef())), collectiveKey: req.GetCollectiveGraphKey()}
	if err := s.reserve(g.size); err != nil {
		return "", err
	}
	defer func() { handle = s.registered(g, err) }()
	for _, n := range req.GetGraphDef().GetNode() {
		if n.GetDevice() == "" {
			return "", invalid("Missing device name in: {{node %s}}", n.GetName())
		}
	}
	if err := w.checkLeader(s, req); err != nil {
		return "", err
	}
	select {
	case w.compiling <- struct{}{}:
		defer func() { <-w.compiling }()
	case <-ctx.Done():
		return "", status.From(ctx.Err()).WithPrefix("RegisterGraph waited for others")
	case <-s.ctx.Done():
		return "", context.Cause(s.ctx)
	}
	g.parts, err = w.compile(s, req.GetGraphDef())
	return "", err // registered returns the handle
}

// compileGraph returns the parts of a graph, ready to run.
func (w *Worker) compileGraph(s *session, def *tfpb.GraphDef) (parts []part, err error) {
	g, taken := new(registered), int64(0)
	var held *tensor.Buffer
	defer func() {
		// The graph comes from a stranger: what it breaks here must not end the steps of all sessions.
		if p := recover(); p != nil {
			err = graph.Recovered("RegisterGraph", p)
		}
		if err != nil {
			g.close() // the kernels of the devices before
		}
		if err != nil || len(parts) == 0 {
			s.giveBytes(taken)
			if held != nil {
				held.Release()
			}
			return
		}
		parts[0].bytes, parts[0].held = taken, held
	}()
	state, err := s.open()
	if err != nil {
		return nil, err
	}
	all, err := graph.Import(def, graph.ImportOptions{Set: w.opts.Kernels})
	if err != nil {
		return nil, err
	}
	if err := s.takeBytes(all.Bytes); err != nil {
		return nil, err
	}
	taken = all.Bytes
	if held, err = tensor.Reserve(w.opts.Allocator, taken); err != nil {
		return nil, status.From(err).WithPrefix("RegisterGraph: the nodes and constants of the graph take memory until it is deregistered")
	}
	split, err := graph.Split(all, s.incarnation)
	if err != nil {
		return nil, err
	}
	for _, device := range slices.Sorted(maps.Keys(split)) {
		p := part{device: device, partition: partition(split[device])}
		var own graph.State
		if own, err = stateOf(state, device); err != nil {
			return nil, err
		}
		if p.graph, err = own.Rewrite(split[device]); err != nil {
			return nil, err
		}
		if p.executor, err = graph.NewExecutor(p.graph, own); err != nil {
			return nil, err
		}
		g.parts = append(g.parts, p)
	}
	return g.parts, nil
}

// reserve counts a graph of size bytes that is being registered; registered must follow.
func (s *session) reserve(size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.graphs)+s.registers >= s.limits.Graphs:
		return status.Errorf(status.ResourceExhausted,
			"RegisterGraph: session %s has %d graphs already, the limit of max-graphs", s.handle, len(s.graphs)+s.registers)
	case s.graphBytes+size > s.limits.GraphBytes:
		return status.Errorf(status.ResourceExhausted,
			"RegisterGraph: the graphs of session %s have %d bytes; %d more would exceed the limit of max-graph-bytes, %d",
			s.handle, s.graphBytes, size, s.limits.GraphBytes)
	}
	s.registers++
	s.graphBytes += size
	return nil
}

// takeBytes counts what a graph takes when it is ready to run; giveBytes must follow.
func (s *session) takeBytes(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+n > s.limits.SessionBytes {
		return status.Errorf(status.ResourceExhausted,
			"RegisterGraph: the graphs of session %s take %d bytes with their constants; one that takes about %d more would exceed the limit of max-session-bytes, %d",
			s.handle, s.bytes, n, s.limits.SessionBytes)
	}
	s.bytes += n
	return nil
}

func (s *session) giveBytes(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= n
}

// registered ends a registration. It returns the handle unless err is set.
func (s *session) registered(g *registered, err error) (handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registers--
	if err != nil {
		s.graphBytes -= g.size
		return ""
	}
	s.lastGraph++
	g.handle = fmt.Sprintf("%016x", s.lastGraph)
	s.graphs[g.handle] = g
	return g.handle
}

// graph returns a registered graph for a run, which calls endRun.
func (s *session) graph(handle string) (*registered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.graphs[handle]; g != nil {
		g.runs++
		return g, nil
	}
	return nil, status.Errorf(status.Aborted, "Graph handle is not found: %s", handle)
}

// DeregisterGraph drops a graph. Steps of it that run go on.
func (w *Worker) DeregisterGraph(_ context.Context, req *tfpb.DeregisterGraphRequest) (*tfpb.DeregisterGraphResponse, error) {
	if w.sessions == nil {
		return nil, refuse("DeregisterGraph")
	}
	s, err := w.sessions.find(req.GetCreateWorkerSessionCalled(), req.GetSessionHandle())
	if err != nil {
		return nil, err
	}
	defer s.release()
	if !s.deregister(req.GetGraphHandle()) {
		return nil, status.Errorf(status.Aborted, "Graph handle is not found: %s. Possibly, this worker just restarted.", req.GetGraphHandle())
	}
	return &tfpb.DeregisterGraphResponse{}, nil
}

func (s *session) deregister(handle string) bool {
	s.mu.Lock()
	g := s.graphs[handle]
	if g == nil {
		s.mu.Unlock()
		return false
	}
	delete(s.graphs, handle)
	s.graphBytes -= g.size
	g.dropped = true
	unused := g.runs == 0
	s.mu.Unlock()
	if unused {
		s.drop(g)
	}
	return true
}

// endRun ends a run of a graph.
func (s *session) endRun(g *registered) {
	s.mu.Lock()
	g.runs--
	unused := g.dropped && g.runs == 0
	s.mu.Unlock()
	if unused {
		s.drop(g)
	}
}

// drop closes a graph that nobody runs any more, and gives back what it took.
func (s *session) drop(g *registered) {
	g.close()
	for _, p := range g.parts {
		s.giveBytes(p.bytes)
	}
}

// close closes the kernels of a graph that nobody runs any more, and gives its memory back.
func (g *registered) close() {
	for _, p := range g.parts {
		if c, ok := p.executor.(io.Closer); ok {
			_ = c.Close() // the graph is gone, whatever a kernel says
		}
		if p.held != nil {
			p.held.Release()
		}
	}
}
