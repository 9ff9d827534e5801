package worker

import (
	"container/list"
	"time"
)

// checkStep refuses a step id that no master draws. The negative ones are steps of the ledger for the
// buffers of collective operations (collective): their end would end these, in Groups for ever.
func checkStep(method string, step int64) error {
	if step < 0 {
		return invalid("%s: step_id %d is negative; such ids are those of collective operations, and a step needs another one", method, step)
	}
	return nil
}

// ownedStep is a step that a session runs or has run, until its cleanup.
type ownedStep struct {
	session *session
	timer   *time.Timer   // cleans it up; nil unless its master has cancelled it
	runs    int           // that are under way
	since   time.Time     // when the first of them began
	rested  *list.Element // of session.rested; nil while it runs
}

// own notes that a step, which begins to run, belongs to a session until its cleanup; rest must follow.
// A master that dies sends no cleanup: then the step ends with the session, or when it is abandoned.
func (m *sessions) own(step int64, s *session) *ownedStep {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.steps[step]
	if o == nil {
		o = new(ownedStep)
		m.steps[step] = o
	}
	o.stir()
	o.session = s
	if o.runs == 0 {
		o.since = time.Now()
	}
	o.runs++
	return o
}

// stir takes a step out of those that do not run.
func (o *ownedStep) stir() {
	if o.rested != nil {
		o.session.rested.Remove(o.rested)
		o.rested = nil
	}
}

// rest ends a run of a step. A step that has run holds its values until its cleanup. A master that
// sends none must not collect steps without bound, so the oldest one makes room.
func (m *sessions) rest(step int64, o *ownedStep) {
	oldest, over := int64(0), false
	m.mu.Lock()
	o.runs--
	if o.runs == 0 && m.steps[step] == o {
		rested := &o.session.rested
		o.rested = rested.PushBack(step)
		if over = rested.Len() > max(maxRested, o.session.limits.Steps); over {
			oldest = rested.Front().Value.(int64) //nolint:forcetypeassert,errcheck // it has nothing else
		}
	}
	m.mu.Unlock()
	if over {
		m.cleanUp(oldest)
	}
}

// abandon cleans up a step after abandonedAfter, unless its master does so before. The master has
// cancelled the step, or is gone.
func (m *sessions) abandon(step int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.steps[step]
	if o == nil || o.timer != nil || m.over {
		return
	}
	o.timer = time.AfterFunc(abandonedAfter, func() {
		if m.enter() == nil { // after close, close cleans up
			m.cleanUp(step)
			m.open.Done()
		}
	})
}

// endStep forgets a step that is cleaned up, and ends its partial run.
func (m *sessions) endStep(step int64) {
	m.mu.Lock()
	o := m.steps[step]
	if o == nil {
		m.mu.Unlock()
		return
	}
	delete(m.steps, step)
	o.stir()
	m.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
	}
	s := o.session
	s.mu.Lock()
	p := s.partial[step]
	s.mu.Unlock()
	if p != nil {
		p.cancel(nil)
		s.endPartial(step, p)
	}
}

// cleanUpAll ends the steps that a session leaves.
func (m *sessions) cleanUpAll(s *session) {
	var left []int64
	m.mu.Lock()
	for step, o := range m.steps {
		if o.session == s {
			left = append(left, step)
		}
	}
	m.mu.Unlock()
	for _, step := range left {
		m.cleanUp(step)
	}
}
