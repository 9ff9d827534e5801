package bench

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/server"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// startAll starts the members of an all-reduce in this process.
func startAll(t *testing.T, provider string) []*member {
	t.Helper()
	addresses := transporttest.FreeAddresses(t, reducers)
	s := setup{}
	if provider != "" {
		c := server.Config{}
		c.Transport, c.Provider = verbstransport.Name, provider
		s.verbsSetup = new(suite).verbsOf(c)
	}
	var all []*member
	for rank := range reducers {
		s.Reduce = &memberSetup{Rank: rank, Members: reducers, Addresses: addresses}
		m, err := startMember(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, m)
	}
	return all
}

// obeyAll lets all members take part, and returns their answers.
func obeyAll(all []*member, r reduceRun) []state {
	states := make([]state, len(all))
	var members sync.WaitGroup
	for rank, m := range all {
		members.Go(func() { states[rank] = m.obey(command{Reduce: &r}) })
	}
	members.Wait()
	return states
}

// TestAllReduce runs the members in one process. Each measures the rounds that are asked for.
func TestAllReduce(t *testing.T) {
	for _, provider := range []string{"", "tcp"} {
		all := startAll(t, provider)
		for _, r := range []reduceRun{{Bytes: 1 << 16, Rounds: 3, Warm: 2}, {Bytes: 4, Rounds: 1}} {
			for rank, s := range obeyAll(all, r) {
				if s.Error != "" || len(s.Rounds) != r.Rounds || s.Rounds[0] <= 0 {
					t.Errorf("over %q rank %d answers %+v", provider, rank, s)
				}
			}
		}
	}
}

// TestWrongSumIsAnError: a ratio of wrong results means nothing.
func TestWrongSumIsAnError(t *testing.T) {
	all := startAll(t, "")
	all[2].Rank = 7 // it adds 8 instead of 3
	for rank, s := range obeyAll(all, reduceRun{Bytes: 1 << 10, Rounds: 1}) {
		if s.Error != "element 0 of the sum is 15, want 10" {
			t.Errorf("rank %d answers %+v", rank, s)
		}
	}
}

func TestMemberWithAWrongSetup(t *testing.T) {
	for _, r := range []memberSetup{{Members: 2, Addresses: []string{loopback}}, {Rank: 1, Members: 1, Addresses: []string{loopback}}} {
		if m, err := startMember(t.Context(), setup{Reduce: &r}); err == nil || !strings.Contains(err.Error(), "members with 1 addresses") {
			t.Errorf("%+v gives %v, %v", r, m, err)
		}
	}
}

// TestPortsInUse: the members are started again, with other ports.
func TestPortsInUse(t *testing.T) {
	o := routes(t, "allreduce-tcp")
	o.Routes, o.Sizes = false, []int64{8}
	serve, started := o.Command, 0
	o.Command = func(ctx context.Context) *exec.Cmd {
		if started++; started == 2 { // the second member
			return peerCommand("busy")(ctx)
		}
		return serve(ctx)
	}
	if rows, err := Run(t.Context(), o); err != nil || len(rows) != 1 || started != 2+reducers {
		t.Errorf("%d rows after %d starts, %v", len(rows), started, err)
	}
	o.Command = peerCommand("busy")
	if rows, err := Run(t.Context(), o); err == nil || len(rows) > 0 || !strings.Contains(err.Error(), "rank 0: the second process ended: listen tcp") {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// TestMembersThatFail end the benchmark with the reason of one of them.
func TestMembersThatFail(t *testing.T) {
	all, ctx, err := startMembers(t.Context(), peerCommand("gloo"), 2, func(rank int) setup { return setup{Reduce: &memberSetup{Rank: rank, Members: 2}} })
	if err != nil {
		t.Fatal(err)
	}
	defer all.close()
	if _, err := all.run(ctx, reduceRun{Bytes: failingBytes, Rounds: 3}); err == nil || !strings.Contains(err.Error(), "rank 1: the second process: RuntimeError: broken") {
		t.Errorf("a member that failed gives %v", err)
	}
	if _, err := all.run(ctx, reduceRun{Bytes: forgetfulBytes, Rounds: 3}); err == nil || !strings.Contains(err.Error(), "rank 1 measured 2 rounds instead of 3") {
		t.Errorf("a member that measured too little gives %v", err)
	}
	if err := all[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := all.side(4)(ctx, time.Millisecond); err == nil || !strings.Contains(err.Error(), "the second process ended: signal: killed") {
		t.Errorf("a member that died gives %v", err)
	}
}

// TestStoppedBetweenRuns: the processes of the other side take no processor while ours run.
func TestStoppedBetweenRuns(t *testing.T) {
	var order []string
	do := func(context.Context, time.Duration) (run, error) {
		order = append(order, "run")
		return run{score: 1}, nil
	}
	s := stopped(do, func(s syscall.Signal) error {
		order = append(order, s.String())
		return nil
	})
	if r, err := s(t.Context(), time.Second); err != nil || r.score != 1 || strings.Join(order, ", ") != "continued, run, stopped (signal)" {
		t.Errorf("%v, %v: %q", r.score, err, order)
	}
}
