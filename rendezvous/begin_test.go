package rendezvous_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// renamed is the device that ps has in the session of a propagated cluster.
const renamed = "/job:trainer/replica:0/task:4/device:CPU:0"

func renamedSession(t testing.TB) *rendezvous.Session {
	d := device(t, renamed)
	return &rendezvous.Session{Task: d.Task, Devices: map[cluster.Device]uint64{d: 1}}
}

// TestPeersWaitForTheSessionOfTheirStep: a peer's receive from a name that this process has only in
// a worker session waits until the step begins with that session.
func TestPeersWaitForTheSessionOfTheirStep(t *testing.T) {
	c, m := counted(t), manager(t)
	k := between(t, renamed, ps, "a")
	first, second := ask(t.Context(), m, step, k), ask(t.Context(), m, step, k)
	foreign := ask(t.Context(), m, step, key(t, "a")) // the name of the process is not that of the session
	r, err := m.Begin(step, renamedSession(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.mustSend(t, r, k, 1)
	c.mustSend(t, r, k, 2)
	first.mustGet(t, 1)
	second.mustGet(t, 2)
	if m.Find(step) != r {
		t.Error("the step has two rendezvous")
	}
	m.Cleanup(step)
	if foreign.wait(t).err == nil {
		t.Error("a value under another name than the session's was received")
	}
}

// TestBeginAgain: a second RunGraph of a step gets the same rendezvous; one for another task is
// Internal; one of a step that has ended gets the reason.
func TestBeginAgain(t *testing.T) {
	m := manager(t)
	r, err := m.Begin(step, renamedSession(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.Begin(step, renamedSession(t), nil); again != r || err != nil {
		t.Errorf("the second Begin returned another rendezvous, or %v", err)
	}
	_, err = m.Begin(step, session(t), nil)
	mustBe(t, err, status.Internal, "Double init! Worker names would have changed from /job:trainer/replica:0/task:4 -> ")
	m.Cleanup(step)
	_, err = m.Begin(step, renamedSession(t), nil)
	mustBe(t, err, status.Aborted, "Cleanup 123")
}

// TestBeginUsesTheRemoterOfTheSession: receives of a step go through the Remoter that it began
// with, those of other steps through the Manager's.
func TestBeginUsesTheRemoterOfTheSession(t *testing.T) {
	m := manager(t) // without a Remoter
	of := &countingRemoter{}
	r, err := m.Begin(step, renamedSession(t), of)
	if err != nil {
		t.Fatal(err)
	}
	p := recvAsync(t.Context(), r, between(t, ps, renamed, "a"))
	mustBe(t, p.wait(t).err, status.Unavailable, "counted")
	if of.n != 1 {
		t.Errorf("the Remoter of the session got %d receives, want 1", of.n)
	}
}

// countingRemoter fails all receives.
type countingRemoter struct{ n int }

func (r *countingRemoter) RecvFromRemoteAsync(_ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	r.n++
	done(rendezvous.Value{}, args, status.New(status.Unavailable, "counted"))
	return noTransfer{}
}

type noTransfer struct{ rendezvous.Transfer }
