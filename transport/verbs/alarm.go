package verbstransport

import "time"

// alarm decides when a timer reports the time to a state machine. It is pure: its owner has
// the timer and a lock.
type alarm struct {
	at      time.Time // when the timer is due; zero when it is not set
	delayed bool      // the timer was late and is set once more; at does not change until it fires
}

// set reports whether the caller has to set the timer to at: it is not set, or set to a later
// time.
func (a *alarm) set(at time.Time) bool {
	if a.delayed || !a.at.IsZero() && !a.at.After(at) {
		return false
	}
	a.at = at
	return true
}

// fires is called when the timer fires. polled says that all completions until then have been
// handled. fires returns how long to wait before the time is reported to the machine; 0 is
// now. In a process that was stopped, the timer may fire before the messages that arrived
// meanwhile are read, so a late timer waits once for the polling goroutine to read them.
func (a *alarm) fires(now time.Time, polled bool) (wait time.Duration) {
	late := !a.at.IsZero() && now.Sub(a.at) > lateTimer
	if *a = (alarm{delayed: late && !polled && !a.delayed}); a.delayed {
		a.at = now.Add(lateTimer / 2)
		return lateTimer / 2
	}
	return 0
}
