package verbstransport

import "time"

// alarm is when a machine is to be told the time. It is a value; its owner has a timer
// and a lock around it.
type alarm struct {
	at     time.Time // when the timer is due; zero when it is not set
	second bool      // it was late: now it is due when who polls has had a moment, whatever comes
}

// set reports whether the timer is to be set to at, for it is not set, or later.
func (a *alarm) set(at time.Time) bool {
	if a.second || !a.at.IsZero() && !a.at.After(at) {
		return false
	}
	a.at = at
	return true
}

// rings is the event that the timer is due. looked says that all that had completed has
// been told since. It reports how long the timer is to wait before the machine is told: in
// a process that was stopped it is due before what came meanwhile has been read, and where
// somebody polls, that one reads it. 0 is now.
func (a *alarm) rings(now time.Time, looked bool) (wait time.Duration) {
	late := !a.at.IsZero() && now.Sub(a.at) > lateBy
	if *a = (alarm{second: late && !looked && !a.second}); a.second {
		a.at = now.Add(lateBy / 2)
		return lateBy / 2
	}
	return 0
}
