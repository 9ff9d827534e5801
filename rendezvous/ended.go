package rendezvous

import "sync"

// endSignal is closed when a step ends. It is made by the first Done, since most steps have none.
type endSignal struct {
	once sync.Once
	c    chan struct{}
}

func (s *endSignal) close() { s.once.Do(func() { close(s.c) }) }

// Done returns a channel that is closed when the step is aborted or ends. Err then returns the
// reason, also to callbacks that have not run yet.
func (l *Local) Done() <-chan struct{} {
	s := l.ended.Load()
	if s == nil {
		l.ended.CompareAndSwap(nil, &endSignal{c: make(chan struct{})})
		s = l.ended.Load()
	}
	// Abort sets aborted before it looks for the signal, so one of the two closes it.
	if l.aborted.Load() != nil {
		s.close()
	}
	return s.c
}

// signalEnd closes the channel of Done if there is one.
func (l *Local) signalEnd() {
	if s := l.ended.Load(); s != nil {
		s.close()
	}
}

// Done is Local.Done.
func (b *BaseRemote) Done() <-chan struct{} { return b.local.Done() }
