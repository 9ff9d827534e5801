package worker

// own notes that a step belongs to a session until its cleanup. A master that dies sends none: then
// the step ends with the session.
func (m *sessions) own(step int64, s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps[step] = s
}

// endStep forgets a step that is cleaned up, and ends its partial run.
func (m *sessions) endStep(step int64) {
	m.mu.Lock()
	s := m.steps[step]
	delete(m.steps, step)
	m.mu.Unlock()
	if s == nil {
		return
	}
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
	for step, of := range m.steps {
		if of == s {
			left = append(left, step)
		}
	}
	m.mu.Unlock()
	for _, step := range left {
		m.cleanUp(step)
	}
}
