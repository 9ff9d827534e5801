package server

import (
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server/internal/memory"
)

// division divides the memory that a process may use, so that all that its limits allow fits at once. What has no
// part of its own is charged to Common before it is taken. The fields are bytes. A process whose memory is not
// known has a zero division: no limits beyond its settings.
type division struct {
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

	parts []share
}

// share is a part of the memory.
type share struct {
	what  string
	bytes int64
	key   string // the setting that makes it so large, if one was set
}

// divide returns the parts of memory, in bytes; 0 when it is not known. Settings that nobody has set become smaller
// where their defaults do not fit. Those that were set stay, and excess says when they do not fit.
func (c *complete) divide(memory int64, use config.Use) division {
	if c.Memory != 0 {
		memory = c.Memory
	}
	b := division{Memory: memory}
	if memory <= 0 {
		return division{}
	}
	b.add("heap", min(memory/heapPart, heapMost), "")
	if use&config.ForServer != 0 {
		c.divideServer(&b)
	}
	registered := int64(0)
	if c.Transport == TransportVerbs {
		if !c.set["arena-limit"] {
			c.RDMA.ArenaLimit = max(min(c.RDMA.ArenaLimit, memory/arenaPart/mib*mib), 2*mib)
			if c.set["arena"] {
				c.RDMA.ArenaLimit = max(c.RDMA.ArenaLimit, 2*c.RDMA.Arena)
			}
		}
		if !c.set["arena"] {
			c.RDMA.Arena = max(min(c.RDMA.Arena, c.RDMA.ArenaLimit/2/mib*mib), mib)
		}
		registered = 2 * c.RDMA.ArenaLimit
	}
	b.Common = max(memory-b.sum(), memory/leastPart)
	if c.Transport == TransportVerbs {
		b.add("registered memory (twice arena-limit)", registered, c.whenSet("arena-limit"))
	}
	b.add("tensors, at least", max(memory/leastPart, b.Common-registered), "")
	return b
}

func (c *complete) divideServer(b *division) {
	m := b.Memory
	if !c.set["max-waiting"] {
		c.Limits.MaxWaiting = int(max(min(int64(c.Limits.MaxWaiting), m/waitingPart/waitingRequesters/waitingRecord), leastWaiting))
	}
	if !c.set["max-waiting-bytes"] {
		c.Limits.MaxWaitingBytes = max(min(c.Limits.MaxWaitingBytes, m/waitingPart/waitingRequesters), 64*kib)
	}
	b.Requests = min(max(requestsOfGraph*c.Graphs.MaxGraphBytes, requestsLeast), m/32*requestsOf)
	if !c.set["max-graph-bytes"] {
		c.Graphs.MaxGraphBytes = max(min(c.Graphs.MaxGraphBytes, b.Requests/2/mib*mib), mib)
	}
	b.Requests = max(b.Requests, 2*c.Graphs.MaxGraphBytes)
	if c.Limits.KeptTotal == 0 {
		c.Limits.KeptTotal = m / keptPart
	}
	b.Connections, b.Copies = min(m/connectionsPart, connectionsMost), min(m/copiesPart, copiesMost)
	b.Remembered = min(m/rememberedPart/waitingRequesters/rememberedID, maxRememberedIDs)
	b.add("requests", b.Requests, c.whenSet("max-graph-bytes"))
	b.add("connections", b.Connections, "")
	b.add("copies in responses", b.Copies, "")
	b.add("waiting receives (4 times max-waiting)", waitingRequesters*waitingRecord*int64(c.Limits.MaxWaiting), c.whenSet("max-waiting"))
	b.add("their keys (4 times max-waiting-bytes)", waitingRequesters*c.Limits.MaxWaitingBytes, c.whenSet("max-waiting-bytes"))
	b.add("ids of receives that have ended", waitingRequesters*rememberedID*b.Remembered, "")
}

func (b *division) add(what string, bytes int64, key string) {
	b.parts = append(b.parts, share{what, bytes, key})
}

func (b *division) sum() (n int64) {
	for _, p := range b.parts {
		n += p.bytes
	}
	return n
}

// String is the sum of the parts in words.
func (b *division) String() string {
	if b.Memory == 0 {
		return "the memory of this process is not known"
	}
	all := make([]string, len(b.parts))
	for i, p := range b.parts {
		all[i] = p.what + " " + inMiB(p.bytes)
	}
	return strings.Join(all, " + ") + " = " + inMiB(b.sum()) + " of " + inMiB(b.Memory)
}

// excess returns what to do when the settings allow more than the memory; "" when all fits.
func (b *division) excess() string {
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

// whenSet returns key if it was set.
func (c *complete) whenSet(key string) string {
	if c.set[key] {
		return key
	}
	return ""
}

// processMemory returns how many bytes this process may use, when no setting says so; 0 when nothing tells.
func (o *Options) processMemory(setting int64) int64 {
	if o.memory != 0 || setting != 0 {
		return o.memory
	}
	return memory.OfProcess(o.memoryOfGroup, o.Logger)
}
