package transport

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// checkTransfer is what holds for any clocks: a transfer lies between its
// request and its end, and does not end before it began.
func checkTransfer(t *testing.T, requested, ended time.Time, micros int64) {
	t.Helper()
	got := NewTransfer(requested, ended, micros)
	if got.Start.Before(requested) {
		t.Errorf("NewTransfer(%v, %v, %d): begins at %v, before its request", requested, ended, micros, got.Start)
	}
	if got.End.Before(got.Start) {
		t.Errorf("NewTransfer(%v, %v, %d): ends at %v, before it began at %v", requested, ended, micros, got.End, got.Start)
	}
	if !ended.Before(requested) && got.End.After(ended) {
		t.Errorf("NewTransfer(%v, %v, %d): ends at %v, after its end", requested, ended, micros, got.End)
	}
	if s := time.UnixMicro(micros); micros != 0 && s.After(requested) && s.Before(ended) && !got.Start.Equal(s) {
		t.Errorf("NewTransfer(%v, %v, %d): begins at %v, though the sender's word is plausible", requested, ended, micros, got.Start)
	}
}

func TestNewTransfer(t *testing.T) {
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name             string
		requested, ended int
		sent             int64
		start, end       int
	}{
		{"the sender says nothing", 0, 10, 0, 0, 10},
		{"the sender's word", 0, 10, at(4).UnixMicro(), 4, 10},
		{"its clock is behind", 0, 10, at(-400).UnixMicro(), 0, 10},
		{"its clock is ahead", 0, 10, at(400).UnixMicro(), 10, 10},
		{"its clock is absurd", 0, 10, math.MaxInt64, 10, 10},
		{"its clock is absurd the other way", 0, 10, math.MinInt64, 0, 10},
		{"our clock was set back", 10, 0, at(4).UnixMicro(), 10, 10},
	} {
		got := NewTransfer(at(c.requested), at(c.ended), c.sent)
		if !got.Start.Equal(at(c.start)) || !got.End.Equal(at(c.end)) {
			t.Errorf("%s: %v to %v, want %d ms to %d ms", c.name, got.Start.Sub(t0), got.End.Sub(t0), c.start, c.end)
		}
		checkTransfer(t, at(c.requested), at(c.ended), c.sent)
	}
}

// The wall clock may be set while a transfer runs; what is recorded is then
// still in order by the wall clock, which is all that a reader of the log sees.
func TestNewTransferIsByTheWallClock(t *testing.T) {
	now := time.Now()
	got := NewTransfer(now, now.Add(time.Second), now.Add(time.Millisecond).UnixMicro())
	for _, x := range []time.Time{got.Start, got.End} {
		if strings.Contains(x.String(), "m=") {
			t.Errorf("%v has a reading of the monotonic clock: compared with it the order may be another one", x)
		}
	}
	if d := got.End.Sub(now); d != time.Second {
		t.Errorf("it ends %v after its request, want 1s", d)
	}
}

func FuzzNewTransfer(f *testing.F) {
	for _, x := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, t0.UnixMicro()} {
		f.Add(t0.UnixNano(), int64(time.Second), x)
		f.Add(x, x, x)
	}
	f.Fuzz(func(t *testing.T, requested, took, micros int64) {
		r := time.Unix(0, requested)
		checkTransfer(t, r, r.Add(time.Duration(took)), micros)
	})
}

func TestLog(t *testing.T) {
	var seen []int64
	l := NewLog(3, func(t Transfer) { seen = append(seen, t.Step) })
	for i := range int64(8) {
		steps := l.Transfers()
		if want := min(int(i), 3); len(steps) != want {
			t.Fatalf("after %d: %d transfers, want %d", i, len(steps), want)
		}
		for j, s := range steps {
			if want := i - int64(len(steps)) + int64(j); s.Step != want {
				t.Errorf("after %d: place %d is of step %d, want %d", i, j, s.Step, want)
			}
		}
		l.Add(Transfer{Step: i})
	}
	if len(seen) != 8 {
		t.Errorf("the observer saw %v", seen)
	}
	l.Transfers()[0].Step = 99
	if l.Transfers()[0].Step == 99 {
		t.Error("a reader changes the log")
	}
}

func TestLogOfNothing(t *testing.T) {
	var none *Log
	none.Add(Transfer{})
	if none.Transfers() != nil {
		t.Error("a nil log has transfers")
	}
	for _, size := range []int{0, -1} {
		n := 0
		l := NewLog(size, func(Transfer) { n++ })
		l.Add(Transfer{})
		if len(l.Transfers()) != 0 || n != 1 {
			t.Errorf("size %d: %d transfers, observed %d", size, len(l.Transfers()), n)
		}
	}
}

func TestLogConcurrently(t *testing.T) {
	l := NewLog(10, nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range int64(1000) {
				l.Add(Transfer{Step: i, Bytes: i})
				for _, x := range l.Transfers() {
					if x.Step != x.Bytes {
						t.Error("a torn record")
					}
				}
			}
		})
	}
	wg.Wait()
}
