package bench

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
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

// reduceSetup makes a second process a member.
type reduceSetup struct {
	Rank    int `json:"rank"`
	Members int `json:"members"`
	// Addresses are those at which all members of Tryst listen, by rank.
	Addresses []string `json:"addresses,omitempty"`
	// Store is the path of a file by which the members of another program find each other. There
	// is no file yet.
	Store string `json:"store,omitempty"`
}

// reduceRun is the command to take part in some rounds.
type reduceRun struct {
	Bytes  int64 `json:"bytes"` // a multiple of 4
	Rounds int   `json:"rounds"`
	Warm   int   `json:"warm"` // rounds before them, which are not measured
}

// member is one member, with its server.
type member struct {
	reduceSetup
	server *server.Server
	memory tensor.Allocator
	group  *collective.Group        // nil before the first command
	in     map[int64]*tensor.Tensor // by size
}

func startMember(ctx context.Context, s setup) (*member, error) {
	m := &member{reduceSetup: *s.Reduce, in: make(map[int64]*tensor.Tensor)}
	if len(m.Addresses) != m.Members || m.Rank < 0 || m.Rank >= m.Members {
		return nil, status.Errorf(status.InvalidArgument, "rank %d of %d members with %d addresses", m.Rank, m.Members, len(m.Addresses))
	}
	c := server.Config{
		Listen: m.Addresses[m.Rank], Cluster: map[string][]string{"worker": m.Addresses},
		Task: cluster.Task{Job: "worker", Index: m.Rank}.String(),
	}
	s.apply(&c)
	var err error
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

// members is the first process's handle of all members of one side.
type members []*child

// startMembers starts them by a command. The context that it returns ends when one of them does.
func startMembers(ctx context.Context, command func(context.Context) *exec.Cmd, s setup) (_ members, _ context.Context, err error) {
	var all members
	for rank := range s.Reduce.Members {
		own := *s.Reduce
		own.Rank, s.Reduce = rank, &own
		var c *child
		if c, ctx, err = startChild(ctx, command, s); err != nil {
			all.close()
			return nil, nil, status.From(err).WithPrefix(rankText(rank))
		}
		all = append(all, c)
	}
	return all, ctx, nil
}

func rankText(rank int) string { return "rank " + strconv.Itoa(rank) }

// startReducers starts the members of Tryst over the current route.
func (s *suite) startReducers(ctx context.Context) (all members, within context.Context, err error) {
	set := setup{Profile: s.Profile, verbsSetup: s.verbsOf(s.client())}
	for range portTries {
		set.Reduce = &reduceSetup{Members: reducers}
		if set.Reduce.Addresses, err = freeAddresses(ctx, reducers); err != nil {
			return nil, nil, err
		}
		all, within, err = startMembers(ctx, s.Command, set)
		if err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			break
		}
	}
	return all, within, err
}

// freeAddresses returns n different addresses, which may be in use when somebody listens there.
func freeAddresses(ctx context.Context, n int) (addresses []string, err error) {
	var lc net.ListenConfig
	for range n {
		l, e := lc.Listen(ctx, "tcp", loopback)
		if e != nil {
			return nil, status.Errorf(status.Unavailable, "a port for an all-reduce: %w", e)
		}
		defer func() { err = errors.Join(err, l.Close()) }() // at the end, so that all differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
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

// close ends all at once: a member waits for the others.
func (m members) close() {
	var closed sync.WaitGroup
	for _, c := range m {
		closed.Go(c.close)
	}
	closed.Wait()
}
