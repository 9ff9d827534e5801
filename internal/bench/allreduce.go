package bench

import (
	"context"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// An all-reduce has members that are processes of their own: this program, or one of others (gloo.go)
// that speaks as it does. The first process starts them one after the other, and tells all at once
// when to run:
//
//	bench ── setup{reduce: {rank, members, addresses}} ─► member: its server, or what it imports
//	bench ── command{reduce: {bytes, rounds, warm}} ────► all members, in turn with the other side
//
// With the first command the members find each other. A round begins with a barrier, which does
// not count. Then each member measures its own all-reduce of its float32s; the round takes as long as
// at the slowest member.

// reduceRun is the command to take part in some rounds.
type reduceRun struct {
	Bytes  int64 `json:"bytes"` // a multiple of 4
	Rounds int   `json:"rounds"`
	Warm   int   `json:"warm"` // rounds before them, which are not measured
}

// member is one member, with its server.
type member struct {
	memberSetup
	server *server.Server
	memory tensor.Allocator
	group  *collective.Group        // nil before the first command
	in     map[int64]*tensor.Tensor // by size
}

func startMember(ctx context.Context, s setup) (*member, error) {
	m := &member{memberSetup: *s.Reduce, in: make(map[int64]*tensor.Tensor)}
	c, err := m.config(s.verbsSetup)
	if err != nil {
		return nil, err
	}
	if m.server, err = server.Start(ctx, c, server.Options{}); err != nil {
		return nil, err
	}
	m.memory = m.server.Allocator()
	if v, ok := m.server.Verbs(); ok {
		m.memory = v.SendAllocator()
	}
	return m, nil
}

func (m *member) hello() hello { return hello{Server: m.server.Addr().String()} }

func (m *member) obey(c command) state {
	if c.Reduce == nil {
		return state{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait) // the others may have ended
	defer cancel()
	rounds, err := m.run(ctx, *c.Reduce)
	if err != nil {
		return state{Error: status.From(err).Message()}
	}
	return state{Rounds: rounds}
}

// run takes part in the rounds, and returns how long each measured one took here.
func (m *member) run(ctx context.Context, r reduceRun) (rounds []time.Duration, err error) {
	if m.group == nil {
		if m.group, err = m.server.NewGroup(ctx, 1, m.Members); err != nil {
			return nil, err
		}
	}
	if m.in[r.Bytes] == nil {
		if err := m.prepare(ctx, r.Bytes); err != nil {
			return nil, err
		}
	}
	for i := range r.Rounds + r.Warm {
		if err := m.group.Barrier(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		out, err := m.group.AllReduce(ctx, m.in[r.Bytes], collective.Add)
		if err != nil {
			return nil, err
		}
		if i >= r.Warm {
			rounds = append(rounds, time.Since(began))
		}
		out.Release()
	}
	return rounds, nil
}

// prepare makes the tensor of a size, and reduces it once to check the result.
func (m *member) prepare(ctx context.Context, size int64) error {
	in, err := tensor.Make[float32](m.memory, size/4)
	if err != nil {
		return err
	}
	m.in[size] = in
	own, err := tensor.Values[float32](in)
	if err != nil {
		return err
	}
	for i := range own {
		own[i] = float32(m.Rank + 1)
	}
	out, err := m.group.AllReduce(ctx, in, collective.Add)
	if err != nil {
		return err
	}
	defer out.Release()
	sums, err := tensor.Values[float32](out)
	if err != nil {
		return err
	}
	want := float32(m.Members * (m.Members + 1) / 2)
	for i, sum := range sums {
		if sum != want {
			return status.Errorf(status.DataLoss, "element %d of the sum is %v, want %v", i, sum, want)
		}
	}
	return nil
}

func (m *member) close() error {
	if m.group != nil {
		m.group.Close()
	}
	for _, t := range m.in {
		t.Release()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return m.server.Close(ctx)
}

// startReducers starts the members of Tryst over the current route.
func (s *suite) startReducers(ctx context.Context) (members, context.Context, error) {
	return s.startTasks(ctx, reducers, func(m memberSetup) setup {
		return setup{Profile: s.Profile, Reduce: &m, verbsSetup: s.verbsOf(s.client())}
	})
}

// side runs as many rounds as fit into the time, by the rate of the run before. It scores the median
// round.
func (m members) side(size int64) side {
	var rate float64
	return func(ctx context.Context, d time.Duration) (r run, err error) {
		n := min(max(int(rate*d.Seconds())-warmRounds, minRounds), maxRounds)
		began := time.Now()
		slowest, err := m.run(ctx, reduceRun{Bytes: size, Rounds: n, Warm: warmRounds})
		if err != nil {
			return r, ended(ctx, err)
		}
		rate = float64(n+warmRounds) / time.Since(began).Seconds()
		for _, took := range slowest {
			r.latencies.add(took, 1)
			r.time += took
		}
		r.count, r.counted = int64(n), true
		return r, r.byMedian()
	}
}

// run starts the rounds at all members, and returns the time of each round at its slowest member.
func (m members) run(ctx context.Context, r reduceRun) ([]time.Duration, error) {
	states, errs := make([]state, len(m)), make([]error, len(m))
	var asked sync.WaitGroup
	for rank, c := range m {
		asked.Go(func() {
			if states[rank], errs[rank] = c.obey(ctx, command{Reduce: &r}); errs[rank] != nil {
				errs[rank] = status.From(errs[rank]).WithPrefix(rankText(rank))
			}
		})
	}
	asked.Wait()
	slowest := make([]time.Duration, r.Rounds)
	for rank := range m {
		if errs[rank] != nil {
			return nil, errs[rank] // the others' follow from it, or are the same
		}
		if got := len(states[rank].Rounds); got != r.Rounds {
			return nil, status.Errorf(status.Internal, "%s measured %d rounds instead of %d", rankText(rank), got, r.Rounds)
		}
		for i, took := range states[rank].Rounds {
			slowest[i] = max(slowest[i], took)
		}
	}
	return slowest, nil
}
