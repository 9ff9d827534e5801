//go:build interop

package tensorflow_test

import (
	"context"
	"math/rand/v2"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// step is one run of a graph at TensorFlow, and the step of that id here.
type step struct {
	rendezvous.Rendezvous
	w    *world
	id   int64
	done chan error // what RunGraph returned
}

// register hands a graph to TensorFlow's worker.
func (w *world) register(g *graph) (handle string) {
	w.t.Helper()
	r, err := w.tf.RegisterGraph(w.soon(), &tfpb.RegisterGraphRequest{
		SessionHandle: w.session, CreateWorkerSessionCalled: true, GraphDef: g.def,
	})
	if err != nil {
		w.t.Fatalf("RegisterGraph: %v", err)
	}
	return r.GetGraphHandle()
}

// run runs a graph in a step of its own.
func (w *world) run(g *graph) *step {
	w.t.Helper()
	s := w.newStep()
	s.runGraph(w.soon(), w.register(g))
	return s
}

// begin runs a graph, and leaves it to the caller, or to TensorFlow's requests,
// to make the step here.
func (w *world) begin(ctx context.Context, handle string) *step {
	s := &step{w: w, id: stepID(), done: make(chan error, 1)}
	s.runGraph(ctx, handle)
	return s
}

// runUntilAsked runs a graph and returns when TensorFlow's first request of the
// step waits here.
func (w *world) runUntilAsked(ctx context.Context, g *graph) *step {
	w.t.Helper()
	steps := w.steps()
	s := w.begin(ctx, w.register(g))
	w.until("TensorFlow's request", func() bool { return w.steps() > steps })
	s.Rendezvous = w.server.Rendezvous(s.id)
	return s
}

// newStep returns a step that TensorFlow has not heard of.
func (w *world) newStep() *step {
	s := &step{w: w, id: stepID(), done: make(chan error, 1)}
	s.Rendezvous = w.server.Rendezvous(s.id)
	return s
}

// stepID makes an id as TensorFlow's master does.
func stepID() int64 { return rand.Int64()&(1<<56-1) | 1<<56 }

// runGraph makes the master's call, which returns when the graph has run.
func (s *step) runGraph(ctx context.Context, handle string) {
	go func() {
		_, err := s.w.tf.RunGraph(ctx, &tfpb.RunGraphRequest{
			SessionHandle: s.w.session, CreateWorkerSessionCalled: true,
			GraphHandle: handle, StepId: s.id, RequestId: rand.Int64() | 1,
			ExecOpts: &tfpb.ExecutorOpts{},
		})
		s.done <- err
	}()
}

// wait returns how the run at TensorFlow ended.
func (s *step) wait() error {
	s.w.t.Helper()
	return await(s.w.t, s.done, "RunGraph")
}

// end waits for a run that should succeed, and cleans up.
func (s *step) end() {
	s.w.t.Helper()
	if err := s.wait(); err != nil {
		s.w.t.Fatalf("RunGraph: %v", err)
	}
	s.cleanUp()
}

// cleanUp ends the step on both sides.
func (s *step) cleanUp() {
	s.w.t.Helper()
	if _, err := s.w.tf.CleanupGraph(s.w.soon(), &tfpb.CleanupGraphRequest{StepId: s.id}); err != nil {
		s.w.t.Errorf("CleanupGraph: %v", err)
	}
	s.w.server.EndStep(s.id)
}

// toTryst and toTF return the keys of edges as the nodes of a graph make them.
func (w *world) toTryst(edge string) rendezvous.Key {
	w.t.Helper()
	return w.key(tfDevice, w.tfIncarnation, trystDevice, edge)
}

func (w *world) toTF(edge string) rendezvous.Key {
	w.t.Helper()
	return w.key(trystDevice, w.server.Incarnation(), tfDevice, edge)
}

func (w *world) key(src string, incarnation uint64, dst, edge string) rendezvous.Key {
	w.t.Helper()
	k, err := rendezvous.ParseKey(rendezvous.CreateKey(src, incarnation, dst, edge, rendezvous.FrameIter{}))
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// send sends x to TensorFlow; the caller keeps its reference.
func (w *world) send(s *step, edge string, x *tensor.Tensor) {
	w.t.Helper()
	if err := s.Send(w.toTF(edge), rendezvous.Args{}, x, false); err != nil {
		w.t.Fatal(err)
	}
}

// outcome is what a receive ended with.
type outcome struct {
	v   rendezvous.Value
	err error
}

// receive asks TensorFlow for a value.
func (w *world) receive(s *step, edge string) <-chan outcome {
	w.t.Helper()
	return w.receiveWith(w.soon(), s, edge)
}

func (w *world) receiveWith(ctx context.Context, s *step, edge string) <-chan outcome {
	w.t.Helper()
	c := make(chan outcome, 1)
	s.RecvAsync(ctx, w.toTryst(edge), rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) { c <- outcome{v, err} })
	return c
}

// wantValue receives a live value that equals x.
func (w *world) wantValue(s *step, edge string, x *tensor.Tensor) {
	w.t.Helper()
	o := await(w.t, w.receive(s, edge), edge)
	if o.err != nil {
		w.t.Fatal(o.err)
	}
	defer o.v.Tensor.Release()
	tensortest.RequireEqual(w.t, x, o.v.Tensor)
	if o.v.Dead {
		w.t.Errorf("%s is dead", edge)
	}
}

// wantDead receives a dead value.
func (w *world) wantDead(s *step, edge string) {
	w.t.Helper()
	o := await(w.t, w.receive(s, edge), edge)
	if o.err != nil {
		w.t.Fatal(o.err)
	}
	defer o.v.Tensor.Release()
	if !o.v.Dead || o.v.Tensor.Size() != 0 {
		w.t.Errorf("%s is %v, dead: %v", edge, o.v.Tensor, o.v.Dead)
	}
}
