package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// Options say what Gather looks for, and where.
type Options struct {
	// Client has the settings: which device, how much memory, the cluster and
	// how its tasks are dialed. With the transport verbs what RDMA lacks is a
	// FAIL.
	Client config.Client
	// Settings are those of RDMA that are not the defaults, to be told with
	// where they come from.
	Settings []config.Entry
	// Self is this task, which is not asked; nil: all are.
	Self *cluster.Task

	// System is where RDMA is looked for; NoSystem is why it cannot be.
	System   discovery.System
	NoSystem error
	// Memlock tells how much memory may be locked; nil: it is not known.
	Memlock func() (mem.Memlock, error)
	// Provider is asked for its devices, and opens the chosen one; nil: not.
	Provider verbs.Provider
	// Software has the devices in software; nil: they are not looked for. Sockets
	// finds out what the kernel gives for the address of one; nil: it is not known.
	Software *server.Source
	Sockets  func(netip.Addr) Sockets
	// LocalAddr is the address by which peers reach a process with these settings, and
	// LocalAddrWhy who says so (server.LocalAddr); zero: not known.
	LocalAddr    netip.Addr
	LocalAddrWhy string
	// ReachVerbs asks a peer by RDMA, and says what it is; nil: not.
	ReachVerbs func(ctx context.Context, task cluster.Task, address string) (string, error)
}

// OnThisHost fills in where to look on this host. Peers are asked by RDMA when
// tensors are to go so.
func (o Options) OnThisHost() Options {
	o.System, o.NoSystem = discovery.Host()
	o.Memlock = mem.ReadMemlock
	o.Provider = libibverbs.New(libibverbs.Options{})
	software := server.RoCESource(nil)
	o.Software, o.Sockets = &software, hostSockets
	if o.Client.Transport == verbstransport.Name {
		o.ReachVerbs = ReachVerbs(o.Client, server.Options{})
	}
	return o
}

// ReachVerbs returns a function for Options.ReachVerbs that makes a channel of its
// own to the peer, as any client does, and lets full packets go over it. What runs at
// the peer is not disturbed.
func ReachVerbs(c config.Client, o server.Options) func(context.Context, cluster.Task, string) (string, error) {
	c.Transport = verbstransport.Name
	c.Fallback = "none"                                 // without a device the reason is wanted
	c.Arena, c.ArenaLimit = probeArena, probeArenaLimit // no tensor moves
	return func(ctx context.Context, task cluster.Task, address string) (_ string, err error) {
		cl, err := server.Dial(ctx, c, address, o)
		if err != nil {
			return "", err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			err = errors.Join(err, cl.Close(ctx))
		}()
		p, err := cl.Probe(ctx, task)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("a channel to %v, path MTU %d, and %s in full packets came through", p.GID, int(p.MTU), bytesText(uint64(p.Bytes))), nil //nolint:gosec // some packets
	}
}

// wanted is what the settings ask for of a device.
func wanted(c config.RDMA) discovery.Want {
	return discovery.Want{Device: c.Device, Port: uint8(c.Port), GIDIndex: c.GIDIndex, MTU: verbs.MTU(c.MTU), ServiceLevel: uint8(c.ServiceLevel)}
}

// Gather finds out the facts. It ends when ctx does, with what it has; a peer
// that does not answer is waited for 5 s.
func Gather(ctx context.Context, o Options) Facts {
	f := Facts{
		Required: o.Client.Transport == "verbs", Provider: o.Client.Provider, Want: wanted(o.Client.RDMA),
		// One pool to send and one to receive.
		RegisterLeast: 2 * uint64(o.Client.Arena), RegisterMost: 2 * uint64(o.Client.ArenaLimit), Messages: server.MessageMemory(o.Client),
	}
	f.NoDiscovery, f.Settings = o.NoSystem, o.Settings
	f.TrafficClass = uint8(o.Client.RDMA.TrafficClass) //nolint:gosec // a limit of the setting
	if f.NoDiscovery == nil {
		f.Inventory, f.NoDiscovery = o.System.Read()
	}
	if f.NoDiscovery == nil {
		f.Kernel = o.System.Kernel(f.Inventory)
		f.Choice, f.NoChoice = discovery.Choose(f.Inventory, f.Want)
		f.HugePages = hugePages(o.System.Sys)
		if f.NoChoice == nil {
			f.Counters, f.NoCounters = o.System.Counters(f.Choice.Device, f.Choice.Port)
			if pfc, err := o.System.PFC(f.Choice.Netdev); err == nil && f.Choice.Netdev != "" {
				f.PFC = &pfc // most drivers do not tell
			}
			f.ECN = ecn(o.System.Sys, f.Choice.Netdev)
		}
	}
	f.NoMemlock = errors.New("there is nobody to ask here")
	if o.Memlock != nil {
		f.Memlock, f.NoMemlock = o.Memlock()
	}
	if o.Provider != nil {
		f.Library = askLibrary(o.Provider, f)
	}
	if o.Software != nil {
		f.Software = lookForSoftware(o, f.Want)
	}
	if provider, _ := f.uses(); provider == "" && f.Library.Asked {
		o.ReachVerbs = nil // whom would a device reach that cannot be used; why is told
	}
	f.Peers = askPeers(ctx, o)
	return f
}

