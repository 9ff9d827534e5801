package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// TestTaskThatComesBackLearnsWhatItHadNotLearnt: that a value has arrived, and that a receive was cancelled, whose value
// the next receive gets. Nothing is received in between.
func TestTaskThatComesBackLearnsWhatItHadNotLearnt(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k, other := key(t, "k"), key(t, "other")
		task := k.Src().Task
		p.set(func() { p.delay = 50 * time.Millisecond })
		p.send(other, 'a')
		arrives, cancelled := p.begin(context.Background(), other), p.begin(context.Background(), k)
		time.Sleep(75 * time.Millisecond)
		p.send(k, 'b') // its answer is under way
		p.wantValue(arrives, 'a')
		p.Leave(task, taskLeft(task.String())) // before the acknowledgement
		p.wantError(cancelled, status.Aborted)
		if n := p.kept.Stats().Kept; n != 2 {
			t.Errorf("while the task is away %d values are kept, want both", n)
		}
		time.Sleep(expireAfter / 2)
		p.Joined(task)
		time.Sleep(time.Second)
		if n := p.kept.Stats().Kept; n != 0 {
			t.Errorf("%d values are kept when the task is back", n)
		}
		p.wantValue(p.begin(context.Background(), k), 'b')
	})
}

// TestReceiveAfterAComebackSettlesFirst: it may come before the process has heard of the comeback.
func TestReceiveAfterAComebackSettlesFirst(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		task := k.Src().Task
		p.set(func() { p.delay = 50 * time.Millisecond })
		early := p.begin(context.Background(), k)
		time.Sleep(75 * time.Millisecond)
		p.send(k, 'a') // its answer is under way
		p.Leave(task, taskLeft(task.String()))
		p.wantError(early, status.Aborted)
		p.wantValue(p.begin(context.Background(), k), 'a')
		p.Joined(task)
	})
}

// TestAnotherProcessOwesNothing: the task has restarted while it was away, and what was owed to its process has gone.
func TestAnotherProcessOwesNothing(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		task := p.leavesWaiting(t)
		p.set(func() { p.incarnation = 6 })
		p.Joined(task)
		synctest.Wait()
		p.mustBeQuiet(t, task.String())
	})
}

// TestDebtsAreForgotten after ten minutes.
func TestDebtsAreForgotten(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		task := p.leavesWaiting(t)
		time.Sleep(rememberFor + time.Second)
		synctest.Wait()
		if debts, _ := p.sizes(); debts != 0 {
			t.Error("the debt is not forgotten by itself")
		}
		p.Joined(task)
		if debts, peers := p.sizes(); debts+peers != 0 {
			t.Errorf("%d debts and %d peers after %v", debts, peers, rememberFor)
		}
	})
}

// TestAcknowledgementsReachATaskThatIsBackAndSlow: it answers no hello for a while.
func TestAcknowledgementsReachATaskThatIsBackAndSlow(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		k := key(t, "k")
		task := k.Src().Task
		p.send(k, 'a')
		p.wantValue(p.begin(context.Background(), k), 'a')
		p.Leave(task, taskLeft(task.String()))
		p.set(func() { p.deaf = true })
		p.Joined(task)
		time.Sleep(helloWait + time.Second)
		p.set(func() { p.deaf = false })
		time.Sleep(helloWait + time.Second)
		if n := p.kept.Stats().Kept; n != 0 {
			t.Errorf("%d values are kept", n)
		}
	})
}

// leavesWaiting has the producer's task leave while a receive from it waits, which is owed as a cancel.
func (p *pair) leavesWaiting(t *testing.T) cluster.Task {
	t.Helper()
	k := key(t, "k")
	task := k.Src().Task
	early := p.begin(context.Background(), k)
	synctest.Wait()
	p.Leave(task, taskLeft(task.String()))
	p.wantError(early, status.Aborted)
	return task
}

func (p *pair) sizes() (debts, peers int) {
	p.Requester.mu.Lock()
	defer p.Requester.mu.Unlock()
	return len(p.debts), len(p.peers)
}

// mustBeQuiet checks that nothing is left to send to a task.
func (p *pair) mustBeQuiet(t *testing.T, task string) {
	t.Helper()
	p.Requester.mu.Lock()
	defer p.Requester.mu.Unlock()
	for of, peer := range p.peers {
		peer.mu.Lock()
		if of.String() == task && !peer.machine.flushedAll() {
			t.Errorf("acknowledgements %v and cancels %v are left", peer.machine.pending, peer.machine.cancelled)
		}
		peer.mu.Unlock()
	}
}

// TestLossOfATaskThatLeavesEndsItsStep: its value was dropped before, and its process cannot hear of it any more.
func TestLossOfATaskThatLeavesEndsItsStep(t *testing.T) {
	left := false
	b := newBench(t, cacheLimits{addressed: func(string) bool { return !left }, left: func(string) bool { return left }})
	b.up()
	b.request(1, 1, 1)
	b.value(1, 'a', 1)
	b.down()
	b.pass(expireAfter)
	if n := len(b.m.known(b.requester()).entries); n != 0 {
		t.Fatalf("%d entries are kept", n)
	}
	left = true
	steps, acts := b.m.clusterChanged(b.now)
	b.do(acts)
	if err, ok := steps[1]; len(steps) != 1 || !ok || status.CodeOf(err) != status.Aborted {
		t.Errorf("steps %v, want step 1", steps)
	}
}
