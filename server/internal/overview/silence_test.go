package overview

import (
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// silenceWorld is a Silence in virtual time, with peers by number.
type silenceWorld struct {
	t     *testing.T
	s     *Silence
	now   time.Time
	heard map[int]int64
	gone  map[int]bool
	under map[int]ProbeOf // the probes that are under way
}

func newSilenceWorld(t *testing.T, peers int) *silenceWorld {
	w := &silenceWorld{t: t, s: NewSilence(), now: time.Now(), heard: make(map[int]int64), gone: make(map[int]bool), under: make(map[int]ProbeOf)}
	for i := range peers {
		w.heard[i] = 0
	}
	w.s.Begin(w.now)
	return w
}

func peerTask(i int) cluster.Task { return cluster.Task{Job: "worker", Index: i} }

// look looks after a time. The probes that begin are sent, and answered by the peers in answer.
func (w *silenceWorld) look(after time.Duration, answer ...int) (changed bool) {
	w.t.Helper()
	w.now = w.now.Add(after)
	var signs []Sign
	for i := range len(w.heard) {
		if !w.gone[i] {
			signs = append(signs, Sign{Peer: peerTask(i), Heard: w.heard[i]})
		}
	}
	probes, changed := w.s.Look(w.now, signs)
	for _, p := range probes {
		i := p.Peer.Index
		if _, ok := w.under[i]; ok && !w.gone[i] {
			w.t.Errorf("peer %d is probed twice at once", i)
		}
		w.under[i] = p
		w.s.Sent(p)
		if slices.Contains(answer, i) {
			w.answer(i)
		}
	}
	return changed
}

func (w *silenceWorld) answer(i int) {
	w.s.Answered(w.now, w.under[i])
	delete(w.under, i)
}

func (w *silenceWorld) silent(i int) bool {
	_, ok := w.s.Silent()[peerTask(i)]
	return ok
}

// TestAPeerThatStopsIsSilent: within the time that limits.go promises, whether it was busy or idle, and not before the Look after
// doubtAfter. When it answers, it is so no more.
func TestAPeerThatStopsIsSilent(t *testing.T) {
	const most = lookInterval + probeAfter + doubtAfter + 2*lookInterval
	for name, busy := range map[string]bool{"busy": true, "idle": false} {
		for phase := range 12 { // between two probes
			w := newSilenceWorld(t, 2)
			for range 10 + phase {
				if busy {
					w.heard[1]++
				}
				w.look(lookInterval, 0, 1)
			}
			stopped := w.now
			if busy {
				w.heard[1]++ // just before
			}
			for !w.silent(1) {
				changed := w.look(lookInterval, 0)
				if changed != w.silent(1) {
					t.Fatalf("%s: changed is %v", name, changed)
				}
				if took := w.now.Sub(stopped); took > most {
					t.Fatalf("%s: not silent after %v", name, took)
				}
			}
			if took := w.now.Sub(stopped); took < doubtAfter+lookInterval {
				t.Errorf("%s: silent after %v", name, took)
			}
			if q := w.s.Silent()[peerTask(1)]; q.Longer || q.Since.Before(stopped.Add(-time.Second)) || q.Since.After(stopped.Add(lookInterval)) {
				t.Errorf("%s: silent since %v, stopped at %v", name, q, stopped)
			}
			for range 100 {
				if w.look(lookInterval, 0); !w.silent(1) || w.silent(0) {
					t.Fatalf("%s: %v", name, w.s.Silent())
				}
			}
			w.answer(1)
			if w.silent(1) {
				t.Errorf("%s: silent at once after its answer", name)
			}
			if changed := w.look(lookInterval, 0, 1); !changed || w.silent(1) {
				t.Errorf("%s: silent after its answer", name)
			}
		}
	}
}

// TestBytesOfAPeerEndItsSilence: an answer may come behind much else.
func TestBytesOfAPeerEndItsSilence(t *testing.T) {
	w := newSilenceWorld(t, 1)
	for range 20 {
		w.heard[0]++
		if w.look(lookInterval); w.silent(0) {
			t.Fatal("silent while bytes come")
		}
	}
	for range 10 {
		w.look(lookInterval)
	}
	if !w.silent(0) {
		t.Fatal("not silent")
	}
	w.heard[0]++
	if w.look(lookInterval); w.silent(0) {
		t.Error("silent although bytes have come")
	}
}

// TestAPeerThatAnswersIsNeverSilent: nothing else comes from it, as while it has no value for a receive that waits.
func TestAPeerThatAnswersIsNeverSilent(t *testing.T) {
	w := newSilenceWorld(t, 1)
	probes := w.s.probes
	for range 1000 {
		if w.look(lookInterval, 0); w.silent(0) {
			t.Fatal("silent")
		}
	}
	if n := w.s.probes - probes; n < 300 || n > 500 {
		t.Errorf("%d probes in %v", n, 1000*lookInterval)
	}
}

// TestOwnPauseIsNoSilence: a process that was stopped itself, or gets no processor, does not report its peers.
func TestOwnPauseIsNoSilence(t *testing.T) {
	w := newSilenceWorld(t, 1)
	w.look(lookInterval) // sends a probe
	for _, pause := range []time.Duration{time.Second, time.Hour, lookInterval, 2*lookInterval + 1, 2 * lookInterval, time.Second, 2 * lookInterval, 3 * lookInterval} {
		if w.look(pause); w.silent(0) {
			t.Errorf("silent after a pause of this process for %v", pause)
		}
	}
	w.answer(0)
	w.look(lookInterval)
	if w.silent(0) {
		t.Error("silent")
	}
}

// TestUnsentProbeIsNoSilence: a probe that waits until the connection allows another call asks nothing.
func TestUnsentProbeIsNoSilence(t *testing.T) {
	s, now := NewSilence(), time.Now()
	s.Begin(now)
	signs := []Sign{{Peer: peerTask(0)}}
	probes, _ := s.Look(now, signs)
	for range 20 {
		now = now.Add(lookInterval)
		if more, _ := s.Look(now, signs); len(more) > 0 {
			t.Fatal("a second probe")
		}
	}
	if len(s.Silent()) > 0 || s.Undecided() {
		t.Error("silent, or readers wait for it")
	}
	s.Sent(probes[0])
	for range 5 {
		now = now.Add(lookInterval)
		s.Look(now, signs)
	}
	if len(s.Silent()) != 1 || s.Undecided() {
		t.Error("not silent")
	}
}

// TestPeerWithoutConnectionIsNotSilent: its link tells what it is. Neither is it after a pause in which nobody has looked, unless
// its probe was not answered for all that time.
func TestPeerWithoutConnectionIsNotSilent(t *testing.T) {
	w := newSilenceWorld(t, 1)
	for range 10 {
		w.look(lookInterval)
	}
	if !w.silent(0) {
		t.Fatal("not silent")
	}
	w.now = w.now.Add(time.Hour)
	w.s.Begin(w.now)
	if w.look(0); !w.silent(0) {
		t.Error("its probe is not answered, and it is not silent")
	}
	w.answer(0) // nobody looks
	w.s.Begin(w.now)
	if len(w.s.Silent()) > 0 {
		t.Error("silent after its answer")
	}
	for range 10 {
		w.look(lookInterval)
	}
	w.gone[0] = true
	if changed := w.look(lookInterval); !changed || w.silent(0) || len(w.s.peers) != 0 {
		t.Error("silent without a connection")
	}
	w.answer(0) // late
	w.gone[0] = false
	if w.look(lookInterval); w.silent(0) {
		t.Error("silent with a new connection")
	}
}

// TestFailedProbeAnswersNothing: a peer that was silent remains so when the connection ends or cannot be made, and one that was not
// does not become silent by that.
func TestFailedProbeAnswersNothing(t *testing.T) {
	w := newSilenceWorld(t, 2)
	fail := func(i int) {
		w.s.Failed(w.under[i])
		delete(w.under, i)
	}
	w.look(0, 0)
	fail(1)
	for range 10 {
		w.look(lookInterval, 0)
		if p, ok := w.under[1]; ok {
			w.s.Failed(p)
			delete(w.under, 1)
		}
		if w.silent(1) {
			t.Fatal("silent, and no probe was unanswered for long")
		}
	}
	for range 10 {
		w.look(lookInterval, 0)
	}
	if !w.silent(1) {
		t.Fatal("not silent")
	}
	fail(1)
	for range 10 {
		if w.look(lookInterval, 0); !w.silent(1) {
			t.Fatal("not silent after its connection has ended")
		}
	}
	w.answer(1)
	if w.look(lookInterval, 0, 1); w.silent(1) {
		t.Error("silent after its answer")
	}
}

// TestProbesAreBounded: at most maxProbes begin at once, and each peer gets its turn.
func TestProbesAreBounded(t *testing.T) {
	s, now, probed := NewSilence(), time.Now(), make(map[cluster.Task]int)
	var signs []Sign
	for i := range 1000 {
		signs = append(signs, Sign{Peer: peerTask(i)})
	}
	s.Begin(now)
	const looks = 80
	for range looks {
		probes, _ := s.Look(now, signs)
		if len(probes) > maxProbes {
			t.Fatalf("%d probes at once", len(probes))
		}
		for _, p := range probes {
			probed[p.Peer]++
			s.Sent(p)
			s.Answered(now, p)
		}
		now = now.Add(lookInterval)
	}
	for _, sign := range signs {
		if n := probed[sign.Peer]; n < looks*maxProbes/1000-2 || n > looks*maxProbes/1000+2 {
			t.Fatalf("%v was probed %d times", sign.Peer, n)
		}
	}
}

// BenchmarkLook looks at 1,000 peers.
func BenchmarkLook(b *testing.B) {
	s, now := NewSilence(), time.Now()
	var signs []Sign
	for i := range 1000 {
		signs = append(signs, Sign{Peer: peerTask(i)})
	}
	for b.Loop() {
		now = now.Add(lookInterval)
		probes, _ := s.Look(now, signs)
		for _, p := range probes {
			s.Sent(p)
			s.Answered(now, p)
		}
	}
}

// TestOneLookMakesNoPeerSilent: the answer may have come, and its reader not got the processor yet.
func TestOneLookMakesNoPeerSilent(t *testing.T) {
	w := newSilenceWorld(t, 1)
	w.look(lookInterval)
	w.look(2 * lookInterval)
	if w.silent(0) {
		t.Error("silent at the first look after its time")
	}
	if w.look(1); !w.silent(0) {
		t.Error("not silent at the second")
	}
}

// TestSilentPeerRemainsSilentWhenItsConnectionEnds: while another one to it is up.
func TestSilentPeerRemainsSilentWhenItsConnectionEnds(t *testing.T) {
	w := newSilenceWorld(t, 1)
	for range 10 {
		w.look(lookInterval)
	}
	w.s.Failed(w.under[0])
	delete(w.under, 0)
	for range 20 {
		if w.look(lookInterval); !w.silent(0) {
			t.Fatal("up")
		}
	}
}

// TestPeerThatStoppedBeforeSomebodyLooked: its time is that of its connection, or nobody knows it.
func TestPeerThatStoppedBeforeSomebodyLooked(t *testing.T) {
	s, begin := NewSilence(), time.Now()
	s.Begin(begin)
	hour := begin.Add(-time.Hour)
	for i := range 5 {
		probes, _ := s.Look(begin.Add(time.Duration(i)*lookInterval), []Sign{{Peer: peerTask(0), At: hour}, {Peer: peerTask(1)}})
		for _, p := range probes {
			s.Sent(p)
		}
	}
	all := s.Silent()
	if known, unknown := all[peerTask(0)], all[peerTask(1)]; known != (Quiet{Since: hour}) || unknown != (Quiet{begin, true}) {
		t.Errorf("%v, %v", known, unknown)
	}
}
