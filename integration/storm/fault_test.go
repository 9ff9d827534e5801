//go:build linux

package storm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs/tcp"
)

// Faults of a run.
const (
	// faultPause is the mean pause between the beginnings of two faults.
	faultPause = 450 * time.Millisecond
	// maxFaults is how many are under way at once.
	maxFaults = 3
)

// fault is a kind of fault. do makes it and repairs it. It returns early when ctx has ended, with
// everything repaired.
type fault struct {
	name    string
	weight  int
	network bool   // of the network of the task, not of its process
	of      string // the provider whose devices it breaks; "" for any world
	blocks  bool   // no call reaches the task meanwhile
	do      func(s *storm, ctx context.Context, task int, d time.Duration, n int64)
}

var faults = []fault{
	{name: "killed", weight: 30, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.kill(task)
		pause(ctx, d)
		s.restart(task)
	}},
	{name: "killed as soon as it is up, twice", weight: 6, blocks: true, do: func(s *storm, ctx context.Context, task int, _ time.Duration, _ int64) {
		for range 3 {
			s.kill(task)
			s.restart(task)
		}
	}},
	{name: "stopped by SIGSTOP and then killed", weight: 6, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.signal(task, syscall.SIGSTOP)
		pause(ctx, d)
		s.kill(task)
		s.restart(task)
	}},
	{name: "asked to stop", weight: 12, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.stop(task, false)
		pause(ctx, d)
		s.restart(task)
	}},
	{name: "stopped by SIGSTOP", weight: 18, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.signal(task, syscall.SIGSTOP)
		pause(ctx, d)
		s.signal(task, syscall.SIGCONT)
	}},
	{name: "connections reset", weight: 25, network: true, do: func(s *storm, ctx context.Context, task int, _ time.Duration, n int64) {
		select {
		case <-s.proxies[task].CutAfter(n):
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
		s.proxies[task].Release()
	}},
	{name: "connections refused", weight: 10, network: true, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.refuse(task, true)
		<-s.proxies[task].CutAfter(0)
		pause(ctx, d)
		s.refuse(task, false)
	}},
	{name: "TCP held", weight: 12, network: true, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, n int64) {
		s.proxies[task].HoldAfter(n)
		pause(ctx, d)
		s.proxies[task].Release()
	}},
	{name: "TCP held, then reset", weight: 12, network: true, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, n int64) {
		s.proxies[task].HoldAfter(n)
		pause(ctx, d)
		<-s.proxies[task].CutAfter(0)
		s.proxies[task].Release()
	}},
	{name: "TCP slow", weight: 8, network: true, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.proxies[task].Throttle(2 << 20)
		pause(ctx, d)
		s.proxies[task].Throttle(0)
	}},
	{name: "cut off, TCP and UDP", weight: 12, network: true, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, n int64) {
		s.proxies[task].HoldAfter(n)
		s.lose(ctx, task, d, 100)
		s.proxies[task].Release()
	}},
	{name: "UDP cut", weight: 25, network: true, of: server.ProviderRoCE, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) { s.lose(ctx, task, d, 100) }},
	{name: "UDP lossy", weight: 15, network: true, of: server.ProviderRoCE, do: func(s *storm, ctx context.Context, task int, d time.Duration, n int64) {
		s.lose(ctx, task, d, 1+int(n%30))
	}},
	{name: "TCP of queue pairs cut", weight: 25, network: true, of: server.ProviderTCP, do: func(s *storm, _ context.Context, task int, _ time.Duration, _ int64) {
		s.proxies[task].Refuse(tcp.Magic)
		s.proxies[task].Refuse("")
	}},
	{name: "TCP of queue pairs refused", weight: 15, network: true, of: server.ProviderTCP, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.proxies[task].Refuse(tcp.Magic)
		pause(ctx, d)
		s.proxies[task].Refuse("")
	}},
	{name: "shared memory cut", weight: 25, network: true, of: server.ProviderSHM, do: func(s *storm, _ context.Context, task int, _ time.Duration, _ int64) {
		s.sever(task, false)
	}},
	{name: "shared memory taken away", weight: 10, network: true, of: server.ProviderSHM, do: func(s *storm, _ context.Context, task int, _ time.Duration, _ int64) {
		s.sever(task, true) // until the process ends
	}},
	{name: "no descriptor left", weight: 12, network: true, blocks: true, do: func(s *storm, ctx context.Context, task int, d time.Duration, _ int64) {
		s.poor(task, true)
		s.proxies[task].Refuse(tcp.Magic) // its connections are cut, and it can accept no other ones
		s.proxies[task].Refuse("")
		pause(ctx, d)
		s.poor(task, false)
	}},
}

