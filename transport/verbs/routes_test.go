package verbstransport_test

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// sideBySide are options of a cluster whose tasks have every route.
func sideBySide() clusterOptions {
	return quick(clusterOptions{fixed: []verbs.LinkLayer{verbs.LinkTCP, verbs.LinkShared}})
}

// overRoute waits until both processes reach each other over a route.
func (a *actor) overRoute(b *actor, route string) {
	a.s.Helper()
	if !a.s.holds(func() bool { return a.connection(b).Route == route && b.connection(a).Route == route }) {
		a.s.Fatalf("the route is not %s: %+v\n%+v", route, a.connection(b), b.connection(a))
	}
}

// wiresOf is the connection of two processes over their devices with a link layer.
func (s *stage) wiresOf(a, b *actor, link verbs.LinkLayer) *verbstest.Wires {
	return s.c.fabric.Between(a.host().NIC(link.String()), b.host().NIC(link.String()))
}

// exchange sends a small and a large value in each direction.
func (a *actor) exchange(b *actor, step int64) {
	a.s.Helper()
	for _, way := range [][2]*actor{{a, b}, {b, a}} {
		for i, size := range []int{100, 100 * kib} {
			k := way[0].key(way[1], fmt.Sprint("v", i))
			way[0].sendsBlob(step, k, uint64(step)+uint64(i), size)   //nolint:gosec // small
			way[1].recv(step, k).isBlob(uint64(step)+uint64(i), size) //nolint:gosec // small
		}
	}
}

// TestBestRouteIsTaken: two processes with every route on one host use shared memory.
func TestBestRouteIsTaken(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.pair()
	from.overRoute(to, "shm")
	from.exchange(to, 1)
	if k := from.connection(to); len(k.Routes) != 3 || !k.Routes[0].Used || k.Device != verbs.LinkShared.String() {
		t.Errorf("%+v", k)
	}
}

// TestRouteThatBreaksIsReplaced: the next best route is taken when the present one breaks, and
// nothing takes gRPC meanwhile.
func TestRouteThatBreaksIsReplaced(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.pair()
	from.overRoute(to, "shm")
	waits := to.recv(1, from.key(to, "waits"))
	from.waiting(1)
	without := to.connection(from).Stats.Without
	s.wiresOf(from, to, verbs.LinkShared).Cut()
	from.overRoute(to, "rdma")
	from.sendsBlob(1, from.key(to, "waits"), 7, 100*kib)
	waits.isBlob(7, 100*kib)
	from.exchange(to, 2)
	s.c.fabric.Between(from.nic(), to.nic()).Cut()
	from.overRoute(to, "tcp")
	from.exchange(to, 3)
	if now := to.connection(from).Stats.Without; now != without {
		t.Errorf("%d receives took gRPC", now-without)
	}
}

// unplug removes a device of a process.
func (a *actor) unplug(name string) { a.host().NIC(name).Remove() }

// plug puts a device of a process back, and makes the transport use it.
func (a *actor) plug(name string) {
	a.s.Helper()
	a.host().NIC(name).Insert()
	a.replug(name)
}

// use makes a process use a device.
func (a *actor) use(d verbs.Device) {
	a.s.Helper()
	gid, err := address(d)
	if err != nil {
		a.s.Fatal(err)
	}
	if err := a.transport.Use(verbstransport.PortOptions{Device: d, Address: gid, Path: a.c.path, Addresses: []string{"host:1"}}); err != nil {
		a.s.Fatal(err)
	}
	if d.Info().Name == "mem0" {
		a.device = d
	} else {
		a.fixed = append(a.fixed, d)
	}
}

// load sends values from one process to another until end is closed, and checks that each comes
// once. A few receives wait for their value at any time.
func (a *actor) load(b *actor, first int64, end <-chan struct{}) (sent func() int64) {
	var wg sync.WaitGroup
	var n atomic.Int64
	ahead := make(chan *receiving, 8)
	wg.Go(func() {
		defer close(ahead)
		for step := first; ; step++ {
			select {
			case ahead <- b.recv(step, a.key(b, "load")):
			case <-end:
				return
			}
		}
	})
	wg.Go(func() {
		step := first
		for r := range ahead {
			size := 100
			if step%2 == 0 {
				size = 50 * kib
			}
			a.sendsBlob(step, r.key, uint64(step), size) //nolint:gosec // small
			r.isBlob(uint64(step), size)                 //nolint:gosec // small
			for _, x := range []*actor{a, b} {
				x.manager.Cleanup(step)
				x.kept.EndStep(step)
			}
			n.Add(1)
			step++
		}
	})
	return func() int64 {
		wg.Wait()
		return n.Load()
	}
}

