package worker

import "time"

// ownedStep is a step that a session runs or has run, until its cleanup.
type ownedStep struct {
	session *session
	timer   *time.Timer // cleans it up; nil unless its master has cancelled it
}

// own notes that a step belongs to a session until its cleanup. A master that dies sends none: then
// the step ends with the session, or when it is abandoned.
func (m *sessions) own(step int64, s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.steps[step]; o != nil {
		o.session = s
		return
	}
	m.steps[step] = &ownedStep{session: s}
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
		if m.enter() == nil { // else close cleans it up
			m.cleanUp(step)
			m.open.Done()
		}
	})
}

// endStep forgets a step that is cleaned up, and ends its partial run.
func (m *sessions) endStep(step int64) {
	m.mu.Lock()
	o := m.steps[step]
	delete(m.steps, step)
	m.mu.Unlock()
	if o == nil {
		return
	}
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
