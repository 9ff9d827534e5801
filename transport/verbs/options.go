package verbstransport

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
)

// Options configures the transport of a process. The fields of the first part are
// required. Zero fields of the second part take the defaults of limits.go.
type Options struct {
	// Self is this process, as it identifies itself to its peers. Task is its task.
	Self transport.Process
	Task cluster.Task
	// PortOptions name the device of the fabric: of libibverbs or of verbs/roce. Its Device
	// may be nil: then the transport has none until Use.
	PortOptions
	// Fixed name devices that are no RDMA and stay: TCP and shared memory, at most one of each. The
	// link layer of a port says its route. The caller closes them after Close.
	Fixed []PortOptions
	// Target returns the address of a task as "host:port", for queue pairs that need it
	// (verbs.Endpoint.Target); empty when the task has none. Nil where no device needs it.
	Target func(cluster.Task) string
	// Bootstrap returns the gRPC connection to a task, for bootstrap calls; the transport does not
	// close it. Callable reports whether a task has an address that this process can call.
	Bootstrap func(cluster.Task) (grpc.ClientConnInterface, error)
	Callable  func(cluster.Task) bool
	// Left reports whether a task has left the cluster: its calls are refused, and calls for it end. Nil where none leaves. It is called
	// with locks of the transport held.
	Left func(cluster.Task) bool
	// GRPC returns the gRPC connection to a task, which is the fallback.
	GRPC func(cluster.Task) (transport.Conn, error)
	// Cache is the response cache of this process. Check returns an error for a key whose
	// source is not this process (worker.Worker.CheckSource). Keys that pass are cached and not
	// checked again. Check is called with the lock of a channel held.
	Cache transport.ResponseCache
	Check func(rendezvous.Key) error
	// Receiver returns the check of a peer's requests, whose name the bootstrap has proven: an error if
	// the value of a key is not for the peer, or a Guard that decides when the step runs, if it is not
	// nil (worker.Worker.CheckReceiver). The check is called with the lock of a channel held. Nil where
	// names are not proven. Refused is called for each refusal, without locks; it may be nil.
	Receiver func(peer cluster.Task) func(rendezvous.Key) (rendezvous.Guard, error)
	Refused  func(peer cluster.Task, err error)

	// User identifies the user, user namespace and host of this process: processes of one user
	// have the same value. 0 when it is not known. TLS is how its gRPC connections are
	// protected; NoTLS when 0. Both decide which devices reach a peer.
	User uint64
	TLS  TLS
	// Host identifies the network namespace of this host: all processes in it have the
	// same value, and no others. 0 when it is not known. It is part of each offer.
	Host uint64
	// Require forbids receives over gRPC (the setting fallback is none).
	Require bool
	// MayHaveDevice says that an RDMA device of this process may come, although it has none at the start.
	MayHaveDevice bool
	// Optional says that nobody has asked for verbs (the setting transport is auto): that a peer has none is no
	// warning, and it is asked again only when a receive begins.
	Optional bool
	// Allocator allocates values that do not arrive in registered memory: small tensors
	// and strings. tensor.Heap when nil.
	Allocator tensor.Allocator
	// Memory configures the pools of registered memory. New sets its Active and Logger.
	Memory regmem.Options
	// Window is the number of receives posted on each rail. SendQueue is the number of
	// work requests that a send queue holds. EagerLimit is the largest content, in bytes,
	// that travels within a message.
	Window, SendQueue, EagerLimit int
	// MaxWaiting bounds the receives without response, in each direction, for each peer.
	MaxWaiting int
	// Chunk is the size of one RDMA write in bytes. Outstanding bounds the bytes of
	// writes that are posted and not completed on a rail.
	Chunk       int
	Outstanding int64
	// Poll selects how completions are awaited.
	Poll progress.Mode
	// PeerTimeout is how long a peer may be unreachable before receives from it end with
	// Unavailable; transport.DefaultPeerTimeout when 0.
	PeerTimeout time.Duration
	// Backoff is handshake.Config.Backoff: the wait before a channel that broke is made
	// again. Tests shorten it.
	Backoff time.Duration
	// Lost is called when the device was lost, once it and all its objects are closed, so
	// that the caller can look for a device and call Use. It is also called when the port
	// has lost its address; the error is then ErrNoAddress. It must not block. Nil does
	// nothing.
	Lost func(err error)
	// Active is called when a receive begins over a channel, of this process or of the peer.
	// It must not block. Nil does nothing.
	Active func()
	// Transfers records every receive over verbs; nothing is recorded when nil.
	Transfers *transport.Log
	// Logger logs when a peer changes between verbs and gRPC, and events of the device;
	// nothing is logged when nil.
	Logger *slog.Logger
}

// TLS is how far the gRPC connections of a process are protected (Options.TLS).
type TLS = handshake.TLS

// The values of TLS: none, the server proves its name, both sides do.
const (
	NoTLS     = handshake.NoTLS
	ServerTLS = handshake.ServerTLS
	MutualTLS = handshake.MutualTLS
)

// PollMode selects how completions are awaited (Options.Poll).
type PollMode = progress.Mode

// The poll modes: spin for a bounded time and then sleep, always spin, always sleep.
const (
	PollAdaptive = progress.ModeAdaptive
	PollBusy     = progress.ModeBusy
	PollEvent    = progress.ModeEvent
)

// ParsePollMode parses the name of a poll mode: adaptive, busy or event.
func ParsePollMode(s string) (PollMode, error) { return progress.ParseMode(s) }

// MemoryOptions configures registered memory (Options.Memory).
type MemoryOptions = regmem.Options

// LateWrite describes a write to free memory (MemoryOptions.LateWrite).
type LateWrite = regmem.LateWrite