// TestChangesOfDevicesAtOnce: a device goes while other changes are passed to the peers. The last one
// that they hear of is the last one, so that no route over a lost device is proposed.
func TestChangesOfDevicesAtOnce(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.tcpOnly()
	for range 20 {
		from.plug(verbs.LinkShared.String())
		var wg sync.WaitGroup
		var gone atomic.Bool
		for range 4 {
			wg.Go(func() {
				for !gone.Load() {
					from.transport.DevicesChanged()
				}
			})
		}
		from.unplug(verbs.LinkShared.String())
		s.until("the device is lost", func() bool { return from.transport.Devices()[0].Err != nil })
		gone.Store(true)
		wg.Wait()
		s.until("the route over the lost device is not taken", func() bool {
			r := from.connection(to).Routes[0]
			return !r.Used && strings.Contains(r.Why, "has no shm device")
		})
	}
	from.overRoute(to, "tcp")
}

// TestRoutesComeAndGoUnderLoad: the route goes from shared memory to TCP to gRPC and back while
// values are sent in both directions. Each value comes once.
func TestRoutesComeAndGoUnderLoad(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.pair()
	from.overRoute(to, "shm")
	end := make(chan struct{})
	there, back := from.load(to, 1<<20, end), to.load(from, 1<<30, end)
	from.unplug("mem0")
	to.unplug(verbs.LinkShared.String())
	from.overRoute(to, "tcp")
	from.unplug(verbs.LinkTCP.String())
	from.overRoute(to, "")
	to.plug(verbs.LinkShared.String())
	from.overRoute(to, "shm")
	from.plug(verbs.LinkTCP.String())
	from.unplug(verbs.LinkShared.String())
	from.overRoute(to, "tcp")
	from.plug(verbs.LinkShared.String())
	from.overRoute(to, "shm")
	close(end)
	t.Logf("%d values there, %d back", there(), back())
}

// slowly makes the connection of two processes over a route carry so few bytes a second
// that a content of some MiB flows until the test ends that.
func (s *stage) slowly(a, b *actor, link verbs.LinkLayer) (end func()) {
	wires := s.wiresOf(a, b, link).SetBandwidth(512 * kib)
	return func() { wires.SetBandwidth(0) }
}

// tcpOnly starts two processes that have lost what is better than TCP.
func (s *stage) tcpOnly() (from, to *actor) {
	s.Helper()
	from, to = s.pair()
	from.unplug("mem0")
	from.unplug(verbs.LinkShared.String())
	from.overRoute(to, "tcp")
	s.until("both have left what was before", func() bool {
		return from.connection(to).Routes[0].State == verbstransport.StateDown && to.connection(from).Routes[0].State == verbstransport.StateDown
	})
	return from, to
}

// TestChangeToABetterRoute: a better device comes while one receive waits and the content of
// another one flows. The one that waits goes over it, the content ends where it began, and then
// the old channel is closed. Nothing is lost, and nothing takes gRPC.
func TestChangeToABetterRoute(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.tcpOnly()
	fast := s.slowly(from, to, verbs.LinkTCP)
	defer fast()
	waits, flows := from.key(to, "waits"), from.key(to, "flows")
	waiting, flowing := to.recv(1, waits), to.recv(1, flows)
	from.waiting(2)
	before := to.connection(from).Stats
	from.sendsBlob(1, flows, 5, 8*mib)
	from.waiting(1)
	from.plug(verbs.LinkShared.String())
	from.overRoute(to, "shm")
	from.exchange(to, 2)
	from.waiting(1)
	from.sendsBlob(1, waits, 6, 100*kib)
	waiting.isBlob(6, 100*kib)
	if !flowing.underWay() {
		t.Error("the content has come although its route is slow: it was sent again")
	}
	fast()
	flowing.isBlob(5, 8*mib)
	s.until("the old channel is closed", func() bool { return from.connection(to).Routes[2].State == verbstransport.StateDown })
	if now := to.connection(from).Stats; now.Lost != before.Lost || now.Without != before.Without {
		t.Errorf("lost %d, over gRPC %d", now.Lost-before.Lost, now.Without-before.Without)
	}
}