// makeFaults makes faults until ctx ends, and returns when all are repaired.
func (s *storm) makeFaults(ctx context.Context) {
	r := rand.New(rand.NewPCG(s.seed, 0)) //nolint:gosec // reproducible
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, maxFaults)
	var busy sync.Map // of a task's process or network: one fault at a time
	number := int64(0)
	for pause(ctx, time.Duration(r.ExpFloat64()*float64(faultPause))) && !s.failed() {
		f, task, d, n := s.draw(r)
		key := fmt.Sprint(task, f.network)
		if _, is := busy.LoadOrStore(key, true); is {
			continue
		}
		slots <- struct{}{}
		number++
		number := number
		work.Go(func() {
			defer func() { busy.Delete(key); <-slots }()
			s.make(ctx, f, number, task, d, n)
		})
	}
}

// make makes a fault, repairs it and logs both.
func (s *storm) make(ctx context.Context, f fault, number int64, task int, d time.Duration, n int64) {
	rec := record{Kind: kindFault, Task: task, Recv: number, Text: fmt.Sprintf("%s; %v, after %d bytes", f.name, d.Round(time.Millisecond), n), Blocks: f.blocks}
	s.log.write(rec)
	f.do(s, ctx, task, d, n)
	rec.Kind, rec.Text = kindHeal, f.name
	s.log.write(rec)
}

// draw draws a fault, a task, a duration and a number of bytes. Most are short. Some are longer
// than the peer timeout. It draws as many numbers each time, so that the seed decides.
func (s *storm) draw(r *rand.Rand) (f fault, task int, d time.Duration, n int64) {
	total := 0
	for _, f := range faults {
		if s.world.has(f.of) {
			total += f.weight
		}
	}
	k := r.IntN(total)
	for _, f = range faults {
		if !s.world.has(f.of) {
			continue
		}
		if k -= f.weight; k < 0 {
			break
		}
	}
	task = r.IntN(tasks + 2)
	if task >= tasks {
		if task = []int{puller, watcher}[task-tasks]; f.network {
			task = r.IntN(tasks)
		}
	}
	d = time.Duration(r.Int64N(int64(1500 * time.Millisecond)))
	if long := r.IntN(12); long == 0 {
		d = peerTimeout + time.Second + 2*d
	}
	n = r.Int64N(4) * r.Int64N(1<<20)
	return f, task, d, n
}

func (s *storm) signal(task int, sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[task]
	select {
	case <-m.exited: // its process id may be another's
	default:
		_ = syscall.Kill(-m.cmd.Process.Pid, sig)
	}
}

// refuse makes the proxy of a task reset new connections, or not.
func (s *storm) refuse(task int, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[task] = yes
	s.targetLocked(task)
}

// targetLocked sets the target of a task's proxy.
func (s *storm) targetLocked(task int) {
	target := s.targets[task]
	if s.refused[task] {
		target = ""
	}
	s.proxies[task].SetTarget(target)
}

// sever breaks the connections by which a task shares memory, for good or for once.
func (s *storm) sever(task int, forGood bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[task]; m.isUp {
		s.tellLocked(m, command{Op: opSever, For: forGood})
	}
}

// poor takes all free descriptors of a task away, or gives them back. A life that starts meanwhile has its
// own.
func (s *storm) poor(task int, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[task]; m.isUp {
		s.tellLocked(m, command{Op: opPoor, For: !yes})
	}
}

// lose drops packets that arrive at a task. A life that starts meanwhile loses none.
func (s *storm) lose(ctx context.Context, task int, d time.Duration, percent int) {
	tell := func(percent int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if m := s.members[task]; m.isUp {
			s.tellLocked(m, command{Op: opLose, Percent: percent})
		}
	}
	tell(percent)
	pause(ctx, d)
	tell(0)
}
