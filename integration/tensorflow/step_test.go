//go:build interop

package tensorflow_test

import (
	"context"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// step is one run of a graph at TensorFlow, and the step with the same id here.
type step struct {
	rendezvous.Rendezvous
	bed  *testbed
	id   int64
	done chan error // what RunGraph returned
}

// register registers a graph at TensorFlow's worker.
func (bed *testbed) register(g *workerGraph) *master.Program {
	bed.t.Helper()
	p, err := bed.session.Register(bed.soon(), g.Graph)
	if err != nil {
		bed.t.Fatalf("RegisterGraph: %v", err)
	}
	return p
}

// run runs a graph in a step of its own.
func (bed *testbed) run(g *workerGraph) *step {
	bed.t.Helper()
	s := bed.newStep()
	s.runGraph(bed.soon(), bed.register(g))
	return s
}

// begin runs a graph. It does not create the step here: the caller or a request of TensorFlow does.
func (bed *testbed) begin(ctx context.Context, p *master.Program) *step {
	s := &step{bed: bed, id: master.NewStep(), done: make(chan error, 1)}
	s.runGraph(ctx, p)
	return s
}

// runUntilRequest runs a graph and returns when TensorFlow's first request of the step waits here.
func (bed *testbed) runUntilRequest(ctx context.Context, g *workerGraph) *step {
	bed.t.Helper()
	steps := bed.steps()
	s := bed.begin(ctx, bed.register(g))
	bed.until("TensorFlow's request", func() bool { return bed.steps() > steps })
	s.Rendezvous = bed.server.Rendezvous(s.id)
	return s
}

// newStep returns a step that does not exist at TensorFlow yet.
func (bed *testbed) newStep() *step {
	s := &step{bed: bed, id: master.NewStep(), done: make(chan error, 1)}
	s.Rendezvous = bed.server.Rendezvous(s.id)
	return s
}

// runGraph calls RunGraph, which returns when the graph has run, on a goroutine.
func (s *step) runGraph(ctx context.Context, p *master.Program) {
	go func() {
		_, err := p.Run(ctx, s.id, nil)
		s.done <- err
	}()
}

// wait returns how the run at TensorFlow ended.
func (s *step) wait() error {
	s.bed.t.Helper()
	return await(s.bed.t, s.done, "RunGraph")
}

// end waits for the end of the run, which must succeed, and cleans up.
func (s *step) end() {
	s.bed.t.Helper()
	if err := s.wait(); err != nil {
		s.bed.t.Fatalf("RunGraph: %v", err)
	}
	s.cleanUp()
}

// cleanUp ends the step on both sides.
func (s *step) cleanUp() {
	s.bed.t.Helper()
	if err := s.bed.session.CleanUp(s.bed.soon(), s.id); err != nil {
		s.bed.t.Errorf("CleanupGraph: %v", err)
	}
	s.bed.server.EndStep(s.id)
}

// toTryst and toTF return the key of an edge in each direction, as the nodes of a graph build it.
func (bed *testbed) toTryst(edge string) rendezvous.Key {
	bed.t.Helper()
	return bed.key(tfDevice, bed.tfIncarnation, trystDevice, edge)
}

func (bed *testbed) toTF(edge string) rendezvous.Key {
	bed.t.Helper()
	return bed.key(trystDevice, bed.server.Incarnation(), tfDevice, edge)
}

func (bed *testbed) key(src string, incarnation uint64, dst, edge string) rendezvous.Key {
	bed.t.Helper()
	k, err := rendezvous.ParseKey(rendezvous.CreateKey(src, incarnation, dst, edge, rendezvous.FrameIter{}))
	if err != nil {
		bed.t.Fatal(err)
	}
	return k
}

// send sends x to TensorFlow. The caller keeps its reference.
func (bed *testbed) send(s *step, edge string, x *tensor.Tensor) {
	bed.t.Helper()
	if err := s.Send(bed.toTF(edge), rendezvous.Args{}, x, false); err != nil {
		bed.t.Fatal(err)
	}
}

// outcome is the result of a receive.
type outcome struct {
	v   rendezvous.Value
	err error
}

// receive requests a value from TensorFlow.
func (bed *testbed) receive(s *step, edge string) <-chan outcome {
	bed.t.Helper()
	return bed.receiveWith(bed.soon(), s, edge)
}

func (bed *testbed) receiveWith(ctx context.Context, s *step, edge string) <-chan outcome {
	bed.t.Helper()
	c := make(chan outcome, 1)
	s.RecvAsync(ctx, bed.toTryst(edge), rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) { c <- outcome{v, err} })
	return c
}

// wantValue receives a live value that equals x.
func (bed *testbed) wantValue(s *step, edge string, x *tensor.Tensor) {
	bed.t.Helper()
	o := await(bed.t, bed.receive(s, edge), edge)
	if o.err != nil {
		bed.t.Fatal(o.err)
	}
	defer o.v.Tensor.Release()
	tensortest.RequireEqual(bed.t, x, o.v.Tensor)
	if o.v.Dead {
		bed.t.Errorf("%s is dead, want a live value", edge)
	}
}

// wantDead receives a dead value.
func (bed *testbed) wantDead(s *step, edge string) {
	bed.t.Helper()
	o := await(bed.t, bed.receive(s, edge), edge)
	if o.err != nil {
		bed.t.Fatal(o.err)
	}
	defer o.v.Tensor.Release()
	if !o.v.Dead || o.v.Tensor.Size() != 0 {
		bed.t.Errorf("%s is %v with dead %v, want an empty dead value", edge, o.v.Tensor, o.v.Dead)
	}
}