// TestDeafRouteIsNotTaken: no packet passes between the devices of the best route. The next one
// carries receives; the status says why. So it is when a deaf device comes later: the channel that
// is up goes on.
func TestDeafRouteIsNotTaken(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.tcpOnly()
	before := to.connection(from)
	s.wiresOf(from, to, verbs.LinkShared).Cut()
	from.plug(verbs.LinkShared.String())
	s.until("the route over shared memory has failed", func() bool {
		r := from.connection(to).Routes[0]
		return r.Better && strings.Contains(r.Why, "it has failed")
	})
	from.exchange(to, 1)
	if now := to.connection(from); now.Generation != before.Generation || now.Route != "tcp" || now.Stats.Lost+now.Stats.Without != before.Stats.Lost+before.Stats.Without {
		t.Errorf("%+v\nbefore %+v", now, before)
	}
}

// TestDeviceThatGoesUnderContent: the device that carries a content goes. The content comes over
// the next one, and not over gRPC; so does a receive that waits.
func TestDeviceThatGoesUnderContent(t *testing.T) {
	for name, gone := range map[string]func(*stage, *actor, *actor){
		"at the receiver": func(_ *stage, _, to *actor) { to.unplug(verbs.LinkShared.String()) },
		"at the sender":   func(_ *stage, from, _ *actor) { from.unplug(verbs.LinkShared.String()) },
		"the path":        func(s *stage, from, to *actor) { s.wiresOf(from, to, verbs.LinkShared).Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			o := sideBySide()
			o.parallel = true // contents flow slowly
			s := newStage(t, o)
			from, to := s.pair()
			from.overRoute(to, "shm")
			defer s.slowly(from, to, verbs.LinkShared)()
			before := to.connection(from).Stats
			flows, waits := from.key(to, "flows"), from.key(to, "waits")
			flowing, waiting := to.recv(1, flows), to.recv(1, waits)
			from.waiting(2)
			from.sendsBlob(1, flows, 5, 8*mib)
			from.waiting(1)
			gone(s, from, to)
			flowing.isBlob(5, 8*mib)
			from.sendsBlob(1, waits, 6, 100*kib)
			waiting.isBlob(6, 100*kib)
			if k := to.connection(from); k.Route != "rdma" || k.Stats.Without != before.Without {
				t.Errorf("%d receives took gRPC: %+v", k.Stats.Without-before.Without, k)
			}
		})
	}
}

// TestDeviceGoesBeforeItIsNoted: a channel breaks since its device is gone, and only later the
// process notes that. Receives wait for the next route and do not take gRPC.
func TestDeviceGoesBeforeItIsNoted(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.pair()
	from.overRoute(to, "shm")
	before := to.connection(from).Stats
	k := from.key(to, "waits")
	waiting := to.recv(1, k)
	from.waiting(1)
	release := to.transport.HoldDevices()
	to.unplug(verbs.LinkShared.String())
	s.until("the channel has ended", func() bool { return to.connection(from).Stats.Breaks > before.Breaks })
	if !to.transport.Expects(from.task) {
		t.Error("receives take gRPC before the next route is tried")
	}
	release()
	from.sendsBlob(1, k, 5, 100*kib)
	waiting.isBlob(5, 100*kib)
	if c := to.connection(from); c.Route != "rdma" || c.Stats.Without != before.Without {
		t.Errorf("%d receives took gRPC: %+v", c.Stats.Without-before.Without, c)
	}
}

