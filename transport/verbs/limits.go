package verbstransport

import (
	"log/slog"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport/internal/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
	"github.com/tryst-rdma/tryst/verbs"
)

// The numbers of this package, with their reasons. Those that an operator may
// change are defaults of Options.
const (
	// DefaultWindow is how many receives are posted for a peer: as many
	// messages as arrive while a batch of completions is taken, at 12 KiB each.
	DefaultWindow = 128
	// DefaultSendQueue is how many work requests a send queue holds: a window of
	// messages, and the writes beside it.
	DefaultSendQueue = 256
	// DefaultEagerLimit is the largest content that travels in a message: up to
	// there a copy costs less than a second round trip and a signalled write.
	DefaultEagerLimit = 8 << 10
	// maxInline is how much is asked of a device to be sent inline, in bytes:
	// most messages without content.
	maxInline = 256
	// messageRoom is what a message has beside its content, in bytes: header,
	// ids that ride, and 254 dimensions.
	messageRoom = 4 << 10
	// drainTime is how long a channel that is left waits for what was posted to
	// come back (ARCHITECTURE.md section 6, rule b).
	drainTime = time.Second
	// ackBytes is how many bytes a peer keeps for answers that have arrived before it
	// is told soon (PROTOCOL.md section 8.4): its registered memory is dearer than its
	// heap, and a message costs less than a call.
	ackBytes = 1 << 20
	// lateBy is how late a timer is that a process which was stopped has.
	lateBy = 100 * time.Millisecond
	// causeTime is how long a channel whose requests came back flushed waits for
	// the device to say why: that goes another way, and takes a wake-up.
	causeTime = 20 * time.Millisecond
	// sweepEvery is how often idle memory and quarantine are looked at.
	sweepEvery = time.Second
	// awaitEvery is how often a probe looks why there is no channel yet.
	awaitEvery = 20 * time.Millisecond
	// probeBreaks is after how many channels that broke a probe gives up: one may
	// have been the other side's restart.
	probeBreaks = 2
	// probeBytes is what a probe sends: several packets of the largest path MTU,
	// 4096 bytes.
	probeBytes = 24 << 10
	// keySlots is how many keys of requests a channel remembers, at 300 bytes each
	// when they are of usual length: those of the steps of a usual program.
	keySlots = 64
	// maxStrangers bounds the links that are made for those whom nobody can call and that
	// have not brought a HELLO: anybody who reaches the port can have them made, each
	// takes some MiB of locked memory, and lives for handshake.HelloWait. A fleet that
	// starts at once gets its channels in turn, and uses gRPC until then.
	maxStrangers = 256
	// maxStrangersOfSource is how many of them one source address may have: those of a
	// host that starts many clients at once.
	maxStrangersOfSource = 64
	// maxPeers bounds the records of peers without an address, and maxPeersOfSource
	// those of one source address: more than a server has channels with.
	maxPeers         = 10_000
	maxPeersOfSource = 1000
)

// ChannelMemory is how many bytes the messages of a peer's channel take of registered
// memory, beside the pools of contents.
func (o Options) ChannelMemory() uint64 {
	o.sizes()
	return uint64(o.Rails*(o.Window+o.SendQueue)) * uint64(o.messageSize()) //nolint:gosec // not negative
}

// sizes puts what is sensible where nothing was said.
func (o *Options) sizes() {
	for _, f := range []struct {
		field *int
		value int
	}{{&o.Window, DefaultWindow}, {&o.SendQueue, DefaultSendQueue}, {&o.EagerLimit, DefaultEagerLimit}, {&o.Rails, 1}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
}

func (o *Options) complete() error {
	if o.Allocator == nil {
		o.Allocator = tensor.Heap{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.sizes()
	if o.Backoff == 0 {
		o.Backoff = handshake.MinBackoff
	}
	if o.EagerLimit < 0 || o.messageSize() > channel.MaxMessage {
		return status.Errorf(status.InvalidArgument, "an eager limit of %d bytes: 1 to %d", o.EagerLimit, channel.MaxMessage-messageRoom)
	}
	return o.fits(o.Device.Info())
}

// fits says what of the queues of a channel the device does not have, so that it is
// told at the start and not of each peer.
func (o *Options) fits(d verbs.DeviceInfo) error {
	for _, l := range []struct {
		what        string
		want, limit int
	}{
		{"work requests in a send queue", o.SendQueue + 1, d.Limits.SendWR},
		{"receives on a queue pair", o.Window, d.Limits.RecvWR},
		{"entries in a completion queue", o.Rails * (o.Window + o.SendQueue + 1), d.Limits.CQEntries},
	} {
		if l.limit > 0 && l.want > l.limit { // 0: it does not say
			return status.Errorf(status.InvalidArgument, "%s has %d %s, and %d are needed: lower --rdma-queue-depth or --rdma-queue-pairs", d.Name, l.limit, l.what, l.want)
		}
	}
	return nil
}
