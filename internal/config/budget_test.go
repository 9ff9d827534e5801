package config

import (
	"strings"
	"testing"
)

// divided returns the budget of a server with the defaults and what change sets.
func divided(memory int64, change func(*Config)) (Config, Budget) {
	var c Config
	c.Transport = Verbs
	if change != nil {
		change(&c)
	}
	c.FillDefaults()
	return c, c.Divide(memory, ForServer)
}

// TestDefaultsFitTheMemory: whatever the memory is, the parts together are not more, and each is useful.
func TestDefaultsFitTheMemory(t *testing.T) {
	for memory := 256 * mib; memory <= 2*tib; memory = memory * 3 / 2 {
		c, b := divided(memory, nil)
		if b.sum() > memory || b.Excess() != "" {
			t.Errorf("%s: %s", inMiB(memory), b.String())
		}
		if b.Common < memory/2 || b.Common < 2*c.ArenaLimit {
			t.Errorf("%s: %s for tensors and registered memory of %s", inMiB(memory), inMiB(b.Common), inMiB(2*c.ArenaLimit))
		}
		if c.Arena > c.ArenaLimit/2 || 2*c.MaxGraphBytes > b.Requests || c.KeptTotal > memory/2 {
			t.Errorf("%s: arena %d of %d, a graph of %d in %d bytes of requests", inMiB(memory), c.Arena, c.ArenaLimit, c.MaxGraphBytes, b.Requests)
		}
		if err := c.Validate(ForServer); err != nil {
			t.Errorf("%s: %v", inMiB(memory), err)
		}
	}
	if _, b := divided(16*gib, func(c *Config) { c.MaxGraphBytes = mib }); b.Requests != 256*mib {
		t.Errorf("%s for requests beside small graphs", inMiB(b.Requests))
	}
	c, b := divided(64*gib, nil)
	if c.ArenaLimit != gib || c.MaxGraphBytes != 512*mib || c.MaxWaitingBytes != 256*mib || b.Common < 50*gib {
		t.Errorf("a large machine has not the defaults, or little for tensors: %s", b.String())
	}
}

// TestWhatIsSetStaysAndIsWarnedAbout: a setting does not become smaller. When it breaks the sum, the sum and what to
// lower are in words.
func TestWhatIsSetStaysAndIsWarnedAbout(t *testing.T) {
	for key, set := range map[string]func(*Config) int64{
		"arena-limit":       func(c *Config) int64 { c.ArenaLimit = 2 * gib; return c.ArenaLimit },
		"max-graph-bytes":   func(c *Config) int64 { c.MaxGraphBytes = 500 * mib; return c.MaxGraphBytes },
		"max-waiting":       func(c *Config) int64 { c.MaxWaiting = 900_000; return int64(c.MaxWaiting) },
		"max-waiting-bytes": func(c *Config) int64 { c.MaxWaitingBytes = gib; return c.MaxWaitingBytes },
	} {
		var want int64
		c, b := divided(gib, func(c *Config) { want = set(c) })
		got := map[string]int64{"arena-limit": c.ArenaLimit, "max-graph-bytes": c.MaxGraphBytes, "max-waiting": int64(c.MaxWaiting), "max-waiting-bytes": c.MaxWaitingBytes}[key]
		if got != want {
			t.Errorf("%s is %d, was set to %d", key, got, want)
		}
		if advice := b.Excess(); !strings.Contains(advice, "lower "+key+",") {
			t.Errorf("%s: %q", key, advice)
		}
		if b.Common < gib/leastPart {
			t.Errorf("%s: %d bytes for tensors", key, b.Common)
		}
		if text := b.String(); !strings.Contains(text, "of 1024MiB") || !strings.Contains(text, "requests ") {
			t.Errorf("%s: %q", key, text)
		}
		if _, b := divided(64*gib, func(c *Config) { set(c) }); b.Excess() != "" {
			t.Errorf("%s does not fit a large machine: %s", key, b.String())
		}
	}
	c, _ := divided(gib, func(c *Config) { c.Arena = 256 * mib })
	if c.Arena != 256*mib || c.ArenaLimit < 2*c.Arena {
		t.Errorf("arena %d, arena-limit %d", c.Arena, c.ArenaLimit)
	}
}

// TestMemoryOfASetting replaces that of the host. Without either there are no limits beyond the settings.
func TestMemoryOfASetting(t *testing.T) {
	if _, b := divided(gib, func(c *Config) { c.Memory = 16 * gib }); b.Memory != 16*gib {
		t.Errorf("memory is %d", b.Memory)
	}
	c, b := divided(0, nil)
	if b.Common != 0 || b.Requests != 0 || c.ArenaLimit != gib {
		t.Errorf("%+v, arena-limit %d", b, c.ArenaLimit)
	}
	var client Config
	client.FillDefaults()
	if b := client.Divide(gib, ForClient); b.Common < gib*3/4 || b.Requests != 0 {
		t.Errorf("a client has %s", b.String())
	}
}