// TestNewRouteBreaksDuringTheChange: the better route breaks while the content of the old one
// flows. The old channel goes on, with new receives, too.
func TestNewRouteBreaksDuringTheChange(t *testing.T) {
	s := newStage(t, sideBySide())
	from, to := s.tcpOnly()
	fast := s.slowly(from, to, verbs.LinkTCP)
	defer fast()
	flows := from.key(to, "flows")
	flowing := to.recv(1, flows)
	from.waiting(1)
	before := to.connection(from)
	from.sendsBlob(1, flows, 5, 8*mib)
	from.keeps(1)
	from.plug(verbs.LinkShared.String())
	from.overRoute(to, "shm")
	s.wiresOf(from, to, verbs.LinkShared).Cut()
	from.transport.CheckPeer(to.task) // nothing is sent that would find out
	from.overRoute(to, "tcp")
	fast()
	from.exchange(to, 2)
	flowing.isBlob(5, 8*mib)
	if now := to.connection(from); now.Generation != before.Generation || now.Stats.Without != before.Stats.Without {
		t.Errorf("%+v\nbefore %+v", now, before)
	}
}

// TestChangeOfRouteIsLogged: each change is one line on each side, and so is the reason against a
// better route. The end of the old channel is no break.
func TestChangeOfRouteIsLogged(t *testing.T) {
	var all logs
	o := sideBySide()
	o.tune = func(task cluster.Task, o *verbstransport.Options) {
		o.Logger = slog.New(slog.NewTextHandler(logOf{&all, task.Index}, nil))
		o.Backoff = gateBackoff
	}
	s := newStage(t, o)
	from, to := s.tcpOnly()
	s.until("TCP is logged", func() bool {
		return strings.Contains(all.of(0), "route=tcp device=TCP") && strings.Contains(all.of(1), "route=tcp device=TCP")
	})
	begins := [2]int{len(all.of(0)), len(all.of(1))}
	from.plug(verbs.LinkShared.String())
	from.overRoute(to, "shm")
	from.exchange(to, 1)
	s.until("the old channel is closed", func() bool {
		return from.connection(to).Routes[2].State == verbstransport.StateDown && to.connection(from).Routes[2].State == verbstransport.StateDown
	})
	for task := range 2 {
		changed := `msg="tensors from and to the peer go over another device"`
		s.until("the change is logged", func() bool { return strings.Contains(all.of(task)[begins[task]:], changed) })
		// The peer may have left the old channel before this side has seen that it is replaced.
		first := regexp.MustCompile(`(?m)^.*"a channel broke".* left generation \d+" instead=shm\n`)
		if text := first.ReplaceAllString(all.of(task)[begins[task]:], ""); strings.Count(text, changed) != 1 || strings.Contains(text, "a channel was left") || strings.Contains(text, "closed the channel") ||
			strings.Contains(text, "a channel broke") || strings.Contains(text, "WARN") || strings.Contains(text, "go over verbs") {
			t.Errorf("task %d logs:\n%s", task, text)
		}
	}
	const why = `msg="a better route to the peer is not taken" peer=/job:worker/replica:0/task:0 route=rdma reason="/job:worker/replica:0/task:0 has no rdma device (see its setting provider)"`
	if !s.holds(func() bool { return strings.Contains(all.of(1), why) }) {
		t.Errorf("the reason against RDMA is not logged:\n%s", all.of(1))
	}
}

// TestReasonWithoutRoute: a process with several devices reports why no peer is reached: it is not
// there, or no device reaches it.
func TestReasonWithoutRoute(t *testing.T) {
	o := sideBySide()
	o.tune = func(task cluster.Task, o *verbstransport.Options) {
		o.Backoff = gateBackoff
		if task.Index != 1 {
			return
		}
		o.PortOptions, o.User = verbstransport.PortOptions{}, 2
		for i := range o.Fixed {
			o.Fixed[i].Addresses = nil
		}
	}
	s := newStage(t, o)
	from := s.start(1)
	gone := s.tasks[0]
	s.until("the peer that is not there is the reason", func() bool {
		k := from.connectionTo(gone)
		return k.Reason != nil && strings.Contains(k.Reason.Error(), "is not up")
	})
	to := s.startWith(0, transporttest.NodeOptions{})
	s.until("the devices are the reason", func() bool {
		k := from.connection(to)
		if k.Verbs { // TCP: the other side takes connections
			return k.Route == "tcp" && strings.Contains(k.Routes[0].Why, "run as two users")
		}
		return false
	})
	s.wiresOf(from, to, verbs.LinkTCP).Cut()
	from.unplug(verbs.LinkTCP.String())
	s.until("no device reaches the peer", func() bool {
		k := from.connection(to)
		return !k.Verbs && status.CodeOf(k.Reason) == status.FailedPrecondition && strings.Contains(k.Reason.Error(), "run as two users") &&
			strings.Contains(k.Reason.Error(), "this process has no tcp device")
	})
	if err := from.transport.Await(t.Context(), to.task); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("Await ends with %v", err)
	}
}

