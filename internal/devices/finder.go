package devices

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
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
	// longestQuiet is longestSearch where nobody has asked for a device (FinderOptions.Optional): most such hosts never
	// have one.
	longestQuiet = 5 * time.Minute
	// settle is how long after a change the network interfaces are looked at. Changes come
	// in groups: an interface, its carrier, its addresses.
	settle = 100 * time.Millisecond
)

// Finder finds the RDMA device that verbs uses, and another one when it is gone. One goroutine
// searches:
//
//	transport: device lost ──► Gone ──┐
//	network interfaces change ────────┼──► search ──► RdmaRemoteRendezvous.Use
//	a timer ──────────────────────────┘
//
// It searches while there is no device, and while there is only one that a better one may
// replace (score).
type Finder struct {
	o       FinderOptions
	openers []providers.Opener // FinderOptions.Passed alone, or FinderOptions.Openers

	transport *verbstransport.RdmaRemoteRendezvous
	wake      chan struct{} // holds one: a device was lost
	changed   chan struct{} // holds one: interfaces or addresses have changed
	cancel    context.CancelFunc
	work      sync.WaitGroup
	losses    atomic.Uint64

	mu        sync.Mutex // guards what follows
	selection Selection  // the device in use, or the last one
	first     verbs.GID  // the address of the first device; preferred from then on
	failure   string     // why the last search failed; logged once
}

// FinderOptions are the arguments of NewFinder.
type FinderOptions struct {
	// Settings choose a device and how its packets are sent.
	Settings RDMA
	// Openers are those that the settings allow: of one that they name, or with auto of several, of which
	// the first with a usable device is taken (RDMAOpeners). There may be none.
	Openers []providers.Opener
	// Named reports whether the settings name a provider.
	Named func(provider string) bool
	// Passed is the provider that the program has passed, which replaces the others; nil for none.
	Passed verbs.Provider
	// Optional says that nobody has asked for verbs: a missing device is searched for rarely, and logged at debug level.
	Optional bool
	// LocalAddr returns the address by which peers reach the process, zero if it is not known, and the
	// reason for it. It may change with the network. Nil: not known.
	LocalAddr func(context.Context) (addr netip.Addr, why string)
	Logger    *slog.Logger
}

// NewFinder makes a Finder that has no device yet.
func NewFinder(o FinderOptions) *Finder {
	f := &Finder{o: o, openers: o.Openers, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), cancel: func() {}}
	if o.Passed != nil {
		f.openers = []providers.Opener{providers.OpenerOf(o.Passed)}
	}
	return f
}

// Allowed reports whether the settings allow an RDMA device.
func (f *Finder) Allowed() bool { return len(f.openers) > 0 }

// Find chooses and opens a device. The caller closes it.
func (f *Finder) Find(ctx context.Context) (Selection, error) {
	want := discovery.Want{
		Device: f.o.Settings.Device, Port: uint8(f.o.Settings.Port), GIDIndex: f.o.Settings.GIDIndex, MTU: verbs.MTU(f.o.Settings.MTU), //nolint:gosec // limits of the settings
		ServiceLevel: uint8(f.o.Settings.ServiceLevel), //nolint:gosec // likewise
	}
	if f.o.LocalAddr != nil {
		want.LocalAddr, want.LocalAddrWhy = f.o.LocalAddr(ctx)
	}
	f.mu.Lock()
	want.Before = f.first
	f.mu.Unlock()
	if f.o.Passed == nil {
		s, err := Select(want, f.openers...)
		if err == nil && s.Why == chosenBySetting && !f.o.Named(s.Name()) {
			s.Why = Auto(nil)
		}
		return s, err
	}
	s, _, err := open(f.openers[0], want)
	s.Why = "the program passed it"
	return s, err
}

// MayCome reports whether a search that failed with err may succeed later. A device that the settings
// name has to exist, but its link may be down.
func (f *Finder) MayCome(err error) bool {
	return waits(err) || errors.Is(err, verbs.ErrUnavailable) && !namesDevice(f.o.Settings)
}

// Asked reports whether the settings or the program name the device or its provider. A detail, such as the port or the
// index of an address, is for a device that may not be there.
func (f *Finder) Asked() bool {
	return f.o.Passed != nil || f.o.Settings.Device != "" || slices.ContainsFunc(f.openers, func(o providers.Opener) bool { return f.o.Named(o.Row.Name) })
}

// HasDetails reports whether the settings have details of the device, which say that one is expected.
func (f *Finder) HasDetails() bool { return namesDevice(f.o.Settings) }

// Lost returns how often a device was lost.
func (f *Finder) Lost() uint64 { return f.losses.Load() }

// Port is a device as the transport takes it.
func (f *Finder) Port(s Selection) verbstransport.PortOptions {
	p := portOptions(s, f.o.Settings)
	p.Asked = f.o.Passed != nil || f.o.Named(s.Name())
	return p
}

// Watch takes the first device, if there is one, and starts the search for others.
func (f *Finder) Watch(t *verbstransport.RdmaRemoteRendezvous, s Selection) {
	f.transport = t
	if s.Device != nil {
		f.use(s)
	}
	if !f.Allowed() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	stop, err := discovery.Watch(func() { signal(f.changed) })
	if err != nil {
		f.o.Logger.Info("changes of the network interfaces are not reported; a device that comes later is found by a timer", "reason", err)
		stop = func() {}
	}
	f.work.Go(func() {
		defer stop()
		f.run(ctx)
	})
}

