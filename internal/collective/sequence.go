package collective

import (
	"context"
	"math/rand/v2"
	"sync"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// InvalidStep is TensorFlow's step id for "not known".
const InvalidStep int64 = -1

// stepIDMask has the bits that a step id may have.
const stepIDMask = 1<<56 - 1 | 1<<56

// sequences are the next step ids of graphs with collectives, by graph key. All masters must give
// a step the same id, since buffers are found by it. The zero value is ready for use.
type sequences struct {
	mu   sync.Mutex // guards what follows
	next map[int64]int64
	// held has the graphs. One is forgotten for a new one when there are too many; its masters refresh
	// its id.
	held held[int64]
	from map[int64]string // which caller of held a graph counts for
}

// get returns the next step id of a graph to a caller, and draws one when there is none.
func (s *sequences) get(caller string, graph int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.next[graph]; ok && id != InvalidStep {
		return id, nil
	}
	return s.drawLocked(caller, graph)
}

// draw gives a graph a new random step id.
func (s *sequences) draw(graph int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.drawLocked("", graph)
	return err
}

func (s *sequences) drawLocked(caller string, graph int64) (int64, error) {
	id := rand.Int64() & stepIDMask
	return id, s.setLocked(caller, graph, id)
}

func (s *sequences) set(graph, id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setLocked("", graph, id)
}

func (s *sequences) setLocked(caller string, graph, id int64) error {
	if _, ok := s.next[graph]; !ok {
		if len(s.next) >= maxGraphs {
			old, ok := s.held.oldest(caller, s.held.count, func([]int64) int { return 0 })
			if !ok {
				return status.Errorf(status.ResourceExhausted, "%d graphs have step ids here, which is the limit", maxGraphs)
			}
			s.held.remove(s.from[old], old)
			delete(s.next, old)
			delete(s.from, old)
		}
		if s.next == nil {
			s.next, s.from = make(map[int64]int64), make(map[int64]string)
		}
		s.held.add(caller, graph)
		s.from[graph] = caller
	}
	s.next[graph] = id
	return nil
}

// find returns the next step id of a graph; InvalidStep when it is not known.
func (s *sequences) find(graph int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.next[graph]; ok {
		return id
	}
	return InvalidStep
}

// retire advances a graph past a step. A step that was not the next one makes the sequence
// invalid: it has to be refreshed.
func (s *sequences) retire(graph, step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, ok := s.next[graph]
	switch {
	case !ok:
	case next == step:
		s.next[graph] = (step + 1) & stepIDMask
	default:
		s.next[graph] = InvalidStep
	}
}

// NextStepID returns the id that the next step of a graph must have; InvalidStep before the first
// RefreshStepID, and after a step that had another id.
func (c *Collectives) NextStepID(graph int64) int64 { return c.sequences.find(graph) }

// RetireStepID says that a step of a graph has run.
func (c *Collectives) RetireStepID(graph, step int64) { c.sequences.retire(graph, step) }

// RefreshStepID requests the next step id of a graph from the leader. A leader draws a new one.
func (c *Collectives) RefreshStepID(ctx context.Context, graph int64) error {
	if c.leads() {
		return c.sequences.draw(graph)
	}
	w, err := c.opts.Workers.Worker(c.opts.Leader)
	if err != nil {
		return err
	}
	resp, err := w.GetStepSequence(ctx, &tfpb.GetStepSequenceRequest{GraphKey: []int64{graph}})
	if err != nil {
		return err
	}
	for _, s := range resp.GetStepSequence() {
		if s.GetGraphKey() == graph {
			return c.sequences.set(graph, s.GetNextStepId())
		}
	}
	return status.Errorf(status.Internal, "the leader %v did not return the step id of graph key %d", c.opts.Leader, graph)
}

// GetStepSequence returns the next step id of each graph; equal ones until the leader draws a new
// one. Only the leader has them.
func (c *Collectives) GetStepSequence(ctx context.Context, req *tfpb.GetStepSequenceRequest) (*tfpb.GetStepSequenceResponse, error) {
	if !c.leads() {
		return nil, status.Errorf(status.Internal, "GetStepSequenceAsync called at non-group-leader: %v is not the leader %v", c.opts.Task, c.opts.Leader)
	}
	resp := new(tfpb.GetStepSequenceResponse)
	for _, graph := range req.GetGraphKey() {
		id, err := c.sequences.get(transport.CallerOf(ctx).Share, graph)
		if err != nil {
			return nil, err
		}
		resp.StepSequence = append(resp.StepSequence, &tfpb.StepSequence{GraphKey: graph, NextStepId: id})
	}
	return resp, nil
}

// leads reports whether this process is the leader.
func (c *Collectives) leads() bool { return c.opts.Leader == c.opts.Task }
