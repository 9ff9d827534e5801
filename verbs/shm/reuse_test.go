//go:build linux

package shm

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// afterSlices has a function called after each slice that was copied, and once more after a message.
func (p *Provider) afterSlices(f func()) {
	read := p.peerEpoch
	p.peerEpoch = func(l *connection) (uint64, error) {
		f()
		return read(l)
	}
}

// inSlices has a function called while each slice is copied.
func (p *Provider) inSlices(f func()) {
	copySlice := p.copy
	p.copy = func(dst, src []byte) error {
		f()
		return copySlice(dst, src)
	}
}

// TestSourceThatWasTakenBackNeverArrives: a poster whose work request has ended writes to its
// memory while the peer copies from it. The peer must not take that for the content.
func TestSourceThatWasTakenBackNeverArrives(t *testing.T) {
	if arrives(t, false) {
		t.Error("a message arrived whose memory its poster had taken back")
	}
}

// TestSuiteFindsASkippedEpoch: a responder that does not look at the epoch is found.
func TestSuiteFindsASkippedEpoch(t *testing.T) {
	if !arrives(t, true) {
		t.Error("without a look at the epoch the message should have arrived, with wrong content")
	}
}

// arrives reports whether a message of several slices completes at the receiver although the
// sender's work request was flushed after the first slice. With skipEpoch the responder does not see
// that the poster took its memory back.
func arrives(t *testing.T, skipEpoch bool) bool {
	p := New(Options{})
	if skipEpoch {
		p.peerEpoch = func(*connection) (uint64, error) { return epochAlive, nil }
	}
	var x, y *testEnd
	copied := 0
	p.afterSlices(func() {
		if copied++; copied > 1 {
			return
		}
		if err := x.qp.ToErr(); err != nil {
			t.Error(err)
		}
		x.ends(1, verbs.StatusFlushed)
		copy(x.mem[sliceSize:], bytes.Repeat([]byte{0xee}, sliceSize)) // it is the poster's again
	})
	x, y = newPair(t, p, 4*sliceSize)
	y.recv(2, 0, 2*sliceSize)
	x.post(x.to(y, 1, verbs.OpSend, 0, 2*sliceSize, 0))
	if !skipEpoch {
		// The copy ends without a completion. The receive stays until its queue pair ends.
		y.qp.pollUntil(t, func() bool { return copied > 0 && y.qp.resp.deaf })
		if err := y.qp.ToErr(); err != nil {
			t.Fatal(err)
		}
	}
	wc := y.wait()
	if wc.Status != verbs.StatusOK {
		return false
	}
	if y.mem[sliceSize] == 0xee {
		t.Log("the message has bytes that were never sent")
	}
	return true
}

// pollUntil waits for a condition of a queue pair, which is checked under its locks.
func (q *qp) pollUntil(t *testing.T, so func() bool) {
	t.Helper()
	wait(t, func() bool {
		q.drive.Lock()
		defer q.drive.Unlock()
		q.mu.Lock()
		defer q.mu.Unlock()
		return so()
	})
}

// TestSourceOfAClosedRegionNeverArrives: closing a region takes its memory back, too.
func TestSourceOfAClosedRegionNeverArrives(t *testing.T) {
	p := New(Options{})
	p.dropTime = 100 * time.Millisecond // the peer does not confirm: its copy waits for this Close
	var x, y *testEnd
	closed := make(chan error, 1)
	once := false
	p.afterSlices(func() {
		if !once {
			once = true
			closed <- x.mr.Close()
		}
	})
	x, y = newPair(t, p, 4*sliceSize)
	y.recv(2, 0, 2*sliceSize)
	x.post(x.to(y, 1, verbs.OpSend, 0, 2*sliceSize, 0))
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	x.ends(1, verbs.StatusLocalProtection)
	y.qp.pollUntil(t, func() bool { return y.qp.resp.deaf })
	if err := y.qp.ToErr(); err != nil {
		t.Fatal(err)
	}
	y.ends(2, verbs.StatusFlushed)
}

