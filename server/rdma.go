package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bootstrap"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// rdma is the verbs part of a node: the transport, and the device under it, which may go and
// come back (internal/devices).
//
//	openVerbs ─► register (answers bootstraps) ─► connect (calls the peers that are up)
//	close     ◄─ gRPC ends                     ◄─ stop (closes every channel)
type rdma struct {
	task      cluster.Task
	spec      *cluster.Spec
	transport *verbstransport.RdmaRemoteRendezvous
	required  bool            // no fallback to gRPC
	finder    *devices.Finder // of the RDMA device
	fixed     *devices.Fixed

	stopped sync.Once
	result  error // of stop
}

// verbsOptions are the arguments of openVerbs.
type verbsOptions struct {
	Finder devices.FinderOptions
	Fixed  devices.FixedOptions
	// Spec is the cluster. Resolve returns the address of a peer that is not in it; nil if there are none.
	Spec     *cluster.Spec
	Resolve  func(cluster.Task) (string, bool)
	Required bool // no fallback to gRPC
	// Security is how far the gRPC connections are protected.
	Security verbstransport.TLS
	// Channel has the number and size of a channel's messages.
	Channel verbstransport.Options
	// Memory is the registered memory; its Reserve and GiveBack are set by openVerbs.
	Memory      verbstransport.MemoryOptions
	Poll        verbstransport.PollMode
	PeerTimeout time.Duration
	MaxWaiting  int
}

// openVerbs opens the devices and makes the transport over them. If there is no usable device, and
// the settings do not exclude the fallback, it logs the reason: all tensors go over gRPC until
// there is one. A device that the settings name has to exist, but its link may be down.
func (n *node) openVerbs(ctx context.Context, o verbsOptions) error {
	r := &rdma{task: n.task, spec: o.Spec, required: o.Required, finder: devices.NewFinder(o.Finder)}
	var err error
	if r.fixed, err = devices.OpenFixed(o.Fixed); err != nil {
		return err
	}
	s, err := n.findDevice(ctx, r)
	if err != nil {
		return errors.Join(err, r.fixed.Close())
	}
	r.transport, err = n.newTransport(r, s, o)
	if err != nil {
		if s.Device != nil {
			err = errors.Join(err, s.Device.Close())
		}
		return errors.Join(err, r.fixed.Close())
	}
	r.finder.Watch(r.transport, s)
	n.rdma = r
	n.addVerbsMetrics(r)
	return nil
}

// findDevice opens the RDMA device, if the settings allow one.
func (n *node) findDevice(ctx context.Context, r *rdma) (devices.Selection, error) {
	if !r.finder.Allowed() {
		return devices.Selection{}, nil
	}
	s, err := r.finder.Find(ctx)
	if err == nil {
		return s, nil
	}
	switch {
	case !r.finder.MayCome(err) || r.required && len(r.fixed.Devices()) == 0:
		return devices.Selection{}, status.Errorf(status.FailedPrecondition, "transport verbs: %w", err)
	case len(r.fixed.Devices()) > 0:
		n.log.Info("verbs: there is no RDMA device for now; peers are reached by the other devices", "reason", err)
	default:
		n.log.Warn("verbs cannot be used: until there is a usable device all tensors go over gRPC; see tryst doctor for what to do, or set transport to grpc", "reason", err)
	}
	return devices.Selection{}, nil
}

