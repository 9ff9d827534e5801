// Package rdma is the verbs part of a process: the transport, the devices under it, which may go and come back
// (internal/devices), and their metrics.
//
//	Open  ─► Register (answers bootstraps) ─► Connect (calls the peers that are up)
//	Close ◄─ gRPC ends                     ◄─ Stop (closes every channel)
package rdma

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Part is the verbs part of a process. Its owner stops and then closes it.
type Part struct {
	Transport *verbstransport.RdmaRemoteRendezvous
	Required  bool            // no fallback to gRPC
	Optional  bool            // nobody has asked for verbs
	Finder    *devices.Finder // of the RDMA device
	Fixed     *devices.Fixed  // over TCP and shared memory

	task    cluster.Task
	cluster func() *cluster.Spec
	host    func(cluster.Task) (string, bool)

	stopped sync.Once
	result  error // of Stop
}

// Settings are what the settings of a process say about its verbs part.
type Settings struct {
	Finder devices.FinderOptions
	Fixed  devices.FixedOptions
	// Spec is the cluster at the start. Resolve returns the address of a peer that is not in it; nil if there are none.
	Spec     *cluster.Spec
	Resolve  func(cluster.Task) (string, bool)
	Required bool // no fallback to gRPC
	// Optional says that nobody has asked for verbs: what is missing on this host or at a peer is no error and no
	// warning, channels are made when they are needed, and no memory is registered before that.
	Optional bool
	// Security is how far the gRPC connections are protected.
	Security verbstransport.TLS
	// Channel has the number and size of a channel's messages.
	Channel verbstransport.Options
	// Memory is the registered memory, without Reserve and GiveBack.
	Memory      verbstransport.MemoryOptions
	Poll        verbstransport.PollMode
	PeerTimeout time.Duration
	MaxWaiting  int
}

// Options are the arguments of Open.
type Options struct {
	Settings

	Task    cluster.Task
	Process transport.Process
	// Cluster returns the present cluster, and Left reports whether a task has left it.
	Cluster func() *cluster.Spec
	Left    func(cluster.Task) bool
	// Host returns the host of a task's address in the cluster.
	Host func(cluster.Task) (host string, ok bool)
	// Conns are the gRPC connections, and GRPC is the transport over them.
	Conns *grpctransport.Conns
	GRPC  *grpctransport.RpcRemoteRendezvous
	Cache transport.ResponseCache
	// CheckSource checks a key that a peer requests. If mutual TLS proves the names of peers, Receiver returns
	// the check of the receiver that a key of a peer names, and Refused notes a request that it refuses.
	CheckSource func(rendezvous.Key) error
	Receiver    func(peer cluster.Task) func(rendezvous.Key) (rendezvous.Guard, error)
	Refused     func(peer cluster.Task, err error)
	// Reserve counts registered memory before it is mapped. GiveBack frees some bytes that a cache holds, and
	// reports whether there was any.
	Reserve   func(bytes int64) (release func(), err error)
	GiveBack  func(bytes int64) bool
	Allocator tensor.Allocator // of memory that is not registered
	Transfers *transport.Log
	// Active is called when something was sent or received.
	Active func()
	Logger *slog.Logger
}

// Open opens the devices and makes the transport over them. If there is no usable device, and
// the settings do not exclude the fallback, it logs the reason: all tensors go over gRPC until
// there is one. A device that the settings name has to exist, but its link may be down. One that nobody
// has asked for is left out if it cannot be used.
func Open(ctx context.Context, o Options) (*Part, error) {
	r := &Part{
		task: o.Task, cluster: o.Cluster, host: o.Host, Required: o.Required, Optional: o.Optional, Finder: devices.NewFinder(o.Finder),
	}
	if o.Optional {
		o.Memory.Start = -1
	}
	var err error
	if r.Fixed, err = devices.OpenFixed(o.Fixed); err != nil {
		return nil, err
	}
	s, err := r.findDevice(ctx, o.Logger)
	if err != nil {
		return nil, errors.Join(err, r.Fixed.Close())
	}
	r.Transport, err = r.newTransport(s, o)
	if err != nil && s.Device != nil {
		err = errors.Join(err, s.Device.Close())
		if s = (devices.Selection{}); o.Optional && !r.Finder.Asked() {
			o.Logger.Info("verbs: the RDMA device cannot be used; peers are reached by the other devices", "reason", err)
			r.Transport, err = r.newTransport(s, o)
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.Fixed.Close())
	}
	r.Finder.Watch(r.Transport, s)
	return r, nil
}

// findDevice opens the RDMA device, if the settings allow one.
func (r *Part) findDevice(ctx context.Context, log *slog.Logger) (devices.Selection, error) {
	if !r.Finder.Allowed() {
		return devices.Selection{}, nil
	}
	s, err := r.Finder.Find(ctx)
	if err == nil {
		return s, nil
	}
	switch {
	case r.Optional && !r.Finder.Asked():
		level := slog.LevelDebug
		if r.Finder.HasDetails() {
			level = slog.LevelInfo
		}
		log.Log(ctx, level, "verbs: there is no RDMA device for now", "reason", err)
	case !r.Finder.MayCome(err) || r.Required && len(r.Fixed.Devices()) == 0:
		return devices.Selection{}, status.Errorf(status.FailedPrecondition, "transport verbs: %w", err)
	case len(r.Fixed.Devices()) > 0:
		log.Info("verbs: there is no RDMA device for now; peers are reached by the other devices", "reason", err)
	default:
		log.Warn("verbs cannot be used: until there is a usable device all tensors go over gRPC; see tryst doctor for what to do, or set transport to grpc", "reason", err)
	}
	return devices.Selection{}, nil
}