// TestCloseWaitsForTheSlice: closing what gives access to memory waits while a slice is copied to it.
// After it nothing is written.
func TestCloseWaitsForTheSlice(t *testing.T) {
	through := func(w verbs.Window, wr verbs.SendWR) verbs.SendWR {
		wr.RKey = w.RKey()
		return wr
	}
	type operation struct {
		wr    verbs.SendWR
		close func() error
		into  []byte
		want  verbs.Status
	}
	for name, of := range map[string]func(t *testing.T, x, y *testEnd) operation{
		"the region of a WRITE": func(_ *testing.T, x, y *testEnd) operation {
			return operation{x.to(y, 1, verbs.OpWrite, 0, 8*sliceSize, 0), y.mr.Close, y.mem, verbs.StatusRemoteAccess}
		},
		"the window of a WRITE": func(t *testing.T, x, y *testEnd) operation {
			w := must(y.qp.BindWindow(y.mr, 0, 8*sliceSize, verbs.AccessRemoteWrite))(t)
			return operation{through(w, x.to(y, 1, verbs.OpWrite, 0, 8*sliceSize, 0)), w.Close, y.mem, verbs.StatusRemoteAccess}
		},
		"the queue pair of a WRITE": func(_ *testing.T, x, y *testEnd) operation {
			return operation{x.to(y, 1, verbs.OpWrite, 0, 8*sliceSize, 0), y.qp.Close, y.mem, verbs.StatusRetryExceeded}
		},
		"the queue pair of a WRITE, by a reset": func(_ *testing.T, x, y *testEnd) operation {
			return operation{x.to(y, 1, verbs.OpWrite, 0, 8*sliceSize, 0), y.qp.ToReset, y.mem, verbs.StatusRetryExceeded}
		},
		"the region of a receive": func(_ *testing.T, x, y *testEnd) operation {
			y.recv(2, 0, 8*sliceSize)
			return operation{x.to(y, 1, verbs.OpSend, 0, 8*sliceSize, 0), y.mr.Close, y.mem, verbs.StatusRemoteOperation}
		},
		"the region that a READ fills": func(_ *testing.T, x, y *testEnd) operation {
			return operation{x.to(y, 1, verbs.OpRead, 0, 8*sliceSize, 0), x.mr.Close, x.mem, verbs.StatusLocalProtection}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{})
			closed := make(chan error, 1)
			var begun, ended, early atomic.Bool
			var o operation
			var x, y *testEnd
			p.inSlices(func() {
				if !begun.CompareAndSwap(false, true) {
					return
				}
				go func() {
					err := o.close()
					ended.Store(true)
					closed <- err
				}()
				for range 2000 {
					runtime.Gosched()
				}
				early.Store(ended.Load())
			})
			p.afterSlices(func() { // else a busy machine may copy all slices before Close begins
				for begun.Load() && !ended.Load() && x.qp.stopping.Load()+y.qp.stopping.Load() == 0 && t.Context().Err() == nil {
					runtime.Gosched()
				}
			})
			x, y = newPair(t, p, 8*sliceSize)
			// Both are connected. The empty message has no slice.
			x.post(verbs.SendWR{ID: 9, Op: verbs.OpWrite, Signaled: true})
			x.ends(9, verbs.StatusOK)
			y.post(verbs.SendWR{ID: 9, Op: verbs.OpWrite, Signaled: true})
			y.ends(9, verbs.StatusOK)
			for i := range x.mem {
				x.mem[i], y.mem[i] = 1, 1
			}
			o = of(t, x, y)
			x.post(o.wr)
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			clear(o.into)
			x.ends(1, o.want)
			if early.Load() {
				t.Error("Close has returned while a slice was copied")
			}
			if !bytes.Equal(o.into, make([]byte, len(o.into))) {
				t.Error("the memory was written after Close")
			}
		})
	}
}

// TestNothingIsWrittenAfterClose of the destination's region, between two slices.
func TestNothingIsWrittenAfterClose(t *testing.T) {
	p := New(Options{})
	entered, leave := make(chan struct{}), make(chan struct{})
	once := false
	p.afterSlices(func() {
		if !once {
			once = true
			close(entered)
			<-leave
		}
	})
	x, y := newPair(t, p, 8*sliceSize)
	for i := range x.mem {
		x.mem[i] = 1
	}
	x.post(x.to(y, 1, verbs.OpWrite, 0, 8*sliceSize, 0))
	<-entered // after the first slice, outside of all locks but drive
	if err := y.mr.Close(); err != nil {
		t.Fatal(err)
	}
	clear(y.mem)
	close(leave)
	x.ends(1, verbs.StatusRemoteAccess)
	if !bytes.Equal(y.mem, make([]byte, len(y.mem))) {
		t.Error("the region was written after Close")
	}
}

// TestReadOfMemoryThatWasTakenBack: a READ whose source's owner takes it back does not succeed with
// bytes that were never there to be read.
func TestReadOfMemoryThatWasTakenBack(t *testing.T) {
	p := New(Options{})
	var x, y *testEnd
	once := false
	p.afterSlices(func() {
		if !once {
			once = true
			if err := y.qp.ToErr(); err != nil {
				t.Error(err)
			}
		}
	})
	x, y = newPair(t, p, 4*sliceSize)
	x.post(x.to(y, 1, verbs.OpRead, 0, sliceSize, 0))
	x.ends(1, verbs.StatusRetryExceeded)
}

// TestClosedWindowTakesAnsweredReadsBack: a READ through a window does not succeed with what its owner
// writes after the window was closed. A READ that has ended does not matter.
func TestClosedWindowTakesAnsweredReadsBack(t *testing.T) {
	x, y := newPair(t, New(Options{}), 1<<16)
	y.post(y.to(x, 9, verbs.OpWrite, 0, 8, 0)) // both are connected
	y.ends(9, verbs.StatusOK)
	read := func() verbs.Window {
		w := must(y.qp.BindWindow(y.mr, 0, 4096, verbs.AccessRemoteRead))(t)
		wr := x.to(y, 1, verbs.OpRead, 0, 4096, 0)
		wr.RKey = w.RKey()
		x.post(wr)
		return w
	}
	w := read()
	x.ends(1, verbs.StatusOK)
	y.qp.pollUntil(t, func() bool { return !y.qp.readUnderWayLocked(func(answered) bool { return true }) })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if s, _ := y.qp.State(); s != verbs.StateRTS {
		t.Fatalf("after a READ that has ended the queue pair is in %v", s)
	}
	x.qp.drive.Lock()
	w = read()
	wait(t, func() bool { return word(y.qp.live.Load().own.mem, atDone).Load() == 2 })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	copy(y.mem, "written later")
	x.qp.drive.Unlock()
	x.ends(1, verbs.StatusRetryExceeded)
}
