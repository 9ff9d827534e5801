package verbstransport

import (
	"log/slog"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// The limits of this package, with their reasons. The exported ones are defaults of Options.
const (
	// DefaultWindow is the number of receives posted on a rail. It covers the messages that
	// arrive while a batch of completions is handled. Each takes 12 KiB.
	DefaultWindow = 128
	// DefaultSendQueue is the number of work requests that a send queue holds: a window of
	// messages, and as many writes.
	DefaultSendQueue = 256
	// DefaultEagerLimit is the largest content, in bytes, that travels within a message. Up
	// to this size a copy costs less than a second round trip and a signalled write.
	DefaultEagerLimit = 8 << 10
	// maxInline is the inline size that is requested for each queue pair, in bytes: most
	// messages without content fit into it.
	maxInline = 256
	// messageOverhead is the space for what a message has beside its content, in bytes:
	// header, piggybacked ids, and 254 dimensions.
	messageOverhead = 4 << 10
	// drainTime bounds the wait for posted work requests to complete when a channel is left
	// (ARCHITECTURE.md section 6, rule b).
	drainTime = time.Second
	// sharedChunk is the size in bytes of a write of a long content over shared memory, which is copied
	// in long slices from there on (verbs/shm). A small message behind four of them waits for 1 ms.
	sharedChunk = 4 << 20
	// ackBytes is the size of received content from which on acknowledgements are sent
	// without waiting for the next request (PROTOCOL.md section 8.4). It is lower than for
	// gRPC: the peer holds registered memory, and a message costs less than a call.
	ackBytes = 1 << 20
	// lateTimer is the delay of a timer that shows that this process was stopped meanwhile.
	lateTimer = 100 * time.Millisecond
	// causeTime bounds the wait for the cause of flushed completions. The device reports it
	// by an asynchronous event, which takes a wake-up.
	causeTime = 20 * time.Millisecond
	// detourWait is how long receives wait for a channel over another device, when that which
	// carried them has ended, before they take gRPC. Making a channel takes two round trips.
	detourWait = 5 * time.Second
	// firstWait is how long receives wait for the first channel to a peer that answers calls: some
	// round trips of gRPC, also on a busy host. A peer that none can be made to costs it once.
	firstWait = 2 * time.Second
	// firstWaitOptional is firstWait where nobody has asked for verbs: a path that takes nothing but HTTP/2 must not
	// make the first values later than this. A channel that comes up later carries the next ones.
	firstWaitOptional = time.Second
	// helloPatience is how long the first message of a channel may take while no channel to the
	// peer is up and another device may reach it. It is less than detourWait, so that receives
	// wait for the next route. handshake.HelloWait counts otherwise.
	helloPatience = 3 * time.Second
	// movedWait is how long receives wait for the better channel when the peer has it up already,
	// before they try the present one again: the peer's HELLO is under way, or has been lost.
	movedWait = 50 * time.Millisecond
	// usedInterval is the least time between two reports to the router that receives begin.
	usedInterval = time.Second
	// sweepInterval is the time between two checks of idle and quarantined memory, while there
	// is any.
	sweepInterval = time.Second
	// awaitInterval is the time between two checks why there is no channel yet.
	awaitInterval = 20 * time.Millisecond
	// probeBreaks is the number of broken channels after which Await and Probe return. One
	// may be due to a restart of the peer.
	probeBreaks = 2
	// probeBytes is the size of what Probe sends: several packets of the largest path MTU,
	// which is 4096 bytes.
	probeBytes = 24 << 10
	// keySlots is the number of request keys that a channel caches, at about 300 bytes each.
	// It covers the keys of one step of a usual program.
	keySlots = 64
	// maxUnverified bounds the links to peers without an address that have not received
	// HELLO. Any host that reaches the port can request them, and each takes some MiB of
	// locked memory for up to handshake.HelloWait. When many clients start at once, their
	// channels are made in turn, and they use gRPC until then.
	maxUnverified = 256
	// maxUnverifiedPerAddress bounds them for one address. It allows for a host that
	// starts many clients at once.
	maxUnverifiedPerAddress = 64
	// maxPeers bounds the records of peers without an address in the cluster, and maxPeersPerAddress those
	// of one address. A server has channels to fewer peers than that.
	maxPeers           = 10_000
	maxPeersPerAddress = 1000
)

// ChannelMemory is the registered memory for the messages of one channel, in bytes. The
// pools for contents are separate.
func (o Options) ChannelMemory() uint64 {
	o.setDefaults()
	return uint64(max(1, o.Rails)*(o.Window+o.SendQueue)) * uint64(o.messageSize()) //nolint:gosec // not negative
}

// setDefaults sets the sizes that are 0 to their defaults.
func (o *Options) setDefaults() {
	for _, f := range []struct {
		field *int
		value int
	}{{&o.Window, DefaultWindow}, {&o.SendQueue, DefaultSendQueue}, {&o.EagerLimit, DefaultEagerLimit}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
}

// complete sets defaults and checks the options.
func (o *Options) complete() error {
	if o.Allocator == nil {
		o.Allocator = tensor.Heap{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.setDefaults()
	if o.Backoff == 0 {
		o.Backoff = handshake.MinBackoff
	}
	if o.EagerLimit < 0 || o.messageSize() > channel.MaxMessage {
		return status.Errorf(status.InvalidArgument, "the eager limit is %d bytes; it must be 1 to %d", o.EagerLimit, channel.MaxMessage-messageOverhead)
	}
	return nil
}

// checkLimits returns an error if the device does not support the queues of a channel, so
// that the failure comes at start and not with each peer.
func (o *Options) checkLimits(d verbs.DeviceInfo, rails int) error {
	for _, l := range []struct {
		what        string
		want, limit int
	}{
		{"work requests in a send queue", o.SendQueue + 1, d.Limits.SendWR},
		{"receives on a queue pair", o.Window, d.Limits.RecvWR},
		{"entries in a completion queue", rails * (o.Window + o.SendQueue + 1), d.Limits.CQEntries},
	} {
		if l.limit > 0 && l.want > l.limit { // 0: unknown
			return status.Errorf(status.InvalidArgument, "%s supports %d %s, and %d are needed: lower the setting rdma.queue-depth or rdma.queue-pairs", d.Name, l.limit, l.what, l.want)
		}
	}
	return nil
}

// maxFacts bounds the facts of an outage that are remembered.
const maxFacts = 16

// shortChannels is how many channels in a row have to break within handshake.Steady for a warning.
const shortChannels = 4

// doubtTime is how long a link checks a peer whose connection has ended: until it has probed it, at
// the latest a second after the last contact (channel's probeAfter).
const doubtTime = time.Second