// TestSilentRouteIsGivenUp: both sides connect over the best route, and no packet comes. The next
// one is tried before the handshake gives up.
func TestSilentRouteIsGivenUp(t *testing.T) {
	o := sideBySide()
	o.path, o.parallel = patient, true // it waits for seconds
	s := newStage(t, o)
	s.c.fabric.Between(s.c.fabric.Host(s.tasks[0].String()).NIC(verbs.LinkShared.String()), s.c.fabric.Host(s.tasks[1].String()).NIC(verbs.LinkShared.String())).Cut()
	begin := time.Now()
	from, to := s.pair()
	from.overRoute(to, "rdma")
	if took := time.Since(begin); took >= handshake.HelloWait {
		t.Errorf("it took %v", took)
	}
	if why := from.connection(to).Routes[0].Why; !strings.Contains(why, "has failed") {
		t.Errorf("the reason is %q", why)
	}
}

// TestChangeOfADeviceIsNoFailure: a process changes to another device of the same provider. Its channels
// end and are made again over that, and no other route carries receives.
func TestChangeOfADeviceIsNoFailure(t *testing.T) {
	for i, name := range []string{"of the side that proposes", "of the other side"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, sideBySide())
			from, to := s.pair()
			from.overRoute(to, "shm")
			for step := range int64(4) {
				before := from.connection(to).Generation
				[]*actor{from, to}[i].replug(verbs.LinkShared.String())
				s.until("another channel is up", func() bool {
					k, other := from.connection(to), to.connection(from)
					return k.Verbs && k.Generation > before && other.Generation == k.Generation
				})
				for _, k := range []verbstransport.Connection{from.connection(to), to.connection(from)} {
					if k.Route != "shm" {
						t.Fatalf("the route is %s: %+v", k.Route, k.Routes)
					}
				}
				from.exchange(to, step+1)
			}
		})
	}
}

// replug makes a process use another device of a provider in place of the present one.
func (a *actor) replug(name string) {
	a.s.Helper()
	d, err := a.s.c.fabric.Provider(a.task.String()).Open(name)
	if err != nil {
		a.s.Fatal(err)
	}
	a.use(d)
}

// TestBetterRouteThatIsHeardByOneSideIsGivenUp: a better route comes, and only one of the sides hears
// the other over it. That side has the other one's receives sent again over it, where they cannot be.
func TestBetterRouteThatIsHeardByOneSideIsGivenUp(t *testing.T) {
	o := sideBySide()
	o.path, o.parallel = patient, true // it waits for seconds
	o.tune = func(task cluster.Task, o *verbstransport.Options) {
		if o.Backoff = gateBackoff; task.Index == 0 {
			o.PortOptions, o.Fixed = verbstransport.PortOptions{}, o.Fixed[:1]
		}
	}
	s := newStage(t, o)
	from, to := s.pair()
	from.overRoute(to, "tcp")
	fast := s.slowly(from, to, verbs.LinkTCP)
	defer fast()
	flows := to.key(from, "flows")
	flowing := from.recv(1, flows) // keeps the present channel
	to.waiting(1)
	to.sendsBlob(1, flows, 5, 8*mib)
	to.waiting(0)
	name := verbs.LinkShared.String()
	s.c.fabric.Toward(to.host().NIC(name), from.host().NIC(name)).Cut() // what the side that called hears
	from.plug(name)
	s.until("one side takes the better route", func() bool { return to.connection(from).Route == "shm" })
	begin, k := time.Now(), to.key(from, "v")
	receive := from.recv(1, k)
	to.sendsBlob(1, k, 1, 100)
	receive.isBlob(1, 100)
	if took := time.Since(begin); took >= handshake.HelloWait {
		t.Errorf("the receive took %v", took)
	}
	fast()
	flowing.isBlob(5, 8*mib)
}
