package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// provenAs is the context of a call whose caller has proven the name of a task.
func provenAs(ctx context.Context, task cluster.Task) context.Context {
	return transport.WithCaller(ctx, transport.Caller{Covers: func(p cluster.Place) error {
		if p.Task != task {
			return status.Errorf(status.PermissionDenied, "it is for %v", p.Task)
		}
		return nil
	}})
}

// TestARequestThatIsGivenUpBeforeItIsAllowed: a plain request for a step that has not begun waits, if some
// session gives its destination the caller's name. When its caller cancels it, the step goes on: it may be
// that of another session. One of the process that the step sends to aborts the step, as without names.
func TestARequestThatIsGivenUpBeforeItIsAllowed(t *testing.T) {
	for _, cached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mallory := cluster.Task{Job: "worker", Index: 66}
			g := newGraphs(t, Options{
				CacheRPCResponse: cached,
				NewPeers:         func(cluster.Task, *cluster.Spec) (Peers, error) { return new(fakePeers), nil },
				Places: func(*cluster.Spec) map[cluster.Task]cluster.Place {
					return map[cluster.Task]cluster.Place{there: {Task: mallory}}
				},
			})
			def := clusterDef()
			def.JobName, def.TaskIndex = here.Job, int32(here.Index)
			def.Cluster.Job = append(def.Cluster.Job, &tfpb.JobDef{Name: here.Job, Tasks: map[int32]string{int32(here.Index): "h:1"}})
			g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: def})

			ask := func(step int64, as cluster.Task) (cancel func(), ended <-chan error) {
				ctx, stop := context.WithCancel(provenAs(t.Context(), as))
				c := make(chan error, 1)
				go func() {
					r, err := g.RecvTensor(ctx, &tfpb.RecvTensorRequest{StepId: step, RendezvousKey: key("x"), RequestId: step})
					if err == nil {
						r.Tensor.Release()
					}
					c <- err
				}()
				synctest.Wait()
				return stop, c
			}
			// No session gives this one the name: it never waits.
			cancel, ended := ask(1, cluster.Task{Job: "worker", Index: 67})
			wantCode(t, <-ended, status.PermissionDenied, "it is for")
			cancel()

			cancel, ended = ask(2, mallory)
			select {
			case err := <-ended:
				t.Fatalf("it does not wait: %v", err)
			default:
			}
			cancel()
			wantCode(t, <-ended, status.Cancelled, "")
			g.send(2, "x", 5)
			time.Sleep(3 * time.Second)
			if err := g.manager.Err(2); err != nil {
				t.Errorf("the step of another session: %v", err)
			}

			cancel, ended = ask(3, mallory) // and is refused when the step turns out not to be its own
			g.send(3, "x", 5)
			wantCode(t, <-ended, status.PermissionDenied, "it is for "+there.String())
			cancel()

			cancel, ended = ask(4, there)
			g.send(4, "y", 5) // begins the step
			synctest.Wait()
			cancel()
			wantCode(t, <-ended, status.Cancelled, "")
			time.Sleep(3 * time.Second)
			if g.manager.Err(4) == nil {
				t.Error("the cancel of the step's own receiver does not abort the step")
			}
			for step := range int64(4) {
				g.EndStep(step + 1)
			}
		})
	}
}

// TestAGuardDecidesWhenTheStepBegins: a receive with a Guard waits until its step begins, and then goes on
// or ends with the Guard's error, without a value.
func TestAGuardDecidesWhenTheStepBegins(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	k, err := rendezvous.ParseKey(key("x"))
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		v   rendezvous.Value
		err error
	}
	ask := func(step int64, g rendezvous.Guard) <-chan result {
		c := make(chan result, 1)
		f.manager.RecvLocalAsync(rendezvous.WithGuard(t.Context(), g), step, k, func(v rendezvous.Value, _ rendezvous.Args, err error) { c <- result{v, err} })
		return c
	}
	no := func(s *rendezvous.Session) error {
		return status.Errorf(status.PermissionDenied, "not in the session of %v", s.Task)
	}
	refused, allowed := ask(1, no), ask(1, func(*rendezvous.Session) error { return nil })
	f.send(1, "x", 5)
	wantCode(t, (<-refused).err, status.PermissionDenied, "not in the session of "+here.String())
	if r := <-allowed; r.err != nil {
		t.Error(r.err)
	} else {
		r.v.Tensor.Release()
	}
	f.send(1, "x", 6)
	wantCode(t, (<-ask(1, no)).err, status.PermissionDenied, "")
	r, err := f.RecvTensor(t.Context(), request(1, "x"))
	if v := value(t, r, err); v != 6 {
		t.Errorf("after the refused receive the value is %v", v)
	}
	f.manager.Cleanup(1)
}

// TestPlacesHaveTasksThatFiltersHide: a task that this one does not see may receive from it, and the places
// of a session have it.
func TestPlacesHaveTasksThatFiltersHide(t *testing.T) {
	var visible, all *cluster.Spec
	g := newGraphs(t, Options{
		NewPeers: func(_ cluster.Task, s *cluster.Spec) (Peers, error) { visible = s; return new(fakePeers), nil },
		Places:   func(s *cluster.Spec) map[cluster.Task]cluster.Place { all = s; return map[cluster.Task]cluster.Place{} },
	})
	def := clusterDef()
	def.ClusterDeviceFilters = &tfpb.ClusterDeviceFilters{Jobs: []*tfpb.JobDeviceFilters{
		{Name: "trainer", Tasks: map[int32]*tfpb.TaskDeviceFilters{4: {DeviceFilters: []string{"/job:chief"}}}},
	}}
	g.open(&tfpb.CreateWorkerSessionRequest{ServerDef: def})
	if visible.Len() != 2 || all.Len() != 3 {
		t.Errorf("visible is %v, all are %v", visible, all)
	}
}