// newTransport makes the transport over the RDMA device, without one if s has none, and the fixed devices.
func (n *node) newTransport(r *rdma, s devices.Selection, set verbsOptions) (*verbstransport.RdmaRemoteRendezvous, error) {
	set.Memory.Reserve, set.Memory.GiveBack = n.budget.reserve, n.giveBack
	o := set.Channel
	if s.Device != nil {
		o.PortOptions = r.finder.Port(s)
	}
	o.Self, o.Task, o.Host = n.process(), n.task, discovery.Network()
	o.Fixed, o.Target = r.fixed.Ports(), r.target(set.Resolve)
	o.User, o.TLS = discovery.User(), set.Security
	n.proveReceivers(&o)
	o.Exchanger, o.Callable = bootstrap.NewExchanger(n.conns.Conn), r.callable
	o.GRPC, o.Cache, o.Check = n.transport.Conn, n.cache, n.checkSource
	o.Require, o.Allocator, o.Memory, o.MaxWaiting = r.required, n.allocator, set.Memory, set.MaxWaiting
	o.Poll, o.PeerTimeout, o.Transfers, o.Logger = set.Poll, set.PeerTimeout, n.transfers, n.log
	o.Lost, o.Active = r.finder.Gone, func() { n.loss.Touch(); n.heap.used() }
	if limit, err := verbstransport.ReadMemlock(); err == nil && s.Device != nil {
		if err := set.Memory.CheckMemlock(s.Device.Info(), limit, messageMemory(r.spec, o)); err != nil {
			n.log.Warn("verbs may run out of locked memory", "reason", err)
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

func messageMemory(spec *cluster.Spec, o verbstransport.Options) uint64 {
	return uint64(expectedPeers(spec)) * o.ChannelMemory() //nolint:gosec // not negative
}

// callable reports whether this process can call a peer: a task of the cluster or, for a client,
// the server that it dials.
func (r *rdma) callable(task cluster.Task) bool {
	if r.spec == nil && r.task.Job == cluster.ClientJob {
		return true
	}
	_, ok := r.spec.Address(task)
	return ok && task != r.task
}

// target returns the function that returns the address by which this process knows a task.
func (r *rdma) target(resolve func(cluster.Task) (string, bool)) func(cluster.Task) string {
	return func(task cluster.Task) string {
		address, ok := r.spec.Address(task)
		if !ok && resolve != nil {
			address, _ = resolve(task)
		}
		return address
	}
}

// selections returns the devices that can be used at present, that for RDMA first.
func (r *rdma) selections() []devices.Selection {
	var all []devices.Selection
	if s, ok := r.finder.Current(); ok {
		all = append(all, s)
	}
	return append(all, r.fixed.Devices()...)
}

// selection returns the first of selections. If there is none, it returns the last one and false.
func (r *rdma) selection() (devices.Selection, bool) {
	if all := r.selections(); len(all) > 0 {
		return all[0], true
	}
	return r.finder.Current()
}

// register registers the bootstrap service.
func (r *rdma) register(s grpc.ServiceRegistrar) {
	bootstrap.Register(grpctransport.Guard(s), bootstrap.ServiceOptions{Self: r.task, Host: hostIn(r.spec), Answer: r.answer})
}

// answer answers a bootstrap call. When the connection of the call ends, the peer may be gone.
func (r *rdma) answer(ctx context.Context, source string, from verbstransport.Offer) (verbstransport.Offer, error) {
	o, err := r.transport.Answer(ctx, source, from)
	if err == nil {
		grpctransport.WhenDisconnected(ctx, from.Task, func() { r.transport.CheckPeer(from.Task) })
	}
	return o, err
}

// checkPeer makes channels with a peer find out whether it is still there, since a connection with it
// has ended.
func (n *node) checkPeer(task cluster.Task) {
	if n.rdma != nil {
		n.rdma.transport.CheckPeer(task)
	}
}

// connect makes the transport set up channels with all tasks of the cluster, now and whenever one is lost.
func (r *rdma) connect() {
	for _, task := range r.spec.Tasks() {
		if task != r.task {
			r.transport.Connect(task)
		}
	}
}

// stop closes every channel. It notifies peers until ctx ends.
func (r *rdma) stop(ctx context.Context) error {
	r.stopped.Do(func() {
		r.finder.Stop()
		r.result = r.transport.Close(ctx)
	})
	return r.result
}

// close closes the devices, after stop.
func (r *rdma) close() error { return errors.Join(r.finder.Close(), r.fixed.Close()) }

// leftGeneration returns the function that checks and closes channels which requesters of the
// gRPC service have left; nil without verbs.
func (n *node) leftGeneration() func(transport.Process, uint64) (leave func(), err error) {
	if n.rdma == nil {
		return nil
	}
	return n.rdma.transport.LeftGeneration
}
