package config

import (
	"fmt"
	"strings"
)

// Budget divides the memory that a process may use, so that all that its limits allow fits at once. What has no
// part of its own is charged to Common before it is taken. The fields are bytes. A process whose memory is not
// known has a zero Budget: no limits beyond its settings.
type Budget struct {
	Memory int64 // what the process may use

	// Common is for tensors, registered memory, the messages of channels and the graphs of sessions.
	Common int64
	// Requests is for the gRPC requests under way of all callers, with the calls that wait.
	Requests int64
	// Connections is for the buffers of accepted gRPC connections.
	Connections int64
	// Copies is for the copied bytes among the responses that gRPC is writing, on all connections.
	Copies int64
	// Remembered is for the ids of receives that have ended, of each requester.
	Remembered int64

	parts []part
}

// part is a part of the memory.
type part struct {
	what  string
	bytes int64
	key   string // the setting that makes it so large, if one was set
}

// Divide returns the parts of memory, in bytes; 0 when it is not known. Settings that nobody has set become smaller
// where their defaults do not fit. Those that were set stay, and Excess says when they do not fit.
func (c *Config) Divide(memory int64, use Use) Budget {
	if c.Memory != 0 {
		memory = c.Memory
	}
	b, was := Budget{Memory: memory}, *c // a setting that becomes smaller looks like one of the program
	if memory <= 0 {
		return Budget{}
	}
	b.add("heap", min(memory/heapPart, heapMost), "")
	if use&ForServer != 0 {
		c.divideServer(&b, &was)
	}
	registered := int64(0)
	if c.Transport == Verbs {
		if c.isDefault("arena-limit") {
			c.ArenaLimit = max(min(c.ArenaLimit, memory/arenaPart/mib*mib), 2*mib)
			if !c.isDefault("arena") {
				c.ArenaLimit = max(c.ArenaLimit, 2*c.Arena)
			}
		}
		if c.isDefault("arena") {
			c.Arena = max(min(c.Arena, c.ArenaLimit/2/mib*mib), mib)
		}
		registered = 2 * c.ArenaLimit
	}
	b.Common = max(memory-b.sum(), memory/leastPart)
	if c.Transport == Verbs {
		b.add("registered memory (twice arena-limit)", registered, was.whenSet("arena-limit"))
	}
	b.add("tensors, at least", max(memory/leastPart, b.Common-registered), "")
	return b
}

func (c *Config) divideServer(b *Budget, was *Config) {
	m := b.Memory
	if c.isDefault("max-waiting") {
		c.MaxWaiting = int(max(min(int64(c.MaxWaiting), m/waitingPart/waitingRequesters/waitingRecord), leastWaiting))
	}
	if c.isDefault("max-waiting-bytes") {
		c.MaxWaitingBytes = max(min(c.MaxWaitingBytes, m/waitingPart/waitingRequesters), 64*kib)
	}
	b.Requests = min(max(requestsOfGraph*c.MaxGraphBytes, requestsLeast), m/32*requestsOf)
	if c.isDefault("max-graph-bytes") {
		c.MaxGraphBytes = max(min(c.MaxGraphBytes, b.Requests/2/mib*mib), mib)
	}
	b.Requests = max(b.Requests, 2*c.MaxGraphBytes)
	if c.KeptTotal == 0 {
		c.KeptTotal = m / keptPart
	}
	b.Connections, b.Copies = min(m/connectionsPart, connectionsMost), min(m/copiesPart, copiesMost)
	b.Remembered = min(m/rememberedPart/waitingRequesters/rememberedID, maxRememberedIDs)
	b.add("requests", b.Requests, was.whenSet("max-graph-bytes"))
	b.add("connections", b.Connections, "")
	b.add("copies in responses", b.Copies, "")
	b.add("waiting receives (4 times max-waiting)", waitingRequesters*waitingRecord*int64(c.MaxWaiting), was.whenSet("max-waiting"))
	b.add("their keys (4 times max-waiting-bytes)", waitingRequesters*c.MaxWaitingBytes, was.whenSet("max-waiting-bytes"))
	b.add("ids of receives that have ended", waitingRequesters*rememberedID*b.Remembered, "")
}

func (b *Budget) add(what string, bytes int64, key string) {
	b.parts = append(b.parts, part{what, bytes, key})
}

func (b *Budget) sum() (n int64) {
	for _, p := range b.parts {
		n += p.bytes
	}
	return n
}

// String is the sum of the parts in words.
func (b *Budget) String() string {
	if b.Memory == 0 {
		return "the memory of this process is not known"
	}
	all := make([]string, len(b.parts))
	for i, p := range b.parts {
		all[i] = p.what + " " + inMiB(p.bytes)
	}
	return strings.Join(all, " + ") + " = " + inMiB(b.sum()) + " of " + inMiB(b.Memory)
}

// Excess returns what to do when the settings allow more than the memory; "" when all fits.
func (b *Budget) Excess() string {
	var keys []string
	for _, p := range b.parts {
		if p.key != "" {
			keys = append(keys, p.key)
		}
	}
	if b.sum() <= b.Memory || len(keys) == 0 {
		return ""
	}
	return "lower " + strings.Join(keys, ", ") + ", or give the process more memory (setting memory)"
}

func inMiB(n int64) string { return fmt.Sprintf("%dMiB", n/mib) }

// isDefault reports whether no source has set a setting.
func (c *Config) isDefault(key string) bool { return c.Source(key).Kind == FromDefault }

// whenSet returns key if some source has set it.
func (c *Config) whenSet(key string) string {
	if c.isDefault(key) {
		return ""
	}
	return key
}
