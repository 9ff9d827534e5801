package worker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// partial is a request of a partial run that feeds and fetches values.
func partial(t testing.TB, session, handle string, step int64, last bool, feed map[string]float32, fetch ...string) *tfpb.RunGraphRequest {
	req := running(session, handle, step)
	req.IsPartial, req.IsLastPartialRun = true, last
	for name, x := range feed {
		req.Send = append(req.Send, scalar(t, inside(name), x))
	}
	for _, name := range fetch {
		req.RecvKey = append(req.RecvKey, inside(name))
	}
	return req
}

// both runs programs one after another.
func both(programs ...program) program {
	return func(ctx context.Context, step *graph.Step) error {
		for _, p := range programs {
			if err := p(ctx, step); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestPartialRun: the first request starts the executors, each one gets its own outputs, and the
// last one waits for the executors (P1, P2, P4). Another step is another run (P3).
func TestPartialRun(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, both(double(t, "a", "2a"), double(t, "b", "2b")))
	for step := range int64(2) {
		r, err := g.RunGraph(t.Context(), partial(t, s, handle, step+1, false, map[string]float32{"a": 1}, "2a"))
		if err != nil || fetched(t, r, inside("2a")) != 2 {
			t.Fatal(r, err)
		}
	}
	if got := g.Stats(); got.RunningSteps != 2 {
		t.Errorf("%d steps run, want 2", got.RunningSteps)
	}
	for step := range int64(2) {
		r, err := g.RunGraph(t.Context(), partial(t, s, handle, step+1, true, map[string]float32{"b": 5}, "2b"))
		if err != nil || fetched(t, r, inside("2b")) != 10 {
			t.Fatal(r, err)
		}
	}
	if got := g.Stats(); got.RunningSteps != 0 || got.Steps != 2 {
		t.Errorf("stats %+v", got)
	}
	// P4: the next request of the step makes a new run.
	r, err := g.RunGraph(t.Context(), partial(t, s, handle, 1, true, map[string]float32{"a": 3, "b": 4}, "2a", "2b"))
	if err != nil || fetched(t, r, inside("2a")) != 6 || fetched(t, r, inside("2b")) != 8 {
		t.Error(r, err)
	}
}

// TestP5StatusOfAPartialRun: the error of the executors comes before that of the last request, whichever
// ends first.
func TestP5StatusOfAPartialRun(t *testing.T) {
	kernel := status.New(status.Internal, "kernel failed")
	for _, first := range []string{"executor", "request"} {
		t.Run(first+" first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGraphs(t, Options{})
				s := g.open(&tfpb.CreateWorkerSessionRequest{})
				var executor error
				ended := make(chan bool, 1)
				handle := g.register(s, func(ctx context.Context, step *graph.Step) error {
					if err := step.Rendezvous.Send(mustKey(t, inside("dead")), rendezvous.Args{}, nil, true); err != nil {
						return err
					}
					if first == "request" { // the last request waits for the executors, or has an error and ends them
						select {
						case <-ctx.Done():
						case <-time.After(time.Second):
						}
					}
					ended <- true
					return executor
				})
				for step, c := range []struct {
					executor error
					fetch    []string // a dead value is an error of the request
					code     status.Code
					text     string
				}{
					{nil, nil, status.OK, ""},
					{kernel, nil, status.Internal, "kernel failed"},
					{nil, []string{"dead"}, status.InvalidArgument, "was not valid"},
					{kernel, []string{"dead"}, status.Internal, "kernel failed"},
				} {
					executor = c.executor
					id := int64(step + 1)
					if _, err := g.RunGraph(t.Context(), partial(t, s, handle, id, false, nil)); err != nil {
						t.Fatal(err)
					}
					if first == "executor" {
						<-ended
						synctest.Wait()
					} else if len(ended) > 0 {
						t.Fatal("the executor has ended")
					}
					_, err := g.RunGraph(t.Context(), partial(t, s, handle, id, true, nil, c.fetch...))
					wantCode(t, err, c.code, c.text)
					if first == "request" {
						<-ended
					}
				}
			})
		})
	}
}

