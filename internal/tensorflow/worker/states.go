package worker

import (
	"cmp"
	"slices"
	"time"
)

// SessionState is a session of a master, and what it runs.
type SessionState struct {
	Handle string // empty: the one of masters that make none
	Master string // the task that has made it; empty if it did not say
	Task   string // the name of this process in it
	Graphs int
	// Running are the steps that run, the oldest first.
	Running []RunningStep
}

// RunningStep is a step that runs graphs here.
type RunningStep struct {
	Step  int64
	Since time.Time
}

// SessionStates returns the sessions, those with the oldest running step first. The one of masters that make none is
// among them if it has graphs.
func (w *Worker) SessionStates() []SessionState {
	if w.sessions == nil {
		return nil
	}
	return w.sessions.states()
}

func (m *sessions) states() []SessionState {
	m.mu.Lock()
	defer m.mu.Unlock()
	running := make(map[*session][]RunningStep)
	for id, o := range m.steps {
		if o.runs > 0 {
			running[o.session] = append(running[o.session], RunningStep{id, o.since})
		}
	}
	master := make(map[*session]string)
	for name, of := range m.masters {
		for s := range of {
			master[s] = name
		}
	}
	var all []SessionState
	for _, s := range append(values(m.byHandle), m.legacy) {
		s.mu.Lock()
		one := SessionState{Handle: s.handle, Master: master[s], Task: s.place.Task.String(), Graphs: len(s.graphs), Running: running[s]}
		s.mu.Unlock()
		if s == m.legacy && one.Graphs == 0 && len(one.Running) == 0 {
			continue
		}
		slices.SortFunc(one.Running, func(a, b RunningStep) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Step, b.Step)) })
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b SessionState) int {
		switch {
		case len(a.Running) > 0 && len(b.Running) > 0:
			return a.Running[0].Since.Compare(b.Running[0].Since)
		case len(a.Running)+len(b.Running) > 0:
			return len(b.Running) - len(a.Running)
		}
		return cmp.Compare(a.Handle, b.Handle)
	})
	return all
}
