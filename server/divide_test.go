package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server/internal/memory"
)

const (
	mib int64 = 1 << 20
	gib int64 = 1 << 30
)

func inMiB(n int64) string { return fmt.Sprintf("%dMiB", n/mib) }

// divided returns the complete settings of a server and the parts of its memory, with the defaults and what change
// sets.
func divided(t *testing.T, bytes int64, change func(*complete)) (complete, memory.Division) {
	t.Helper()
	given := complete{Config: Config{Transport: TransportVerbs}}
	if change != nil {
		change(&given)
	}
	c, err := given.check(config.ForServer, given.Graphs)
	if err != nil {
		t.Fatal(err)
	}
	parts := c.divide(bytes, config.ForServer)
	return c, parts
}

// TestDefaultsFitTheMemory: whatever the memory is, the parts together are not more, and each is useful.
func TestDefaultsFitTheMemory(t *testing.T) {
	for memory := 256 * mib; memory <= 2048*gib; memory = memory * 3 / 2 {
		c, b := divided(t, memory, nil)
		if b.Sum() > memory || b.Excess() != "" {
			t.Errorf("%s: %s", inMiB(memory), b.String())
		}
		if b.Common < memory/2 || b.Common < 2*c.RDMA.ArenaLimit {
			t.Errorf("%s: %s for tensors and registered memory of %s", inMiB(memory), inMiB(b.Common), inMiB(2*c.RDMA.ArenaLimit))
		}
		if c.RDMA.Arena > c.RDMA.ArenaLimit/2 || 2*c.Graphs.MaxGraphBytes > b.Requests || c.Limits.KeptTotal > memory/2 {
			t.Errorf("%s: arena %d of %d, a graph of %d in %d bytes of requests", inMiB(memory), c.RDMA.Arena, c.RDMA.ArenaLimit, c.Graphs.MaxGraphBytes, b.Requests)
		}
		if err := config.Bind(&c.Config, &c.Graphs).Validate(config.ForServer, nil); err != nil {
			t.Errorf("%s: %v", inMiB(memory), err)
		}
	}
	if _, b := divided(t, 16*gib, func(c *complete) { c.Graphs.MaxGraphBytes = mib }); b.Requests != 256*mib {
		t.Errorf("%s for requests beside small graphs", inMiB(b.Requests))
	}
	c, b := divided(t, 64*gib, nil)
	if c.RDMA.ArenaLimit != gib || c.Graphs.MaxGraphBytes != 512*mib || c.Limits.MaxWaitingBytes != 256*mib || b.Common < 50*gib {
		t.Errorf("a large machine has not the defaults, or little for tensors: %s", b.String())
	}
}

// TestWhatIsSetStaysAndIsWarnedAbout: a setting does not become smaller. When it breaks the sum, the sum and what to
// lower are in words.
func TestWhatIsSetStaysAndIsWarnedAbout(t *testing.T) {
	for key, set := range map[string]func(*complete) int64{
		"arena-limit":       func(c *complete) int64 { c.RDMA.ArenaLimit = 2 * gib; return c.RDMA.ArenaLimit },
		"max-graph-bytes":   func(c *complete) int64 { c.Graphs.MaxGraphBytes = 500 * mib; return c.Graphs.MaxGraphBytes },
		"max-waiting":       func(c *complete) int64 { c.Limits.MaxWaiting = 900_000; return int64(c.Limits.MaxWaiting) },
		"max-waiting-bytes": func(c *complete) int64 { c.Limits.MaxWaitingBytes = gib; return c.Limits.MaxWaitingBytes },
	} {
		var want int64
		c, b := divided(t, gib, func(c *complete) { want = set(c) })
		got := map[string]int64{"arena-limit": c.RDMA.ArenaLimit, "max-graph-bytes": c.Graphs.MaxGraphBytes, "max-waiting": int64(c.Limits.MaxWaiting), "max-waiting-bytes": c.Limits.MaxWaitingBytes}[key]
		if got != want {
			t.Errorf("%s is %d, was set to %d", key, got, want)
		}
		if advice := b.Excess(); !strings.Contains(advice, "lower "+key+",") {
			t.Errorf("%s: %q", key, advice)
		}
		if b.Common < gib/8 {
			t.Errorf("%s: %d bytes for tensors", key, b.Common)
		}
		if text := b.String(); !strings.Contains(text, "of 1024MiB") || !strings.Contains(text, "requests ") {
			t.Errorf("%s: %q", key, text)
		}
		if _, b := divided(t, 64*gib, func(c *complete) { set(c) }); b.Excess() != "" {
			t.Errorf("%s does not fit a large machine: %s", key, b.String())
		}
	}
	c, _ := divided(t, gib, func(c *complete) { c.RDMA.Arena = 256 * mib })
	if c.RDMA.Arena != 256*mib || c.RDMA.ArenaLimit < 2*c.RDMA.Arena {
		t.Errorf("arena %d, arena-limit %d", c.RDMA.Arena, c.RDMA.ArenaLimit)
	}
}

// TestMemoryOfASetting replaces that of the host. Without either there are no limits beyond the settings.
func TestMemoryOfASetting(t *testing.T) {
	if _, b := divided(t, gib, func(c *complete) { c.Memory = 16 * gib }); b.Memory != 16*gib {
		t.Errorf("memory is %d", b.Memory)
	}
	c, b := divided(t, 0, nil)
	if b.Common != 0 || b.Requests != 0 || c.RDMA.ArenaLimit != gib {
		t.Errorf("%+v, arena-limit %d", b, c.RDMA.ArenaLimit)
	}
	client, err := Config{}.check(config.ForClient, GraphLimits{})
	if err != nil {
		t.Fatal(err)
	}
	if b := client.divide(gib, config.ForClient); b.Common < gib*3/4 || b.Requests != 0 {
		t.Errorf("a client has %s", b.String())
	}
}