// signal sends to a channel that holds one, if it holds none.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Gone is called when the transport has closed a device that was lost, or when the port has
// lost its address, which may come back soon.
func (f *Finder) Gone(err error) {
	if errors.Is(err, verbstransport.ErrNoAddress) {
		signal(f.changed)
		return
	}
	f.losses.Add(1)
	signal(f.wake)
}

// run searches until ctx ends.
func (f *Finder) run(ctx context.Context) {
	wait := firstSearch
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			wait = firstSearch
		case <-f.changed:
			wait = firstSearch
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
		case <-timer.C:
			wait = min(2*wait, f.longest())
		}
		f.search(ctx)
		if _, ok := f.Current(); ok {
			timer.Reset(betterSearch)
		} else {
			timer.Reset(wait)
		}
	}
}

// search finds a device. The transport uses it if there is no other, or if it is better than the present one.
func (f *Finder) search(ctx context.Context) {
	now, ok := f.Current()
	if ok && !f.mayImprove(now) {
		return
	}
	s, err := f.Find(ctx)
	if err == nil {
		if ok && f.score(s) <= f.score(now) {
			err = s.Device.Close()
			if err != nil {
				f.o.Logger.Warn("verbs: a device that is not used does not close; it can be removed only when this process has ended", "device", s.Choice.Device, "reason", err)
			}
			return
		}
		if err = f.transport.Use(f.Port(s)); err == nil {
			f.use(s)
			return
		}
		err = errors.Join(err, s.Device.Close())
	}
	f.mu.Lock()
	same := err.Error() == f.failure
	f.failure = err.Error()
	f.mu.Unlock()
	if !same && ctx.Err() == nil && !ok {
		level := slog.LevelInfo
		if f.o.Optional {
			level = slog.LevelDebug
		}
		f.o.Logger.Log(ctx, level, "verbs: there is no usable device yet", "reason", err)
	}
}

// longest is the longest wait before a search is repeated.
func (f *Finder) longest() time.Duration {
	if f.o.Optional {
		return longestQuiet
	}
	return longestSearch
}

// use records the device that the transport uses from now on.
func (f *Finder) use(s Selection) {
	f.mu.Lock()
	f.selection, f.failure = s, ""
	if f.first.IsZero() && !s.Choice.GID.Addr().IsLoopback() {
		f.first = s.Choice.GID
	}
	f.mu.Unlock()
	f.o.Logger.Info("verbs", "provider", s.Name(), "why", s.Why, "device", s.Choice.String(), "reason", s.Choice.Reason)
	if s.Unused != nil {
		f.o.Logger.Warn("verbs: the RDMA devices of this host are not used, and "+s.Choice.Device+" is software; see tryst doctor for what to do about each", "reason", s.Unused)
	}
	for _, w := range s.Choice.Warnings {
		f.o.Logger.Warn("verbs: " + w)
	}
}

// Current returns the device in use. ok is false when there is none at present; s is then the
// last one.
func (f *Finder) Current() (s Selection, ok bool) {
	_, err := f.transport.Device()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.selection, err == nil
}

// score orders devices for the question whether one is worth to be changed for another:
// channels break by it, so a faster port or a lower name is not. In this order: a device of
// the kernel before one in software, the address by which peers reach this process, the
// address of the first device, an address that reaches other networks, one that reaches other
// hosts.
func (f *Finder) score(s Selection) (score int) {
	a := s.Choice.GID.Addr()
	f.mu.Lock()
	first := s.Choice.GID == f.first
	f.mu.Unlock()
	for _, is := range []bool{s.Kernel, s.Choice.Near, first, !a.IsLoopback() && !a.IsLinkLocalUnicast(), !a.IsLoopback()} {
		score *= 2
		if is {
			score++
		}
	}
	return score
}

// mayImprove reports whether a search may find a device with a higher score.
func (f *Finder) mayImprove(s Selection) bool {
	a := s.Choice.GID.Addr()
	f.mu.Lock()
	first := s.Choice.GID == f.first
	f.mu.Unlock()
	return !s.Kernel && len(f.openers) > 1 || !s.Choice.Near || !first || a.IsLoopback() || a.IsLinkLocalUnicast()
}

// Stop ends the search. Call it before the transport is closed.
func (f *Finder) Stop() {
	f.cancel()
	f.work.Wait()
}

// Close closes the device in use, after the transport is closed.
func (f *Finder) Close() error {
	if f.selection.Device == nil {
		return nil
	}
	return f.selection.Device.Close()
}

// Counters reads the counters of the port in use, from the kernel or from the device itself;
// nil if it has none.
func (f *Finder) Counters() (on discovery.Choice, counters map[string]uint64) {
	s, ok := f.Current()
	if !ok {
		return s.Choice, nil
	}
	if r, ok := s.Device.(verbs.CounterReader); ok {
		counters, _ = r.Counters(s.Choice.Port) // what can be read
	} else if s.Kernel {
		if host, err := discovery.Host(); err == nil {
			counters, _ = host.Counters(s.Choice.Device, s.Choice.Port)
		}
	}
	return s.Choice, counters
}
