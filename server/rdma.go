package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bootstrap"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/loss"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// rdma is the verbs part of a node: the transport, and the device under it, which may go and
// come back (devices.go).
//
//	openRDMA ─► register (answers bootstraps) ─► connect (calls the peers that are up)
//	close    ◄─ gRPC ends                     ◄─ stop (closes every channel)
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

// openRDMA chooses a device and makes the transport over it. If there is no usable device, and
// the settings do not exclude the fallback, it logs the reason: all tensors go over gRPC until
// there is one. A device that the settings name has to exist, but its link may be down.
//
// A provider that the program has passed replaces all devices.
func (n *node) openRDMA(ctx context.Context, c config.Client, o Options, nc nodeConfig, check func(rendezvous.Key) error) (*rdma, error) {
	r := &rdma{task: n.task, spec: c.Cluster, required: c.Fallback == fallbackNone}
	fo := finderOptions(&c, nc.localAddr, n.log)
	if fo.Passed = o.Provider; o.Provider == nil {
		fo.Kernel, fo.Software = devices.KernelSource(), devices.RoCESource(n.log)
	}
	r.finder = devices.NewFinder(fo)
	r.fixed = new(devices.Fixed)
	if o.Provider == nil || o.fixed != nil {
		var err error
		if r.fixed, err = devices.OpenFixed(devices.FixedOptions{
			Takes: c.Takes, Named: c.Names, Settings: c.RDMA, Addresses: nc.addresses, Dial: nc.dial, Directory: c.SHMDir,
			Trusted: certificates.Protection(c.TLS, nc.listens()) == verbstransport.MutualTLS, Sources: o.fixed, Logger: n.log,
		}); err != nil {
			return nil, err
		}
	}
	s, err := n.findDevice(ctx, r)
	if err != nil {
		return nil, errors.Join(err, r.fixed.Close())
	}
	r.transport, err = n.newTransport(r, c, s, nc, check)
	if err != nil {
		if s.Device != nil {
			err = errors.Join(err, s.Device.Close())
		}
		return nil, errors.Join(err, r.fixed.Close())
	}
	r.finder.Watch(r.transport, s)
	n.addVerbsMetrics(r)
	n.loss.WatchDevice(loss.Device{Current: r.finder.Current, Counters: r.finder.Counters, Connections: r.transport.Connections})
	return r, nil
}

// finderOptions are the settings of the RDMA device.
func finderOptions(c *config.Client, local func(context.Context) (netip.Addr, string), log *slog.Logger) devices.FinderOptions {
	return devices.FinderOptions{Settings: c.RDMA, Provider: c.Fabric(), Named: c.Names, LocalAddr: local, Logger: log}
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

// fallbackNone is the value of the setting fallback that allows verbs only.
const fallbackNone = "none"

// newTransport makes the transport over the RDMA device, without one if s has none, and the fixed devices.
func (n *node) newTransport(r *rdma, c config.Client, s devices.Selection, nc nodeConfig, check func(rendezvous.Key) error) (*verbstransport.RdmaRemoteRendezvous, error) {
	mode, err := verbstransport.ParsePollMode(c.Poll)
	if err != nil {
		return nil, err
	}
	memory := verbstransport.MemoryOptions{Arena: c.Arena, SendLimit: c.ArenaLimit, RecvLimit: c.ArenaLimit, Idle: c.ReleaseAfter, Reserve: n.budget.reserve}
	o := messageOptions(c, cmp.Or(c.RDMA.QueuePairs, devices.DefaultQueuePairs))
	if s.Device != nil {
		o.PortOptions = r.finder.Port(s)
	}
	o.Self, o.Task, o.Host = n.process(), n.task, discovery.Network()
	o.Others, o.Target = r.fixed.Ports(), r.target(nc.resolve)
	o.User, o.TLS = discovery.User(), certificates.Protection(c.TLS, nc.listens())
	n.proveReceivers(&o)
	o.Exchanger, o.Callable = bootstrap.NewExchanger(n.conns.Conn), r.callable
	o.GRPC, o.Cache, o.Check = n.transport.Conn, n.cache, check
	o.Require, o.Allocator, o.Memory, o.MaxWaiting = r.required, n.allocator, memory, nc.cache.MaxWaiting
	o.Poll, o.PeerTimeout, o.Transfers, o.Logger = mode, c.PeerTimeout, n.transfers, n.log
	o.Lost, o.Active = r.finder.Gone, func() { n.loss.Touch(); n.heap.used() }
	if limit, err := verbstransport.ReadMemlock(); err == nil && s.Device != nil {
		if err := memory.CheckMemlock(s.Device.Info(), limit, messageMemory(r.spec, o)); err != nil {
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

// MessageMemory returns how many bytes of locked memory the control messages of channels with all
// expected peers take over a kernel device, in addition to the arenas.
func MessageMemory(c config.Client) uint64 {
	return messageMemory(c.Cluster, messageOptions(c, cmp.Or(c.RDMA.QueuePairs, devices.DefaultQueuePairs)))
}

func messageMemory(spec *cluster.Spec, o verbstransport.Options) uint64 {
	return uint64(expectedPeers(spec)) * o.ChannelMemory() //nolint:gosec // not negative
}

// messageOptions returns the options for the number and size of a channel's messages.
func messageOptions(c config.Client, queuePairs int) verbstransport.Options {
	return verbstransport.Options{
		Window: c.RDMA.QueueDepth / 2, SendQueue: c.RDMA.QueueDepth, EagerLimit: int(c.EagerLimit),
		PortOptions: verbstransport.PortOptions{Rails: queuePairs},
	}
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

// sendAllocator returns the allocator for published tensors: registered memory, from which they are
// sent without a copy, and other memory when that is exhausted.
func (n *node) sendAllocator() tensor.Allocator {
	if n.rdma == nil {
		return n.allocator
	}
	return firstOf{n.rdma.transport.Allocator(), n.allocator}
}

// receiveAllocator is sendAllocator for what is pulled.
func (n *node) receiveAllocator() tensor.Allocator {
	if n.rdma == nil {
		return n.allocator
	}
	return firstOf{n.rdma.transport.ReceiveAllocator(), n.allocator}
}

// firstOf allocates from first, and from second when first is exhausted.
type firstOf struct{ first, second tensor.Allocator }

// Allocate implements tensor.Allocator.
func (p firstOf) Allocate(n int) (*tensor.Buffer, error) {
	b := new(tensor.Buffer)
	if err := p.AllocateBuffer(b, n); err != nil {
		return nil, err
	}
	return b, nil
}

// AllocateBuffer implements tensor.BufferAllocator.
func (p firstOf) AllocateBuffer(b *tensor.Buffer, n int) error {
	err := tensor.AllocateBuffer(p.first, b, n)
	if status.CodeOf(err) == status.ResourceExhausted {
		return tensor.AllocateBuffer(p.second, b, n)
	}
	return err
}

// Reserve implements tensor.Reserver.
func (p firstOf) Reserve(n int64) (*tensor.Buffer, error) { return tensor.Reserve(p.second, n) }
