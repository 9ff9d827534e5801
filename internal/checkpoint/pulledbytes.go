package checkpoint

import (
	"maps"
	"sync"
	"sync/atomic"
)

// pulledBytes counts what was handed to the transport for pulls, by the name of the publication. It has at most
// maxPulledNames names: names are given by who publishes, never by a stranger, but a program may use a new one for each
// version of its content. When there is no room, the counts of names that are not published and not pulled any more are
// added to one for all others. The zero value is ready for use.
type pulledBytes struct {
	others atomic.Int64

	mu sync.Mutex // guards what follows
	of map[string]*pulledCount
}

type pulledCount struct {
	bytes atomic.Int64
	pulls int // under way
}

// begin returns the count for a pull of a name, and what the pull calls at its end. published reports whether a name is
// published.
func (p *pulledBytes) begin(name string, published func(string) bool) (bytes *atomic.Int64, end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of[name]
	if one == nil {
		if len(p.of) >= maxPulledNames {
			p.forgetLocked(published)
		}
		if len(p.of) >= maxPulledNames {
			return &p.others, func() {}
		}
		if p.of == nil {
			p.of = make(map[string]*pulledCount)
		}
		one = new(pulledCount)
		p.of[name] = one
	}
	one.pulls++
	return &one.bytes, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		one.pulls--
	}
}

// forgetLocked makes room for new names.
func (p *pulledBytes) forgetLocked(published func(string) bool) {
	maps.DeleteFunc(p.of, func(name string, one *pulledCount) bool {
		if one.pulls > 0 || published(name) {
			return false
		}
		p.others.Add(one.bytes.Load())
		return true
	})
}

// PulledBytes calls f with the bytes of each publication that were handed to the transport for pulls, and returns
// those of all others.
func (c *Catalog) PulledBytes(f func(publication string, bytes int64)) (others int64) {
	p := &c.pulled
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, one := range p.of {
		f(name, one.bytes.Load())
	}
	return p.others.Load()
}

// publishes reports whether a name is published.
func (c *Catalog) publishes(name string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.publications[name] != nil
}
