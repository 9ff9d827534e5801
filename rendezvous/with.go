package rendezvous

import (
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
)

// with reports whether something of the step is under way with another task (Manager.AbortWith).
func (b *BaseRemote) with(task cluster.Task) bool {
	name := task.String()
	is := func(text string) bool {
		if !strings.Contains(text, name) { // most keys are of other tasks
			return false
		}
		key, err := ParseKey(text)
		return err == nil && (key.src.Task == task || key.dst.Task == task)
	}
	found := false
	b.local.each(func(s *shard) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.eachLocked(func(e *entry) { found = found || is(e.key) })
	})
	return found || b.bounds.Load().with(task) || b.waitsWith(task, is)
}

// waitsWith reports whether a receive from the task, or a deferred one of it, is under way.
func (b *BaseRemote) waitsWith(task cluster.Task, is func(key string) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := b.remote.Front(); at != nil; at = at.Next() {
		if r, _ := at.Value.(*remoteRecv); is(r.key) {
			return true
		}
	}
	for at := b.deferred.Front(); at != nil; at = at.Next() {
		if d, _ := at.Value.(*deferredRecv); d.key.dst.Task == task {
			return true
		}
	}
	return false
}

// with reports whether a task does not have all that SendWait has sent to it, or is to send.
func (b *bounds) with(task cluster.Task) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[task]
	return a != nil && a.bytes+int64(a.waiting.Len()) > 0
}
