package grpctransport

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/identity"
)

// callers is what the callers of one connection have proven. It is found out once, by the first call.
type callers struct {
	once sync.Once // sets what follows
	identity.Identity
	share  string // transport.Caller
	covers func(cluster.Place) error
}

func (c *callers) find(ctx context.Context) *callers {
	c.once.Do(func() {
		c.Identity = identity.Of(ctx)
		if c.Proven {
			c.covers, c.share = c.CheckReceiver, c.String()
		}
		if c.share == "" {
			c.share = identity.Address(ctx)
		}
	})
	return c
}

// callersOf returns what the caller of ctx's call has proven.
func callersOf(ctx context.Context) *callers {
	if c := connectionOf(ctx); c != nil {
		return c.callers.find(ctx)
	}
	return new(callers).find(ctx)
}
