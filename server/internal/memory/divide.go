package memory

import (
	"fmt"
	"strings"
)

// Limits are the settings that are shares of the memory, in bytes where nothing else is said. Divide lowers those
// that nobody has set, where they do not fit.
type Limits struct {
	Memory     int64 // what the process may use; 0: what Divide gets
	Server     bool  // the process answers requests
	Registered bool  // it registers memory

	Arena, ArenaLimit int64
	MaxWaiting        int // receives of one requester
	MaxWaitingBytes   int64
	MaxGraphBytes     int64
	KeptTotal         int64
	// Set has the keys of the settings that were set.
	Set map[string]bool
}

// Division divides the memory that a process may use, so that all that its limits allow fits at once. What has no
// part of its own is charged to Common before it is taken. The fields are bytes. A process whose memory is not
// known has a zero division: no limits beyond its settings.
type Division struct {
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

// Divide returns the parts of memory, in bytes; 0 when it is not known. Settings that nobody has set become smaller
// where their defaults do not fit. Those that were set stay, and Excess says when they do not fit.
func (l *Limits) Divide(memory int64) Division {
	if l.Memory != 0 {
		memory = l.Memory
	}
	b := Division{Memory: memory}
	if memory <= 0 {
		return Division{}
	}
	b.add("heap", min(memory/heapPart, heapMost), "")
	if l.Server {
		l.divideServer(&b)
	}
	registered := int64(0)
	if l.Registered {
		if !l.Set["arena-limit"] {
			l.ArenaLimit = max(min(l.ArenaLimit, memory/arenaPart/mib*mib), 2*mib)
			if l.Set["arena"] {
				l.ArenaLimit = max(l.ArenaLimit, 2*l.Arena)
			}
		}
		if !l.Set["arena"] {
			l.Arena = max(min(l.Arena, l.ArenaLimit/2/mib*mib), mib)
		}
		registered = 2 * l.ArenaLimit
	}
	b.Common = max(memory-b.Sum(), memory/leastPart)
	if l.Registered {
		b.add("registered memory (twice arena-limit)", registered, l.whenSet("arena-limit"))
	}
	b.add("tensors, at least", max(memory/leastPart, b.Common-registered), "")
	return b
}

func (l *Limits) divideServer(b *Division) {
	m := b.Memory
	if !l.Set["max-waiting"] {
		l.MaxWaiting = int(max(min(int64(l.MaxWaiting), m/waitingPart/WaitingRequesters/waitingRecord), leastWaiting))
	}
	if !l.Set["max-waiting-bytes"] {
		l.MaxWaitingBytes = max(min(l.MaxWaitingBytes, m/waitingPart/WaitingRequesters), 64*kib)
	}
	b.Requests = min(max(requestsOfGraph*l.MaxGraphBytes, requestsLeast), m/32*requestsOf)
	if !l.Set["max-graph-bytes"] {
		l.MaxGraphBytes = max(min(l.MaxGraphBytes, b.Requests/2/mib*mib), mib)
	}
	b.Requests = max(b.Requests, 2*l.MaxGraphBytes)
	if l.KeptTotal == 0 {
		l.KeptTotal = m / keptPart
	}
	b.Connections, b.Copies = min(m/connectionsPart, connectionsMost), min(m/copiesPart, copiesMost)
	b.Remembered = min(m/rememberedPart/WaitingRequesters/rememberedID, maxRememberedIDs)
	b.add("requests", b.Requests, l.whenSet("max-graph-bytes"))
	b.add("connections", b.Connections, "")
	b.add("copies in responses", b.Copies, "")
	b.add("waiting receives (4 times max-waiting)", WaitingRequesters*waitingRecord*int64(l.MaxWaiting), l.whenSet("max-waiting"))
	b.add("their keys (4 times max-waiting-bytes)", WaitingRequesters*l.MaxWaitingBytes, l.whenSet("max-waiting-bytes"))
	b.add("ids of receives that have ended", WaitingRequesters*rememberedID*b.Remembered, "")
}

// whenSet returns key if it was set.
func (l *Limits) whenSet(key string) string {
	if l.Set[key] {
		return key
	}
	return ""
}

func (b *Division) add(what string, bytes int64, key string) {
	b.parts = append(b.parts, share{what, bytes, key})
}

// Sum returns the bytes of all parts.
func (b *Division) Sum() (n int64) {
	for _, p := range b.parts {
		n += p.bytes
	}
	return n
}

// String is the sum of the parts in words.
func (b *Division) String() string {
	if b.Memory == 0 {
		return "the memory of this process is not known"
	}
	all := make([]string, len(b.parts))
	for i, p := range b.parts {
		all[i] = p.what + " " + inMiB(p.bytes)
	}
	return strings.Join(all, " + ") + " = " + inMiB(b.Sum()) + " of " + inMiB(b.Memory)
}

// Excess returns what to do when the settings allow more than the memory; "" when all fits.
func (b *Division) Excess() string {
	var keys []string
	for _, p := range b.parts {
		if p.key != "" {
			keys = append(keys, p.key)
		}
	}
	if b.Sum() <= b.Memory || len(keys) == 0 {
		return ""
	}
	return "lower " + strings.Join(keys, ", ") + ", or give the process more memory (setting memory)"
}

func inMiB(n int64) string { return fmt.Sprintf("%dMiB", n/mib) }
