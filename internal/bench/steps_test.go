package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// startSteppers starts the two tasks in this process.
func startSteppers(t *testing.T, provider string) (tasks []*stepper) {
	t.Helper()
	addresses := transporttest.FreeAddresses(t, steppers)
	s := setup{}
	if provider != "" {
		c := server.Config{}
		c.Transport, c.Provider = verbstransport.Name, provider
		s.verbsSetup = new(suite).verbsOf(c)
	}
	for rank := range steppers {
		s.Step = &memberSetup{Rank: rank, Members: steppers, Addresses: addresses}
		m, err := startStepper(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.close(); err != nil {
				t.Error(err)
			}
		})
		tasks = append(tasks, m)
	}
	return tasks
}

// runSteps lets both tasks do their part, until one of them fails.
func runSteps(t *testing.T, tasks []*stepper, r stepRun) (run, error) {
	t.Helper()
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	var got run
	var both sync.WaitGroup
	for rank, m := range tasks {
		both.Go(func() {
			did, err := m.run(ctx, r)
			if err != nil {
				fail(err)
			}
			if rank == 0 {
				got = did
			}
		})
	}
	both.Wait()
	return got, context.Cause(ctx)
}

// TestStepCalls: each call is made and timed as often as asked for, over gRPC and over verbs.
func TestStepCalls(t *testing.T) {
	for _, provider := range []string{"", "tcp"} {
		tasks := startSteppers(t, provider)
		var step int64
		for _, call := range stepCalls {
			for _, r := range []stepRun{
				{Size: 8, Inflight: 1, Count: 7, Median: true}, {Size: 100_000, Inflight: 1, Count: 5, Median: true},
				{Size: 8, Inflight: 1, Count: 2, Median: true, Pause: time.Millisecond}, {Size: 8, Inflight: 16, Count: 3}, {Size: 2 << 20, Inflight: 4, Count: 3},
			} {
				step++
				r.Call, r.Step, r.Device = call, step, provider
				got, err := runSteps(t, tasks, r)
				if r.Inflight > 1 && !r.sentBefore() {
					if status.CodeOf(err) != status.InvalidArgument {
						t.Errorf("over %q %+v: %v, want InvalidArgument", provider, r, err)
					}
					continue
				}
				if want := int64(r.Inflight * r.Count); err != nil || got.count != want || got.latencies.count != want || got.score <= 0 || !got.counted {
					t.Errorf("over %q %+v: %d calls, %d timed, score %v: %v", provider, r, got.count, got.latencies.count, got.score, err)
				}
				if least := time.Duration(r.Count) * r.Pause; got.time < least {
					t.Errorf("%+v took %v, with pauses of %v", r, got.time, least)
				}
			}
		}
	}
}

// TestWrongValueIsAnError: a value that is lost, that comes twice or that is damaged ends the run,
// with each call.
func TestWrongValueIsAnError(t *testing.T) {
	for _, mistake := range []struct {
		name string
		make func(m *stepper, size int64)
	}{
		{"a lost value", func(m *stepper, size int64) { // and so each one comes a turn early
			slices.Reverse(m.tensors[tensorsOf{rank: m.Rank, size: size}])
		}},
		{"a byte in the middle", func(m *stepper, size int64) { m.tensors[tensorsOf{rank: m.Rank, size: size}][1].Bytes()[size/2] ^= 1 }},
		{"the same value again", func(m *stepper, size int64) {
			all := m.tensors[tensorsOf{rank: m.Rank, size: size}]
			copy(all[1].Bytes(), all[0].Bytes())
		}},
	} {
		tasks := startSteppers(t, "")
		for i, call := range stepCalls {
			for _, size := range []int64{8, 4096} {
				sender := tasks[1]
				if call == callSendWait {
					sender = tasks[0]
				}
				for _, m := range tasks { // those of the run before are right again
					for of, all := range m.tensors {
						if !of.dst {
							for _, x := range all {
								x.Release()
							}
							delete(m.tensors, of)
						}
					}
				}
				if _, err := sender.values(sender.Rank, size, sender.server.SendAllocator()); err != nil {
					t.Fatal(err)
				}
				mistake.make(sender, size)
				r := stepRun{Call: call, Step: int64(10*i) + size, Size: size, Inflight: 1, Count: 4}
				if _, err := runSteps(t, tasks, r); status.CodeOf(err) != status.DataLoss || !strings.Contains(err.Error(), "of edge_0 is not the one that was sent") {
					t.Errorf("%s, %s of %d bytes: %v", mistake.name, call, size, err)
				}
			}
		}
	}
}