// askLibrary asks a provider for its devices, and the chosen one for its port.
func askLibrary(p verbs.Provider, f Facts) Library {
	l := Library{Asked: true}
	if l.Devices, l.Err = p.Devices(); l.Err != nil || f.NoDiscovery != nil || f.NoChoice != nil {
		return l
	}
	dev, err := p.Open(f.Choice.Device)
	if err != nil {
		l.OpenErr = err
		return l
	}
	l.Port, l.OpenErr = dev.Port(f.Choice.Port)
	if err := dev.Close(); err != nil && l.OpenErr == nil {
		l.OpenErr = err
	}
	return l
}

// text reads a small file.
func text(tree fs.FS, name string) (string, error) {
	f, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.TrimSpace(string(b)), err
}

// hugePages reads the pools and the mode of transparent ones
// (Documentation/admin-guide/mm of the kernel).
func hugePages(sys fs.FS) HugePages {
	const pools, transparent = "kernel/mm/hugepages", "kernel/mm/transparent_hugepage/enabled"
	var h HugePages
	var errs []error
	entries, err := fs.ReadDir(sys, pools)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	number := func(name string) uint64 {
		s, err := text(sys, name)
		n, err2 := strconv.ParseUint(s, 10, 64)
		if err := errors.Join(err, err2); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return n
	}
	for _, e := range entries {
		size, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kib, err := strconv.ParseUint(strings.TrimSuffix(size, "kB"), 10, 32)
		if !ok || err != nil {
			continue
		}
		h.Pools = append(h.Pools, HugePool{
			Size: kib << 10, Total: number(pools + "/" + e.Name() + "/nr_hugepages"), Free: number(pools + "/" + e.Name() + "/free_hugepages"),
		})
	}
	mode, err := text(sys, transparent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if _, rest, ok := strings.Cut(mode, "["); ok { // "always [madvise] never"
		h.Transparent, _, _ = strings.Cut(rest, "]")
	}
	h.Err = errors.Join(errs...)
	return h
}

// ecn reads whether the NIC answers marked packets, in each priority. Only some
// drivers tell (mlx5 of MLNX_OFED).
func ecn(sys fs.FS, netdev string) map[int]bool {
	if netdev == "" {
		return nil
	}
	var on map[int]bool
	for prio := range 8 {
		s, err := text(sys, fmt.Sprintf("class/net/%s/ecn/roce_np/enable/%d", netdev, prio))
		if err != nil {
			continue
		}
		if on == nil {
			on = make(map[int]bool)
		}
		on[prio] = s == "1"
	}
	return on
}

// askPeers asks all tasks of the cluster but this one, several at a time.
func askPeers(ctx context.Context, o Options) []Peer {
	if o.Client.Cluster == nil {
		return nil
	}
	var peers []Peer
	var tasks []cluster.Task
	for _, t := range o.Client.Cluster.Tasks() {
		if o.Self != nil && t == *o.Self {
			continue
		}
		address, _ := o.Client.Cluster.Address(t)
		peers, tasks = append(peers, Peer{Task: t.String(), Address: address}), append(tasks, t)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, peersAtOnce)
	for i := range peers {
		slots <- struct{}{}
		wg.Go(func() { // owned by askPeers, which waits for it
			defer func() { <-slots }()
			p := &peers[i]
			p.GRPC = timed(ctx, dialTimeout, func(ctx context.Context) (string, error) { return reachGRPC(ctx, o.Client, p.Address) })
			if o.ReachVerbs != nil && p.GRPC.Err == nil { // the bootstrap needs gRPC
				r := timed(ctx, probeTimeout, func(ctx context.Context) (string, error) { return o.ReachVerbs(ctx, tasks[i], p.Address) })
				p.Verbs = &r
			}
		})
	}
	wg.Wait()
	return peers
}

func timed(ctx context.Context, limit time.Duration, ask func(context.Context) (string, error)) Reached {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	said, err := ask(ctx)
	return Reached{Took: time.Since(start), Said: said, Err: err}
}

// reachGRPC asks a peer for its health. A peer that has no such service, as
// TensorFlow's workers, has answered as well.
func reachGRPC(ctx context.Context, c config.Client, address string) (string, error) {
	c.Transport = "grpc" // the question is for it alone
	cl, err := server.Dial(ctx, c, address, server.Options{})
	if err != nil {
		return "", err
	}
	defer cl.Close(context.WithoutCancel(ctx)) // what was asked is known by then
	r, err := healthpb.NewHealthClient(cl.Conn()).Check(ctx, &healthpb.HealthCheckRequest{})
	switch grpcstatus.Code(err) {
	case codes.OK:
		if r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return "", fmt.Errorf("it answers that it is %s: it starts or stops", r.GetStatus())
		}
		return "it serves", nil
	case codes.Unimplemented:
		return "it has no health service, and is no Tryst server (TensorFlow?)", nil
	}
	s := grpcstatus.Convert(err)
	return "", status.New(status.Code(s.Code()), transport.PlainText(s.Message()))
}
