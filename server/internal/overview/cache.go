package overview

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// Cache has the last snapshot, encoded. All clients share it, so however many ask, one snapshot is taken in each fresh.
type Cache struct {
	Take func() *statusapi.Status
	// Changed returns when something happened of which readers are to know at once; nil if that is never.
	Changed func() time.Time

	mu          sync.Mutex // guards what follows; held while a snapshot is taken, so that others wait for it
	at          time.Time
	full, event []byte
}

// Encoded is a snapshot as JSON. Nobody may change it.
type Encoded struct {
	Full  []byte // with the history
	Event []byte // without
}

// Get returns a snapshot that is not older than fresh.
func (c *Cache) Get() (Encoded, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.full != nil && now.Sub(c.at) < fresh && (c.Changed == nil || c.Changed().Before(c.at)) {
		return Encoded{c.full, c.event}, nil
	}
	s := c.Take()
	history := s.History
	s.History = nil
	event, err := json.Marshal(s)
	if err != nil {
		return Encoded{}, err
	}
	full := event
	if history != nil {
		more, err := json.Marshal(history)
		if err != nil {
			return Encoded{}, err
		}
		full = slices.Concat(event[:len(event)-1], []byte(`,"history":`), more, []byte("}"))
	}
	c.full, c.event, c.at = full, event, now
	return Encoded{full, event}, nil
}
