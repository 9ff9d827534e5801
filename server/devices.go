package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// When the search for a device is repeated.
const (
	// firstSearch is the wait before a search that found nothing is repeated. Further
	// waits double, up to longestSearch: a search reads some files of /sys. A change of the
	// network interfaces causes a search at once.
	firstSearch   = 100 * time.Millisecond
	longestSearch = 10 * time.Second
	// betterSearch is the wait between searches for a better device: an RDMA port becomes
	// active without any change of the network interfaces.
	betterSearch = 30 * time.Second
	// settle is how long after a change the network interfaces are looked at. Changes come
	// in groups: an interface, its carrier, its addresses.
	settle = 100 * time.Millisecond
)

// devices finds the device that verbs uses, and another one when it is gone. One goroutine
// searches:
//
//	transport: device lost ──► gone ──┐
//	network interfaces change ────────┼──► search ──► RdmaRemoteRendezvous.Use
//	a timer ──────────────────────────┘
//
// It searches while there is no device, and while there is only one that a better one may
// replace (score).
type devices struct {
	settings         config.RDMA
	provider         string                     // for the device: config.Client.Fabric
	asked            func(provider string) bool // whether the settings name a provider
	passed           *Source                    // the provider that the program passed; nil for none
	kernel, software Source
	localAddr        func(context.Context) localAddr
	log              *slog.Logger

	transport *verbstransport.RdmaRemoteRendezvous
	wake      chan struct{} // holds one: a device was lost
	changed   chan struct{} // holds one: interfaces or addresses have changed
	cancel    context.CancelFunc
	work      sync.WaitGroup
	lost      atomic.Uint64 // how often a device was lost

	mu        sync.Mutex // guards what follows
	selection Selection  // the device in use, or the last one
	first     verbs.GID  // the address of the first device; preferred from then on
	failure   string     // why the last search failed; logged once
}

func newDevices(c config.Client, p verbs.Provider, localAddr func(context.Context) localAddr, log *slog.Logger) *devices {
	d := &devices{settings: c.RDMA, provider: c.Fabric(), asked: c.Names, localAddr: localAddr, log: log, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), cancel: func() {}}
	if p != nil {
		s := sourceOf(p)
		d.passed = &s
		return d
	}
	d.kernel, d.software = KernelSource(), RoCESource(log)
	return d
}

// allowed reports whether the settings allow a device of the fabric.
func (d *devices) allowed() bool { return d.passed != nil || d.provider != "" }

// find chooses and opens a device. The caller closes it.
func (d *devices) find(ctx context.Context) (Selection, error) {
	want := discovery.Want{
		Device: d.settings.Device, Port: uint8(d.settings.Port), GIDIndex: d.settings.GIDIndex, MTU: verbs.MTU(d.settings.MTU), //nolint:gosec // limits of the settings
		ServiceLevel: uint8(d.settings.ServiceLevel), //nolint:gosec // likewise
	}
	if d.localAddr != nil {
		local := d.localAddr(ctx)
		want.LocalAddr, want.LocalAddrWhy = local.addr, local.why
	}
	d.mu.Lock()
	want.Before = d.first
	d.mu.Unlock()
	if d.passed == nil {
		return Select(d.provider, want, d.kernel, d.software)
	}
	s, _, err := d.passed.open(want)
	s.Why = "the program passed it"
	return s, err
}

// port is a device as the transport takes it.
func (d *devices) port(s Selection) verbstransport.PortOptions {
	p := portOptions(s, d.settings)
	p.Asked = d.passed != nil || d.asked(s.Name())
	return p
}

// watch takes the first device, if there is one, and starts the search for others.
func (d *devices) watch(t *verbstransport.RdmaRemoteRendezvous, s Selection) {
	d.transport = t
	if s.Device != nil {
		d.use(s)
	}
	if !d.allowed() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	stop, err := discovery.Watch(func() { signal(d.changed) })
	if err != nil {
		d.log.Info("changes of the network interfaces are not reported; a device that comes later is found by a timer", "reason", err)
		stop = func() {}
	}
	d.work.Go(func() {
		defer stop()
		d.run(ctx)
	})
}

