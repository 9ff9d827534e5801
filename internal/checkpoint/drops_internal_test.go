package checkpoint

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// stoppedPuller makes two versions, of which a stopped puller holds the first. The second one is current, and no pull of it
// has begun.
func stoppedPuller(t *testing.T) (tr *trainer, first, second *publication) {
	t.Helper()
	tr = newTrainer(t, 2, 1<<20, 2e10) // a rate at which deltas gain nothing
	first = tr.c.publications["w"]
	for _, e := range first.entries {
		t.Cleanup(e.held.Retain().Release)
	}
	tr.step(100)
	tr.update()
	return tr, first, tr.c.publications["w"]
}

// makeUntilStopped begins to make deltas to the second version, which takes until it is stopped.
func (tr *trainer) makeUntilStopped(first, second *publication) (stopped context.Context) {
	l := tr.line()
	ctx, stop := context.WithCancel(context.Background())
	tr.c.mu.Lock()
	m := newMaking(first, second)
	m.stop, l.deltas.fresh = stop, m
	tr.c.mu.Unlock()
	tr.c.work.Go(func() {
		<-ctx.Done()
		tr.c.makeDeltas(ctx, l, m, 0)
	})
	tr.t.Cleanup(stop)
	return ctx
}

// drop makes the next version, and waits for memory for a short time.
func (tr *trainer) drop(within time.Duration) error {
	ctx, cancel := context.WithTimeout(tr.t.Context(), within)
	defer cancel()
	tr.step(100)
	_, err := tr.c.Update(ctx, "w", tr.model, UpdateOptions{Drop: true})
	return err
}

func TestDropDoesNotWaitForDeltas(t *testing.T) {
	tr, first, second := stoppedPuller(t)
	tr.makeUntilStopped(first, second)
	if err := tr.drop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if p := tr.c.publications["w"]; p.number != 3 || !second.dropped || isBack(first.lent) {
		t.Errorf("number %d is current; the one before was dropped: %v, the first one is back: %v", p.number, second.dropped, isBack(first.lent))
	}
	if err := second.lent.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// A version that cannot be dropped keeps its deltas.
func TestDropLeavesTheDeltasOfAVersionThatIsPulled(t *testing.T) {
	tr, first, second := stoppedPuller(t)
	making := tr.makeUntilStopped(first, second)
	_, end, err := tr.c.begin("w", "", new(opened))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := tr.drop(10 * time.Millisecond); status.CodeOf(err) != status.DeadlineExceeded || making.Err() != nil {
		t.Errorf("the update ended with %v, the making with %v", err, making.Err())
	}
}

// A version may have the content of the one before, whose pulls then read it. When they have ended, it can be dropped.
func TestDropOfAVersionThatWasRead(t *testing.T) {
	tr, _, second := stoppedPuller(t)
	read := second.entries[0].held.Retain()
	if err := tr.drop(10 * time.Millisecond); status.CodeOf(err) != status.DeadlineExceeded {
		t.Errorf("the update ended with %v", err)
	}
	read.Release()
	if err := tr.drop(10 * time.Second); err != nil || !second.dropped {
		t.Error(err)
	}
}

// Watchers that have the version before the dropped one, or an older one, take deltas to the next.
func TestDeltasLeadPastADroppedVersion(t *testing.T) {
	tr := newTrainer(t, 2, 1<<20, 0)
	tr.step(100)
	tr.update()
	tr.made()
	before := tr.c.publications["w"]
	_, end, err := tr.c.begin("w", "", new(opened))
	if err != nil {
		t.Fatal(err)
	}
	tr.step(100)
	tr.update()
	for range 2 {
		dropped := tr.c.publications["w"]
		if err := tr.drop(10 * time.Second); err != nil || !dropped.dropped {
			t.Fatal(dropped.dropped, err)
		}
		if fresh, _ := tr.made(); fresh == 0 {
			t.Errorf("no deltas were made to number %d", dropped.number+1)
		}
		for from, want := range map[uint64]bool{1: true, before.number: true, dropped.number: false} {
			if _, _, ok := tr.line().deltas.path(from, tr.c.publications["w"]); ok != want {
				t.Errorf("deltas lead from number %d to number %d: %v", from, dropped.number+1, ok)
			}
		}
	}
	end()
	if err := before.lent.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