// TestCancelledPartialRun: the cancel of one request ends the whole step, at once in the kernels and
// a second later for peers.
func TestCancelledPartialRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphs(t, Options{})
		s := g.open(&tfpb.CreateWorkerSessionRequest{})
		var ended time.Time
		handle := g.register(s, func(ctx context.Context, _ *graph.Step) error {
			<-ctx.Done()
			ended = time.Now()
			return status.From(ctx.Err())
		})
		if _, err := g.RunGraph(t.Context(), partial(t, s, handle, 1, false, nil)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(time.Second, cancel)
		_, err := g.RunGraph(ctx, partial(t, s, handle, 1, true, nil, "never"))
		wantCode(t, err, status.Cancelled, "")
		if d := ended.Sub(began); d != time.Second {
			t.Errorf("the kernels were cancelled after %v, want 1s", d)
		}
		synctest.Wait()
		if err := g.manager.Err(1); err != nil {
			t.Errorf("the step ended with %v at once", err)
		}
		time.Sleep(time.Second + 1)
		wantCode(t, g.manager.Err(1), status.Aborted, "Step 1 cancelled.")
		g.Close()
		g.manager.Close()
	})
}

// TestEndOfASessionEndsAPartialRun: the request of a partial run that waits for an output ends with its
// session, or with the worker, and reports why.
func TestEndOfASessionEndsAPartialRun(t *testing.T) {
	for _, c := range []struct {
		name, text string
		end        func(*graphs, string)
	}{
		{"delete", "session " + testSession + " was deleted", (*graphs).delete},
		{"close", "Call was aborted", func(g *graphs, _ string) { g.Close() }},
	} {
		for _, last := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s last=%v", c.name, last), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGraphs(t, Options{})
					s := g.open(&tfpb.CreateWorkerSessionRequest{})
					handle := g.register(s, func(ctx context.Context, _ *graph.Step) error {
						<-ctx.Done()
						return status.From(ctx.Err())
					})
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					began := time.Now()
					time.AfterFunc(time.Second, func() { c.end(g, s) })
					_, err := g.RunGraph(ctx, partial(t, s, handle, 1, last, nil, "never"))
					wantCode(t, err, status.Aborted, c.text)
					if d := time.Since(began); d != time.Second {
						t.Errorf("the request ended after %v, want 1s", d)
					}
					g.Close()
					if n := g.manager.Steps(); n != 0 {
						t.Errorf("%d steps are left", n)
					}
					g.manager.Close()
				})
			})
		}
	}
}

// TestCleanupEndsAPartialRun: the cleanup of a step ends its partial run, so that one which a master
// has given up is not kept.
func TestCleanupEndsAPartialRun(t *testing.T) {
	g := newGraphs(t, Options{Limits: Limits{Steps: 1}})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, double(t, "never", "y"))
	if _, err := g.RunGraph(t.Context(), partial(t, s, handle, 1, false, nil)); err != nil {
		t.Fatal(err)
	}
	_, err := g.RunGraph(t.Context(), partial(t, s, handle, 2, false, nil))
	wantCode(t, err, status.ResourceExhausted, "max-running-steps")
	if _, err := g.CleanupGraph(t.Context(), &tfpb.CleanupGraphRequest{StepId: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.RunGraph(t.Context(), partial(t, s, handle, 3, false, nil)); err != nil {
		t.Error(err)
	}
	g.delete(s)
}

// TestCancelOfRunGraph: the cancel of a RunGraph ends its kernels at once, and its step a second
// later, so that the error that made the master cancel can reach the other workers.
func TestCancelOfRunGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphs(t, Options{})
		s := g.open(&tfpb.CreateWorkerSessionRequest{})
		handle := g.register(s, double(t, "never", "y"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err := g.RunGraph(ctx, running(s, handle, 1))
		if wantCode(t, err, status.Cancelled, ""); time.Since(began) != time.Second {
			t.Errorf("it ended after %v", time.Since(began))
		}
		peer := make(chan error)
		go func() {
			_, err := g.RecvTensor(t.Context(), request(1, "x"))
			peer <- err
		}()
		wantCode(t, <-peer, status.Aborted, "Step 1 cancelled.")
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("the step ended after %v, want 2s", d)
		}
		// A master that is gone does not clean up.
		time.Sleep(abandonedAfter - time.Second)
		synctest.Wait()
		if n := g.manager.Steps(); n != 0 {
			t.Errorf("%d steps are left", n)
		}
		g.Close()
		g.manager.Close()
	})
}