// newTransport makes the transport over the RDMA device, without one if s has none, and the fixed devices.
func (r *Part) newTransport(s devices.Selection, set Options) (*verbstransport.RdmaRemoteRendezvous, error) {
	set.Memory.Reserve, set.Memory.GiveBack = set.Reserve, set.GiveBack
	o := set.Channel
	if s.Device != nil {
		o.PortOptions = r.Finder.Port(s)
	}
	o.Self, o.Task, o.Host = set.Process, set.Task, discovery.Network()
	o.Fixed, o.Target = r.Fixed.Ports(), r.target(set.Resolve)
	o.User, o.TLS = discovery.User(), set.Security
	if o.TLS == verbstransport.MutualTLS {
		o.Receiver, o.Refused = set.Receiver, set.Refused
	}
	o.Bootstrap, o.Callable, o.Left = set.Conns.Conn, r.Callable, set.Left
	o.GRPC, o.Cache, o.Check = set.GRPC.Conn, set.Cache, set.CheckSource
	o.Require, o.Optional, o.Allocator, o.Memory, o.MaxWaiting = r.Required, r.Optional, set.Allocator, set.Memory, set.MaxWaiting
	o.Poll, o.PeerTimeout, o.Transfers, o.Logger = set.Poll, set.PeerTimeout, set.Transfers, set.Logger
	o.MayHaveDevice = r.Finder.Allowed()
	o.Lost, o.Active = r.Finder.Gone, set.Active
	if limit, err := verbstransport.ReadMemlock(); err == nil && s.Device != nil {
		if err := set.Memory.CheckMemlock(s.Device.Info(), limit, MessageMemory(set.Spec, o)); err != nil {
			level := slog.LevelWarn
			if r.Optional {
				level = slog.LevelInfo
			}
			set.Logger.Log(context.Background(), level, "verbs may run out of locked memory", "reason", err)
		}
	}
	t, err := verbstransport.New(o)
	if err != nil {
		return nil, status.Errorf(status.CodeOf(err), "transport verbs over %v: %w", s.Choice, err)
	}
	return t, nil
}

// expectedPeers returns the number of known peers: the other tasks of the cluster, or one, the
// server of a client.
func expectedPeers(spec *cluster.Spec) int {
	if spec == nil {
		return 1
	}
	return max(1, spec.Len()-1)
}

// MessageMemory returns how many bytes the control messages of the channels with all expected peers take.
func MessageMemory(spec *cluster.Spec, o verbstransport.Options) uint64 {
	return uint64(expectedPeers(spec)) * o.ChannelMemory() //nolint:gosec // not negative
}

// Callable reports whether this process can call a peer: a task of the cluster or, for a client,
// the server that it dials.
func (r *Part) Callable(task cluster.Task) bool {
	spec := r.cluster()
	if spec == nil && r.task.Job == cluster.ClientJob {
		return true
	}
	_, ok := spec.Address(task)
	return ok && task != r.task
}

// target returns the function that returns the address by which this process knows a task.
func (r *Part) target(resolve func(cluster.Task) (string, bool)) func(cluster.Task) string {
	return func(task cluster.Task) string {
		address, ok := r.cluster().Address(task)
		if !ok && resolve != nil {
			address, _ = resolve(task)
		}
		return address
	}
}

// Selections returns the devices that can be used at present, that for RDMA first.
func (r *Part) Selections() []devices.Selection {
	var all []devices.Selection
	if s, ok := r.Finder.Current(); ok {
		all = append(all, s)
	}
	return append(all, r.Fixed.Devices()...)
}

// Selection returns the first of Selections. If there is none, it returns the last one and false.
func (r *Part) Selection() (devices.Selection, bool) {
	if all := r.Selections(); len(all) > 0 {
		return all[0], true
	}
	return r.Finder.Current()
}

// Register registers the bootstrap service.
func (r *Part) Register(s grpc.ServiceRegistrar) {
	r.Transport.Register(grpctransport.Guard(s), verbstransport.BootstrapOptions{Host: r.host, Answered: r.answered})
}

// answered follows the connection of a peer's bootstrap call: when it ends, the peer may be gone.
func (r *Part) answered(ctx context.Context, peer cluster.Task) {
	grpctransport.WhenDisconnected(ctx, peer, func() { r.Transport.CheckPeer(peer) })
}

// Connect makes the transport set up channels with all tasks of the cluster, now and whenever one is lost. Where nobody
// has asked for verbs, the first receive from a task has its channel made, as it has a connection made over gRPC.
func (r *Part) Connect() {
	if r.Optional {
		return
	}
	for _, task := range r.cluster().Tasks() {
		if task != r.task {
			r.Transport.Connect(task)
		}
	}
}

// Stop closes every channel. It notifies peers until ctx ends.
func (r *Part) Stop(ctx context.Context) error {
	r.stopped.Do(func() {
		r.Finder.Stop()
		r.result = r.Transport.Close(ctx)
	})
	return r.result
}

// Close closes the devices, after Stop.
func (r *Part) Close() error { return errors.Join(r.Finder.Close(), r.Fixed.Close()) }
