package shm

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// DirError is the error of a device whose Options.Dir cannot be used. Errors of Open wrap it.
type DirError struct {
	Dir string
	Why string // what is wrong with it
}

func (e *DirError) Error() string {
	return fmt.Sprintf("the directory %q for sockets: %s", e.Dir, e.Why)
}

// Options configures New.
type Options struct {
	// Logger receives why a connection was refused or broken. Nil discards.
	Logger *slog.Logger
	// Dir is a directory for a socket that processes in other network namespaces reach, as a
	// volume that several containers mount. Its absolute path has at most 64
	// bytes. Empty: peers in the same network namespace only.
	Dir string
	// Trusted accepts peers of other users and user namespaces. Set it only if the exchange of
	// the endpoints proves who each peer is, as mutual TLS does.
	Trusted bool
	// Busy makes goroutines look for work of peers for longer before they sleep: 1 ms instead of
	// 30 µs.
	Busy bool
}

// Name is the name of the provider.
const Name = "shm"

// DeviceName is the name of its only device.
const DeviceName = "shm0"

// Provider implements verbs.Provider.
type Provider struct {
	system
	options  Options
	order    *order
	refused  atomic.Uint64 // Stats.Refused
	closing  atomic.Int64  // Stats.Closing
	dropTime time.Duration // how long a peer may keep memory that its owner closed
}

// New returns the provider of shared memory.
func New(o Options) *Provider {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Provider{system: newSystem(), options: o, order: new(order), dropTime: 10 * time.Second}
}

// Stats are numbers of all devices of a provider.
type Stats struct {
	// Refused counts the connections in which descriptors came without a proof. Since Linux 6.16 the
	// sender gets an error instead.
	Refused uint64
	// Closing is the number of connections and descriptors of others whose close has not ended.
	Closing int64
}

// Stats returns the present numbers.
func (p *Provider) Stats() Stats { return Stats{Refused: p.refused.Load(), Closing: p.closing.Load()} }

// Name implements verbs.Provider.
func (p *Provider) Name() string { return Name }
