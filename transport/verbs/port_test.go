package verbstransport_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// pair is two processes; the first receives from the second.
type pair struct {
	t        *testing.T
	to, from *suiteNode
	step     int64
	sender   uint64        // incarnation of from
	slow     time.Duration // longer than any step takes
}

func newPair(t *testing.T, o clusterOptions) *pair {
	t.Helper()
	tasks := []cluster.Task{{Job: "worker"}, {Job: "worker", Index: 1}}
	c := newCluster(o)(t, tasks)
	p := &pair{t: t, sender: 2, slow: 20 * time.Second}
	for i, at := range []**suiteNode{&p.to, &p.from} {
		n, ok := c.Start(tasks[i], transporttest.NodeOptions{
			Incarnation: uint64(i + 1), Allocator: tensortest.NewAllocator(t), PeerTimeout: 10 * time.Second,
		}).(*suiteNode)
		if !ok {
			t.Fatal("it is no node of the suite")
		}
		*at = n
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.slow)
		defer cancel()
		for _, n := range []*suiteNode{p.to, p.from} {
			if err := n.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// connection is how the receiving side reports its connection to the other.
func (p *pair) connection() verbstransport.Connection {
	for _, l := range p.to.transport.Connections() {
		if l.Task == p.from.task {
			return l
		}
	}
	return verbstransport.Connection{}
}

// until waits until ok is true of that report.
func (p *pair) until(what string, ok func(verbstransport.Connection) bool) verbstransport.Connection {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(p.slow); ; <-tick.C {
		if l := p.connection(); ok(l) {
			return l
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s: it never came to that: %+v", what, p.connection())
		}
	}
}

func isUp(l verbstransport.Connection) bool { return l.Verbs }

// exchange transfers a tensor that is too large for a message.
func (p *pair) exchange() {
	p.t.Helper()
	p.step++
	key, err := rendezvous.NewKey(cluster.Device{Task: p.from.task, Type: "CPU"}, p.sender, cluster.Device{Task: p.to.task, Type: "CPU"}, "x", rendezvous.FrameIter{})
	if err != nil {
		p.t.Fatal(err)
	}
	x := tensortest.Random(rand.New(rand.NewPCG(uint64(p.step), 0)), tensor.Float32, tensortest.Shape(p.t, 64<<10), tensor.Heap{}) //nolint:gosec // a test that can be repeated
	defer x.Release()
	if err := p.from.manager.Find(p.step).Send(key, rendezvous.Args{}, x, false); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	p.to.manager.Find(p.step).RecvAsync(p.t.Context(), key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		if err == nil {
			if !tensor.Equal(v.Tensor, x) {
				p.t.Error("another tensor came")
			}
			v.Tensor.Release()
		}
		done <- err
	})
	select {
	case err := <-done:
		if err != nil {
			p.t.Fatal(err)
		}
	case <-time.After(p.slow):
		p.t.Fatal("nothing came")
	}
	for _, n := range []*suiteNode{p.to, p.from} {
		n.manager.Cleanup(p.step)
	}
}

// nic is the fabric's view of a node's device.
func (p *pair) nic(n *suiteNode) *verbstest.NIC {
	return n.c.fabric.Host(n.task.String()).NIC(n.device.Info().Name)
}

// address is the GID entry that a node has used since its start.
func (p *pair) address(n *suiteNode) verbs.GIDEntry {
	p.t.Helper()
	a, err := address(n.device)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// TestAddressGoesAndComesBackElsewhere: without its address verbs is down, with the
// reason, and tensors take gRPC. When the address is back, at another index, verbs is up
// again.
func TestAddressGoesAndComesBackElsewhere(t *testing.T) {
	p := newPair(t, clusterOptions{})
	nic, a := p.nic(p.to), p.address(p.to)
	first := p.until("verbs at first", isUp)
	p.exchange()
	if n := p.connection().Stats.Received; n != 1 {
		t.Errorf("%d tensors came over verbs, want 1", n)
	}

	nic.SetGID(1, a.Index, verbs.GID{})
	gone := p.until("no verbs", func(l verbstransport.Connection) bool { return !l.Verbs && l.Reason != nil })
	if !strings.Contains(gone.Reason.Error(), a.GID.String()) || !strings.Contains(gone.Reason.Error(), "gone") {
		t.Errorf("the reason is %q; want that %v is gone", gone.Reason, a.GID)
	}
	p.exchange()
	if l := p.connection(); l.Verbs || l.Stats.Received != 1 || l.Stats.Without == 0 {
		t.Errorf("without the address: %+v; want no tensor over verbs", l)
	}

	// The old index belongs to another address now. A queue pair that used it would reach
	// no peer.
	other := a.GID
	other[15]++
	nic.SetGID(1, a.Index, other)
	nic.SetGID(1, a.Index+4, a.GID)
	again := p.until("verbs again", isUp)
	if again.Generation <= first.Generation {
		t.Errorf("generation %d came back as %d", first.Generation, again.Generation)
	}
	p.exchange()
	if l := p.connection(); l.Stats.Received != 2 {
		t.Errorf("%+v; want a second tensor over verbs", l)
	}
}

// TestAnotherAddressStandsForIt: if a substitute is allowed, verbs comes back with it,
// and with the first address when that is back.
func TestAnotherAddressStandsForIt(t *testing.T) {
	p := newPair(t, clusterOptions{tune: func(_ cluster.Task, o *verbstransport.Options) { o.Again = discovery.Again }})
	nic, a := p.nic(p.to), p.address(p.to)
	first := p.until("verbs at first", isUp)
	p.exchange()

	other, link := a.GID, a.GID
	other[15]++
	link[12], link[13] = 169, 254 // of another scope
	nic.SetGID(1, a.Index+1, link)
	nic.SetGID(1, a.Index, verbs.GID{})
	p.until("no verbs", func(l verbstransport.Connection) bool { return !l.Verbs && l.Reason != nil })
	nic.SetGID(1, a.Index+4, other)
	second := p.until("verbs from the other address", isUp)
	if second.Generation <= first.Generation {
		t.Errorf("generation %d came back as %d", first.Generation, second.Generation)
	}
	p.exchange()
	nic.SetGID(1, a.Index+2, a.GID)
	nic.SetGID(1, a.Index+4, verbs.GID{})
	p.until("verbs from the first address", func(l verbstransport.Connection) bool { return l.Verbs && l.Generation > second.Generation })
	p.exchange()
	if l := p.connection(); l.Stats.Received != 3 {
		t.Errorf("%+v; want three tensors over verbs", l)
	}
}

// TestAddressThatStays: changes of other entries, or a second entry of the address, have
// no effect.
func TestAddressThatStays(t *testing.T) {
	p := newPair(t, clusterOptions{})
	first := p.until("verbs at first", isUp)
	nic, a := p.nic(p.to), p.address(p.to)
	other := a.GID
	other[15]++
	nic.SetGID(1, a.Index+1, other)
	nic.SetGID(1, a.Index+2, a.GID)
	nic.SetGID(1, a.Index+2, verbs.GID{})
	nic.SetGID(1, a.Index, a.GID) // a lookup by GID finds the last entry; now there is one again
	p.exchange()
	if l := p.connection(); !l.Verbs || l.Generation != first.Generation || l.Stats.Received != 1 {
		t.Errorf("%+v; want generation %d still", l, first.Generation)
	}
}

// TestPortThatFlaps: while the port is down no channel is made, and the reason is
// reported. New channels use a lower path MTU of the port.
func TestPortThatFlaps(t *testing.T) {
	p := newPair(t, clusterOptions{})
	p.until("verbs at first", isUp)
	p.exchange()
	nic := p.nic(p.to)
	nic.PortDown(1)
	// The channel is idle and would not notice soon, so break it.
	p.exchange()
	l := p.until("no verbs", func(l verbstransport.Connection) bool {
		return !l.Verbs && l.Reason != nil && strings.Contains(l.Reason.Error(), "DOWN")
	})
	t.Log(l.Reason)
	p.exchange()
	nic.PortUp(1)
	p.until("verbs again", isUp)
	p.exchange()
	if l := p.connection(); l.Stats.Received != 2 || l.Stats.Breaks != 1 {
		t.Errorf("%+v; want two tensors over verbs and one break", l)
	}
}

// narrow is a device whose port reports an active MTU of the test, and which records the
// last path MTU.
type narrow struct {
	verbs.Device
	mtu  atomic.Int64
	last atomic.Int64 // of the last queue pair in RTR
}

func (d *narrow) Port(n uint8) (verbs.PortInfo, error) {
	info, err := d.Device.Port(n)
	info.ActiveMTU = verbs.MTU(d.mtu.Load())
	return info, err
}

func (d *narrow) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return narrowPD{pd, d}, err
}

type narrowPD struct {
	verbs.PD
	d *narrow
}

func (p narrowPD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	qp, err := p.PD.CreateQP(c)
	return narrowQP{qp, p.d}, err
}

type narrowQP struct {
	verbs.QP
	d *narrow
}

func (q narrowQP) ToRTR(a verbs.RTRAttr) error {
	q.d.last.Store(int64(a.MTU))
	return q.QP.ToRTR(a)
}

// TestMTUFollowsThePort: new channels use the present path MTU of the port, since that of
// its network device may have been lowered.
func TestMTUFollowsThePort(t *testing.T) {
	var d *narrow
	p := newPair(t, clusterOptions{wrap: func(task cluster.Task, dev verbs.Device) verbs.Device {
		if task.Index != 0 {
			return dev
		}
		d = &narrow{Device: dev}
		d.mtu.Store(2048)
		return d
	}})
	p.until("verbs at first", isUp)
	if d.last.Load() != 2048 {
		t.Errorf("the path MTU is %d, want 2048", d.last.Load())
	}
	for _, mtu := range []int64{1024, 4096} { // not raised beyond the first one
		was := p.connection().Generation
		d.mtu.Store(mtu)
		nic, a := p.nic(p.to), p.address(p.to)
		nic.SetGID(1, a.Index, verbs.GID{})
		p.until("no verbs", func(l verbstransport.Connection) bool { return !l.Verbs })
		nic.SetGID(1, a.Index, a.GID)
		p.until("verbs again", func(l verbstransport.Connection) bool { return l.Verbs && l.Generation > was })
		p.exchange()
		if want := min(mtu, 2048); d.last.Load() != want {
			t.Errorf("with an active MTU of %d the path MTU is %d, want %d", mtu, d.last.Load(), want)
		}
	}
}

// mute is a device whose port cannot be queried any more and which reports no event.
type mute struct {
	verbs.Device
	gone atomic.Bool
}

func (d *mute) Port(n uint8) (verbs.PortInfo, error) {
	if d.gone.Load() {
		return verbs.PortInfo{}, verbs.Errorf("query port", d.Info().Name, verbs.ErrDeviceGone, "it was unplugged")
	}
	return d.Device.Port(n)
}

// TestDeviceThatIsGoneWithoutAnEvent: making a new channel reveals that the device is
// gone, and closes everything on it.
func TestDeviceThatIsGoneWithoutAnEvent(t *testing.T) {
	var d *mute
	s := newStage(t, quick(clusterOptions{wrap: func(task cluster.Task, dev verbs.Device) verbs.Device {
		if task.Index == 0 {
			return dev
		}
		d = &mute{Device: dev}
		return d
	}}))
	from, to := s.pair()
	from.sendsBlob(1, from.key(to, "v"), 1, mib)
	to.recv(1, from.key(to, "v")).isBlob(1, mib)
	d.gone.Store(true)
	s.cut(from, to)
	s.until("nothing of the device is open", func() bool { return to.device.Counts() == verbs.Counts{} })
	if l := to.connection(from); l.Verbs || !errors.Is(l.Reason, verbs.ErrDeviceGone) {
		t.Errorf("%+v: want that the device is gone", l)
	}
	from.sendsBlob(2, from.key(to, "v"), 2, mib)
	to.recv(2, from.key(to, "v")).isBlob(2, mib)
}