// signal sends to a channel that holds one, if it holds none.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// gone is called when the transport has closed a device that was lost, or when the port has
// lost its address, which may come back soon.
func (d *devices) gone(err error) {
	if errors.Is(err, verbstransport.ErrNoAddress) {
		signal(d.changed)
		return
	}
	d.lost.Add(1)
	signal(d.wake)
}

// run searches until ctx ends.
func (d *devices) run(ctx context.Context) {
	wait := firstSearch
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
			wait = firstSearch
		case <-d.changed:
			wait = firstSearch
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
		case <-timer.C:
			wait = min(2*wait, longestSearch)
		}
		d.search(ctx)
		if _, ok := d.current(); ok {
			timer.Reset(betterSearch)
		} else {
			timer.Reset(wait)
		}
	}
}

// search finds a device. The transport uses it if there is no other, or if it is better than the present one.
func (d *devices) search(ctx context.Context) {
	now, ok := d.current()
	if ok && !d.mayImprove(now) {
		return
	}
	s, err := d.find(ctx)
	if err == nil {
		if ok && d.score(s) <= d.score(now) {
			err = s.Device.Close()
			if err != nil {
				d.log.Warn("verbs: a device that is not used does not close; it can be removed only when this process has ended", "device", s.Choice.Device, "reason", err)
			}
			return
		}
		if err = d.transport.Use(d.port(s)); err == nil {
			d.use(s)
			return
		}
		err = errors.Join(err, s.Device.Close())
	}
	d.mu.Lock()
	same := err.Error() == d.failure
	d.failure = err.Error()
	d.mu.Unlock()
	if !same && ctx.Err() == nil && !ok {
		d.log.Info("verbs: there is no usable device yet", "reason", err)
	}
}

// use records the device that the transport uses from now on.
func (d *devices) use(s Selection) {
	d.mu.Lock()
	d.selection, d.failure = s, ""
	if d.first.IsZero() && !s.Choice.GID.Addr().IsLoopback() {
		d.first = s.Choice.GID
	}
	d.mu.Unlock()
	d.log.Info("verbs", "provider", s.Name(), "why", s.Why, "device", s.Choice.String(), "reason", s.Choice.Reason)
	if s.Unused != nil {
		d.log.Warn("verbs: the RDMA devices of this host are not used, and "+s.Choice.Device+" is software; see tryst doctor for what to do about each", "reason", s.Unused)
	}
	for _, w := range s.Choice.Warnings {
		d.log.Warn("verbs: " + w)
	}
}

// current returns the device in use. ok is false when there is none at present; s is then the
// last one.
func (d *devices) current() (s Selection, ok bool) {
	_, err := d.transport.Device()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.selection, err == nil
}

// score orders devices for the question whether one is worth to be changed for another:
// channels break by it, so a faster port or a lower name is not. In this order: a device of
// the kernel before one in software, the address by which peers reach this process, the
// address of the first device, an address that reaches other networks, one that reaches other
// hosts.
func (d *devices) score(s Selection) (score int) {
	a := s.Choice.GID.Addr()
	d.mu.Lock()
	first := s.Choice.GID == d.first
	d.mu.Unlock()
	for _, is := range []bool{s.Kernel, s.Choice.Near, first, !a.IsLoopback() && !a.IsLinkLocalUnicast(), !a.IsLoopback()} {
		score *= 2
		if is {
			score++
		}
	}
	return score
}

// mayImprove reports whether a search may find a device with a higher score.
func (d *devices) mayImprove(s Selection) bool {
	a := s.Choice.GID.Addr()
	d.mu.Lock()
	first := s.Choice.GID == d.first
	d.mu.Unlock()
	return !s.Kernel && d.passed == nil && d.provider == config.ProviderAuto || !s.Choice.Near || !first || a.IsLoopback() || a.IsLinkLocalUnicast()
}

// stop ends the search. Call it before the transport is closed.
func (d *devices) stop() {
	d.cancel()
	d.work.Wait()
}

// close closes the device in use, after the transport is closed.
func (d *devices) close() error {
	if d.selection.Device == nil {
		return nil
	}
	return d.selection.Device.Close()
}
