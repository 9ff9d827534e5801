package verbstransport

import (
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	begin := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return begin.Add(d) }
	var a alarm
	if !a.set(after(time.Second)) || a.set(after(2*time.Second)) || !a.set(after(time.Millisecond)) {
		t.Error("it is set, not to be set later, and to be set earlier")
	}
	if wait := a.fires(after(2*time.Millisecond), false); wait != 0 || !a.at.IsZero() {
		t.Errorf("on time: %v, %+v", wait, a)
	}
	a.set(after(time.Second))
	if wait := a.fires(after(time.Minute), true); wait != 0 {
		t.Errorf("late, and all was read: %v", wait)
	}
	a.set(after(time.Second))
	if wait := a.fires(after(time.Minute), false); wait != lateTimer/2 {
		t.Errorf("late, and another goroutine polls: %v", wait)
	}
	// Events of other receives do not postpone it: overdue events come first.
	if a.set(after(time.Second)) {
		t.Error("what is overdue has brought forward the second time")
	}
	if wait := a.fires(after(time.Hour), false); wait != 0 {
		t.Errorf("late for the second time: %v", wait)
	}
	if !a.set(after(2 * time.Hour)) {
		t.Error("it cannot be set again")
	}
}

// TestMissingHelloIsLookedForAgain: in a process that was stopped, the timer fires before a HELLO
// that has come is read.
func TestMissingHelloIsLookedForAgain(t *testing.T) {
	p := &peer{}
	l := &link{patience: time.NewTimer(time.Hour), up: true}
	defer l.patience.Stop()
	l.hello.set(time.Now().Add(-time.Second))
	r := &peerRoute{peer: p}
	if r.noHello(l); !l.hello.delayed {
		t.Error("a link was given up by a timer that was a second late")
	}
	if r.noHello(l); l.hello.delayed {
		t.Error("it was looked for twice")
	}
}