// TestValueThatNeverComes: it ends the run when the time for it is over.
func TestValueThatNeverComes(t *testing.T) {
	tasks := startSteppers(t, "")
	r := stepRun{Call: callRecv, Step: 1, Size: 8, Inflight: 16, Count: 3}
	if _, err := tasks[1].run(t.Context(), stepRun{Call: callRecv, Step: 1, Size: 8, Inflight: 15, Count: 3}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := tasks[0].run(ctx, r); status.CodeOf(err) != status.DeadlineExceeded {
		t.Errorf("without the values of one name: %v", err)
	}
}

// TestAnotherWayOfAValue: a value that another transport or another device carried ends the run.
func TestAnotherWayOfAValue(t *testing.T) {
	tasks := startSteppers(t, "tcp")
	r := stepRun{Call: callRecvInto, Step: 1, Size: 8, Inflight: 1, Count: 1, Device: "shm"}
	if _, err := runSteps(t, tasks, r); err == nil || !strings.Contains(err.Error(), `came over verbs, device "tcp`) || !strings.Contains(err.Error(), `should come over verbs, device "shm"`) {
		t.Errorf("another device: %v", err)
	}
	tasks[0].transport = grpctransport.Name
	r.Step, r.Device = 2, ""
	if _, err := runSteps(t, tasks, r); err == nil || !strings.Contains(err.Error(), `should come over grpc`) {
		t.Errorf("another transport: %v", err)
	}
}

func TestStepperRefuses(t *testing.T) {
	tasks := startSteppers(t, "")
	for _, r := range []stepRun{
		{Call: callRecv, Step: 1, Size: 7, Inflight: 1, Count: 1}, {Call: callRecv, Step: 1, Size: 8, Count: 1}, {Call: callRecv, Step: 1, Size: 8, Inflight: 1},
		{Call: "pigeon", Step: 1, Size: 8, Inflight: 1, Count: 1},
	} {
		if s := tasks[0].obey(command{Step: &r}); s.Error == "" || s.Run != nil {
			t.Errorf("%+v: %+v", r, s)
		}
	}
	for _, m := range []memberSetup{{Members: 2, Addresses: []string{loopback}}, {Members: 1, Addresses: []string{loopback}}} {
		if p, err := startStepper(t.Context(), setup{Step: &m}); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%+v gives %v, %v", m, p, err)
		}
	}
}

// rowsOfSteps is how many rows a call has over a route under a given poll, ours and those of the
// baselines.
func rowsOfSteps(r *route, call, poll string) int {
	s := &suite{}
	s.Client.RDMA.Poll = poll
	b := benchmark{transport: verbstransport.Name, route: r}
	if r == routeGRPC {
		b.transport = grpctransport.Name
	}
	rows := 0
	for _, poll := range s.pollsOf(b) {
		for _, c := range stepCases[call] {
			if s.measures(c, poll) {
				rows += 2
			}
		}
	}
	if call == callRecvInto {
		rows += map[*route]int{routeShm: len(s.pollsOf(b)), routeGRPC: 2}[r] // the tails, and beside a gRPC call
	}
	return rows
}

// TestFailureOfATaskIsReported, and the other one is not waited for.
func TestFailureOfATaskIsReported(t *testing.T) {
	s := &suite{Options: routes(t)}
	s.now = benchmark{name: "x", transport: grpctransport.Name, route: routeGRPC}
	tasks, ctx, err := s.startSteps(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer tasks.close()
	for _, call := range stepCalls {
		if _, err := tasks.run(ctx, stepRun{Call: call, Size: 7, Inflight: 1, Count: 1}); err == nil || !strings.Contains(err.Error(), "rank ") || !strings.Contains(err.Error(), "a value has 8 bytes or more") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestEachTargetOfStepsHasARow: a target whose row has another name is never checked.
// TestBenchmarksOfRoutes finds those of routes in the rows.
func TestEachTargetOfStepsHasARow(t *testing.T) {
	names := make(map[string]bool)
	for _, b := range benchmarks() {
		names[b.name] = true
		for _, poll := range []string{"", server.PollBusy, server.PollEvent} {
			for _, d := range []time.Duration{0, shortPause, idlePause, longPause} {
				names[stepName(b.name, poll, d)] = true
			}
		}
	}
	for k := range stepTargets {
		if !names[k.name] {
			t.Errorf("no benchmark has the row %+v", k)
		}
	}
	for _, c := range []struct {
		poll  string
		pause time.Duration
		want  string
	}{{"", 0, "x"}, {server.PollAdaptive, 0, "x"}, {server.PollBusy, 0, "x-busy"}, {server.PollEvent, time.Millisecond, "x-event-1ms"}, {"", longPause, "x-100ms"}} {
		if got := stepName("x", c.poll, c.pause); got != c.want {
			t.Errorf("poll %q after %v: %s, want %s", c.poll, c.pause, got, c.want)
		}
	}
}

// TestPollIsWhatTheFlagSays: one that is given is the only one.
func TestPollIsWhatTheFlagSays(t *testing.T) {
	s := &suite{}
	verbs, grpc := benchmark{transport: verbstransport.Name}, benchmark{transport: grpctransport.Name}
	if got := fmt.Sprintf("%q %q", s.pollsOf(verbs), s.pollsOf(grpc)); got != `["" "busy"] [""]` {
		t.Errorf("by default: %s", got)
	}
	if s.measures(stepCase{}, server.PollBusy) || !s.measures(stepCase{}, "") || !s.measures(stepCase{busy: true}, server.PollBusy) {
		t.Error("by default busy is for the cases that say so")
	}
	s.Client.RDMA.Poll = server.PollBusy
	if got := s.pollsOf(verbs); !slices.Equal(got, []string{server.PollBusy}) || !s.measures(stepCase{}, server.PollBusy) {
		t.Errorf("with --poll busy: %q", got)
	}
}
