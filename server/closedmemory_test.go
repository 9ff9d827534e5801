package server

import (
	"context"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestClosedProcessKeepsNoMemory: what the pool of a Client or Server keeps for the next tensors
// goes back at Close. A program may make a client for each pull.
func TestClosedProcessKeepsNoMemory(t *testing.T) {
	s := publisher(t, "127.0.0.1:0", checkpointFile(t, false))
	c, err := Dial(t.Context(), Config{}, s.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for x, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
	}
	for what, p := range map[string]struct {
		allocator tensor.Allocator
		close     func(context.Context) error
	}{"client": {c.allocator, c.Close}, "server": {s.allocator, s.Close}} {
		pool, ok := p.allocator.(*tensor.Pool)
		if !ok {
			t.Fatalf("the %s has a %T", what, p.allocator)
		}
		if n := pool.Stats(); n.Kept+n.InUse == 0 {
			t.Fatalf("the %s has no memory after a pull", what)
		}
		if err := p.close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := pool.Stats(); n.Kept+n.InUse != 0 {
			t.Errorf("the closed %s keeps %d bytes and uses %d", what, n.Kept, n.InUse)
		}
	}
}
