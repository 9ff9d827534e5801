package verbstransport_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// gates disturb a cluster whose devices have connections that a test cannot reach. The
// posts of a task go through its gate, which counts them, holds them back, or breaks the
// queue pairs. A gate does not affect what has passed it: that arrives, is acknowledged
// and completes.
//
// mu is held from the decision to the post, so nothing is posted out of order.
type gates struct {
	t     testing.TB
	mu    sync.Mutex
	tasks map[cluster.Task]*gate
	over  bool
}

// gate handles the posts of all processes of a task. Guarded by gates.mu.
type gate struct {
	of      *gates
	task    cluster.Task
	qps     map[*gatedQP]struct{} // open ones
	carried uint64                // bytes posted
	held    bool
	cut     gateMark
	hold    gateMark
	rate    int64       // maximum rate of posts in bytes per second; 0 for no limit
	free    time.Time   // earliest time of the next post
	timer   *time.Timer // fires at free
}

// gateMark is a number of carried bytes at which an action runs.
type gateMark struct {
	at      uint64
	also    func()        // runs with the action; must not block
	reached chan struct{} // closed when the mark is reached; nil when there is no mark
}

// gateBackoff is shorter than the default, since the cases break many channels.
const gateBackoff = 20 * time.Millisecond

// TestSuiteGated runs the suite with gates in place of a fabric that is disturbed.
func TestSuiteGated(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{
		New: newCluster(clusterOptions{
			require: true, gate: true,
			tune: func(_ cluster.Task, o *verbstransport.Options) { o.Backoff = gateBackoff },
		}),
		MaxSize: 4 << 20, Registered: true, Parallel: true,
		Only: []string{"Abort", "Cancel", "Peer", "Publication", "Slow"},
	})
}

func newGates(t testing.TB) *gates {
	s := &gates{t: t, tasks: make(map[cluster.Task]*gate)}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
		for _, g := range s.tasks {
			g.timer.Stop()
		}
	})
	return s
}

// gate returns the gate of a task, and makes it at the first call.
func (s *gates) gate(task cluster.Task) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.tasks[task]
	if g == nil {
		g = &gate{of: s, task: task, qps: make(map[*gatedQP]struct{})}
		g.timer = time.AfterFunc(time.Hour, func() { g.do(g.flow) })
		g.timer.Stop()
		s.tasks[task] = g
	}
	return g
}

// do calls f with gates.mu held, unless the test has ended.
func (g *gate) do(f func()) {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	if !g.of.over {
		f()
	}
}

// device wraps the device of a process of the task.
func (g *gate) device(d verbs.Device) (verbs.Device, error) {
	gd := &gatedDevice{Device: d, gate: g}
	for port := range d.Info().Ports {
		gids, err := d.GIDs(port + 1)
		if err != nil {
			return nil, err
		}
		for _, e := range gids {
			gd.gids = append(gd.gids, e.GID)
		}
	}
	return gd, nil
}

func (g *gate) cutAfter(n int64, also func()) <-chan struct{} {
	return g.mark(&g.cut, n, also)
}

func (g *gate) holdAfter(n int64, also func()) <-chan struct{} {
	return g.mark(&g.hold, n, also)
}

func (g *gate) mark(m *gateMark, n int64, also func()) <-chan struct{} {
	c := make(chan struct{})
	g.do(func() {
		*m = gateMark{at: g.carried + uint64(n), also: also, reached: c} //nolint:gosec // a number of bytes
		g.check(0)
	})
	return c
}

// release ends a hold, and cancels marks that are not reached.
func (g *gate) release() {
	g.do(func() {
		g.held, g.cut, g.hold = false, gateMark{}, gateMark{}
		for _, other := range g.of.tasks {
			other.flow()
		}
	})
}

func (g *gate) throttle(bytesPerSecond int64) {
	g.do(func() {
		g.rate, g.free = bytesPerSecond, time.Time{}
		g.flow()
	})
}

// reachedBy reports whether the mark is reached when n more bytes pass.
func (m *gateMark) reachedBy(carried, n uint64) bool {
	return m.reached != nil && (carried >= m.at || carried+n > m.at)
}

// happen runs the mark's action and clears the mark.
func (m *gateMark) happen() {
	m.also()
	close(m.reached)
	*m = gateMark{}
}

// check runs the marks that are reached before n more bytes pass. Called with gates.mu
// held.
func (g *gate) check(n uint64) {
	if g.hold.reachedBy(g.carried, n) {
		g.held = true
		g.hold.happen()
	}
	if g.cut.reachedBy(g.carried, n) {
		for q := range g.qps {
			if q.state == verbs.StateRTS {
				q.breakNow()
			}
		}
		g.cut.happen()
	}
}

// flow posts what is held back and may be posted now. Called with gates.mu held.
func (g *gate) flow() {
	paced := false
	for q := range g.qps {
		for len(q.kept) > 0 && !q.stopped(time.Now()) {
			if g.check(q.kept[0].Len()); len(q.kept) > 0 && !q.stopped(time.Now()) {
				q.next()
			}
		}
		paced = paced || len(q.kept) > 0 && !q.held()
	}
	if paced {
		g.timer.Reset(time.Until(g.free))
	}
}

// gatedDevice is a device whose queue pairs are gated.
type gatedDevice struct {
	verbs.Device
	gate *gate
	gids []verbs.GID // its addresses
	dead bool        // the process was killed; guarded by gates.mu
}

// kill ends the process without notice to its peers: it posts nothing any more.
func (d *gatedDevice) kill() {
	d.gate.do(func() {
		d.dead = true
		for q := range d.gate.qps {
			if q.device == d && (q.state == verbs.StateRTR || q.state == verbs.StateRTS) {
				q.breakNow()
			}
		}
	})
}

// alive returns an error after kill. Called with gates.mu held.
func (d *gatedDevice) alive(op string) error {
	if d.dead {
		return verbs.Errorf(op, d.Info().Name, verbs.ErrDeviceGone, "the process of %v was killed", d.gate.task)
	}
	return nil
}

func (d *gatedDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return &gatedPD{PD: pd, device: d}, nil
}

type gatedPD struct {
	verbs.PD
	device *gatedDevice
}

func (p *gatedPD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	g := p.device.gate
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	if err := p.device.alive("create QP"); err != nil {
		return nil, err
	}
	qp, err := p.PD.CreateQP(c)
	if err != nil {
		return nil, err
	}
	q := &gatedQP{QP: qp, device: p.device, gate: g}
	g.qps[q] = struct{}{}
	return q, nil
}

// gatedQP is a queue pair whose sends go through the gate. Memory of sends that are held
// back belongs to the device, by the rules of verbs.QP.
type gatedQP struct {
	verbs.QP
	device *gatedDevice
	gate   *gate

	// The fields below are guarded by gates.mu.
	peer  *gate         // of the task at the other end; nil for one outside the cluster
	state verbs.QPState // the last state set through the gate; only posts in RTS are held back
	kept  []verbs.SendWR
}

func (q *gatedQP) ToRTR(a verbs.RTRAttr) error {
	q.gate.of.mu.Lock()
	defer q.gate.of.mu.Unlock()
	if err := q.device.alive("connect QP"); err != nil {
		return err
	}
	for _, g := range q.gate.of.tasks {
		for other := range g.qps {
			if other.QPN() == a.Peer.QPN && slices.Contains(other.device.gids, a.Peer.GID) {
				q.peer = g
			}
		}
	}
	return q.to(verbs.StateRTR, q.QP.ToRTR(a))
}

func (q *gatedQP) ToRTS(a verbs.RTSAttr) error {
	q.gate.of.mu.Lock()
	defer q.gate.of.mu.Unlock()
	if err := q.device.alive("connect QP"); err != nil {
		return err
	}
	return q.to(verbs.StateRTS, q.QP.ToRTS(a))
}

// to records the state after a successful transition.
func (q *gatedQP) to(s verbs.QPState, err error) error {
	if err == nil {
		q.state = s
	}
	return err
}

func (q *gatedQP) ToErr() error {
	q.gate.of.mu.Lock()
	defer q.gate.of.mu.Unlock()
	return q.toErr()
}

// toErr moves the queue pair to ERR and posts what was held back, so that the device
// flushes it. Called with gates.mu held.
func (q *gatedQP) toErr() error {
	if err := q.to(verbs.StateErr, q.QP.ToErr()); err != nil || len(q.kept) == 0 {
		return err
	}
	_, err := q.QP.PostSend(q.kept)
	q.kept = nil
	return err
}

func (q *gatedQP) ToReset() error {
	q.gate.of.mu.Lock()
	defer q.gate.of.mu.Unlock()
	q.kept = nil // a reset drops what was posted
	return q.to(verbs.StateReset, q.QP.ToReset())
}

// breakNow breaks a queue pair on purpose. Called with gates.mu held.
func (q *gatedQP) breakNow() {
	if err := q.toErr(); err != nil {
		q.gate.of.t.Errorf("breaking QP %v of %v: %v", q.QPN(), q.gate.task, err)
	}
}

// held reports whether either end holds posts back. Called with gates.mu held.
func (q *gatedQP) held() bool { return q.gate.held || q.peer != nil && q.peer.held }

// stopped reports whether nothing may be posted now. Called with gates.mu held.
func (q *gatedQP) stopped(now time.Time) bool {
	return q.held() || q.gate.rate > 0 && now.Before(q.gate.free)
}

// next posts the first work request that was held back. An error cannot be returned to
// its caller, so it breaks the queue pair and fails the test. Called with gates.mu held.
func (q *gatedQP) next() {
	g := q.gate
	n := q.kept[0].Len()
	_, err := q.QP.PostSend(q.kept[:1])
	q.kept = q.kept[1:]
	if err != nil {
		g.of.t.Errorf("post of QP %v of %v, which was kept back: %v; then ERR: %v", q.QPN(), g.task, err, q.toErr())
		return
	}
	g.carried += n
	if g.rate > 0 {
		g.free = time.Now().Add(time.Duration(float64(n) / float64(g.rate) * float64(time.Second)))
	}
	g.check(0)
}

// keeps takes over work requests that must not be posted now, and reports whether it has.
// Called with gates.mu held.
func (q *gatedQP) keeps(wrs []verbs.SendWR) bool {
	var n uint64
	for i := range wrs {
		n += wrs[i].Len()
	}
	g := q.gate
	if q.state != verbs.StateRTS || len(q.kept) == 0 && !q.held() && g.rate == 0 &&
		(g.cut.reached == nil || g.carried+n < g.cut.at) && (g.hold.reached == nil || g.carried+n < g.hold.at) {
		return false
	}
	for _, wr := range wrs {
		wr.SGL, wr.Inline = slices.Clone(wr.SGL), slices.Clone(wr.Inline)
		q.kept = append(q.kept, wr)
	}
	g.flow()
	return true
}

// count counts work requests that were posted directly.
func (q *gatedQP) count(wrs []verbs.SendWR) {
	for i := range wrs {
		q.gate.carried += wrs[i].Len()
	}
}

func (q *gatedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.gate.of.mu.Lock()
	defer q.gate.of.mu.Unlock()
	if q.keeps(wrs) {
		return len(wrs), nil
	}
	n, err := q.QP.PostSend(wrs)
	q.count(wrs[:n])
	return n, err
}

func (q *gatedQP) PostSendAndPoll(wrs []verbs.SendWR, cq verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	q.gate.of.mu.Lock()
	defer q.gate.of.mu.Unlock()
	if q.keeps(wrs) {
		polled, err = cq.Poll(wcs)
		return len(wrs), polled, err
	}
	posted, polled, err = q.QP.PostSendAndPoll(wrs, cq, wcs)
	q.count(wrs[:posted])
	return posted, polled, err
}

// BindWindow is a post as well, and must not overtake others.
func (q *gatedQP) BindWindow(mr verbs.MR, offset, length uint64, access verbs.Access) (verbs.Window, error) {
	q.gate.of.mu.Lock()
	defer q.gate.of.mu.Unlock()
	if len(q.kept) > 0 {
		return nil, verbs.Errorf("bind window", q.gate.task.String(), verbs.ErrQueueFull, "posts of QP %v are kept back", q.QPN())
	}
	return q.QP.BindWindow(mr, offset, length, access)
}

// Close drops what was held back.
func (q *gatedQP) Close() error {
	q.gate.of.mu.Lock()
	delete(q.gate.qps, q)
	q.kept = nil
	q.gate.of.mu.Unlock()
	return q.QP.Close()
}

// gatedFaults is a transporttest.Faults: the gate of a task, and its gRPC proxy.
type gatedFaults struct {
	gate  *gate
	proxy *transporttest.Proxy
}

func (f gatedFaults) CutAfter(n int64) <-chan struct{} {
	return f.gate.cutAfter(n, func() { f.proxy.CutAfter(0) })
}

func (f gatedFaults) HoldAfter(n int64) <-chan struct{} {
	return f.gate.holdAfter(n, func() { f.proxy.HoldAfter(0) })
}

func (f gatedFaults) Release() {
	f.proxy.Release()
	f.gate.release()
}

func (f gatedFaults) Throttle(bytesPerSecond int64) {
	f.proxy.Throttle(bytesPerSecond)
	f.gate.throttle(bytesPerSecond)
}

// gatedEnd is a queue pair on a fabric behind a gate.
type gatedEnd struct {
	t    *testing.T
	gate *gate
	cq   verbs.CQ
	qp   verbs.QP
	mr   verbs.MR
	mem  []byte
}

// gatedPair connects two of them. The second has 16 receives of 16 bytes; the first
// sends.
func gatedPair(t *testing.T) (a, b *gatedEnd) {
	fabric, s := verbstest.NewFabric(verbstest.Options{}), newGates(t)
	t.Cleanup(fabric.Close)
	var ends [2]*gatedEnd
	var points [2]verbs.Endpoint
	path := verbs.Path{Port: 1, MTU: verbs.MTU1024, Timeout: verbs.TimeoutCode(2 * time.Millisecond), Retry: 3, RNRRetry: 3}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range ends {
		task := cluster.Task{Job: "worker", Index: i}
		e := &gatedEnd{t: t, gate: s.gate(task), mem: make([]byte, 256)}
		d, err := fabric.Provider(task.String()).Open("mem0")
		ok(err)
		d, err = e.gate.device(d)
		ok(err)
		pd, err := d.AllocPD()
		ok(err)
		e.mr, err = pd.RegisterMemory(e.mem, verbs.AccessLocalWrite)
		ok(err)
		e.cq, err = d.CreateCQ(verbs.CQConfig{Size: 64})
		ok(err)
		e.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 16, MaxRecv: 16, MaxInline: 16})
		ok(err)
		ok(path.Init(e.qp))
		address, err := address(d)
		ok(err)
		points[i], ends[i] = e.qp.Endpoint(), e
		points[i].GID, path.SGIDIndex = address.GID, uint8(address.Index) //nolint:gosec // of a small table
		t.Cleanup(func() {
			for _, c := range []interface{ Close() error }{e.qp, e.cq, e.mr, pd, d} {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range uint64(16) {
		_, err := ends[1].qp.PostRecv([]verbs.RecvWR{{ID: verbs.WRID(i), SGL: []verbs.SGE{{Addr: ends[1].mr.Addr() + 16*i, Length: 16, LKey: ends[1].mr.LKey()}}}})
		ok(err)
	}
	for i, e := range ends {
		ok(path.Connect(e.qp, 0, points[1-i]))
	}
	return ends[0], ends[1]
}

// post posts texts, alternately inline and from memory, in one list.
func (e *gatedEnd) post(texts ...string) {
	e.t.Helper()
	wrs := make([]verbs.SendWR, len(texts))
	for i, text := range texts {
		wrs[i] = verbs.SendWR{Op: verbs.OpSend, Signaled: true, Inline: []byte(text)}
		if i%2 > 0 {
			copy(e.mem[16*i:], text)
			wrs[i].Inline, wrs[i].SGL = nil, []verbs.SGE{{Addr: e.mr.Addr() + 16*uint64(i), Length: uint32(len(text)), LKey: e.mr.LKey()}} //nolint:gosec // small
		}
	}
	n, polled, err := e.qp.PostSendAndPoll(wrs, e.cq, nil)
	if n != len(wrs) || polled != 0 || err != nil {
		e.t.Fatalf("%d posted, %d polled, %v", n, polled, err)
	}
	for i := range wrs { // inline data belongs to the caller again
		copy(wrs[i].Inline, "????????")
		clear(wrs[i].SGL)
	}
}

// completions waits for n completions and returns a word for each: the received text, or
// the status.
func (e *gatedEnd) completions(n int) string {
	e.t.Helper()
	var words []string
	wcs := make([]verbs.WC, 1)
	for end := time.Now().Add(10 * time.Second); len(words) < n; {
		polled, err := e.cq.Poll(wcs)
		if err != nil || time.Now().After(end) {
			e.t.Fatalf("%v of %d completions, %v", words, n, err)
		}
		switch wc := wcs[0]; {
		case polled == 0:
		case wc.Status != verbs.StatusOK || wc.Op != verbs.WCRecv:
			words = append(words, wc.Status.String())
		default:
			at := 16 * uint32(wc.ID) //nolint:gosec // small
			words = append(words, string(e.mem[at:at+wc.Len]))
		}
	}
	return strings.Join(words, " ")
}

func (e *gatedEnd) nothing() {
	e.t.Helper()
	if n, err := e.cq.Poll(make([]verbs.WC, 1)); n > 0 || err != nil {
		e.t.Fatalf("%d completions, %v; want none", n, err)
	}
}

func never() {}

func happened(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestGateKeepsOrder: what is held back is posted in order with its original content,
// after a release at either end, and when a mark splits a list.
func TestGateKeepsOrder(t *testing.T) {
	a, b := gatedPair(t)
	held := a.gate.holdAfter(5, never)
	a.post("one", "two", "three")
	if got := b.completions(1); got != "one" || !happened(held) {
		t.Errorf("%q came of 5 bytes; held: %v", got, happened(held))
	}
	a.post("four")
	b.nothing()
	a.gate.release()
	if got := b.completions(3); got != "two three four" {
		t.Errorf("after the release came %q", got)
	}
	b.gate.holdAfter(0, never)
	a.post("five")
	b.nothing()
	b.gate.release()
	if got := b.completions(1); got != "five" {
		t.Errorf("after the release of the other end came %q", got)
	}
}

// TestGateFlushes: a cut, and ToErr, flush what is held back.
func TestGateFlushes(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(a *gatedEnd)
	}{
		{"Cut", func(a *gatedEnd) {
			if !happened(a.gate.cutAfter(0, never)) {
				a.t.Error("there was no cut")
			}
		}},
		{"ToErr", func(a *gatedEnd) {
			if err := a.qp.ToErr(); err != nil {
				a.t.Error(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := gatedPair(t)
			a.gate.holdAfter(0, never)
			a.post("one", "two")
			c.do(a)
			a.post("three")
			flushed := verbs.StatusFlushed.String()
			if got := a.completions(3); got != strings.Join([]string{flushed, flushed, flushed}, " ") {
				t.Errorf("the posts completed with %q", got)
			}
			a.gate.release()
			b.nothing()
		})
	}
}

// TestGateDrops: what is held back is not posted after the queue pair is closed or the
// process is killed.
func TestGateDrops(t *testing.T) {
	for _, killed := range []bool{false, true} {
		a, b := gatedPair(t)
		a.gate.holdAfter(0, never)
		a.post("one")
		if q, ok := a.qp.(*gatedQP); ok && killed {
			q.device.kill()
		} else if err := a.qp.Close(); err != nil {
			t.Fatal(err)
		}
		a.gate.release()
		b.nothing()
	}
}

// TestGateThrottles: a rate limit holds and keeps the order.
func TestGateThrottles(t *testing.T) {
	a, b := gatedPair(t)
	begun := time.Now()
	a.gate.throttle(200)
	a.post("one", "two", "three")
	a.post("four")
	if got := b.completions(4); got != "one two three four" {
		t.Errorf("there came %q", got)
	}
	if d := time.Since(begun); d < 11*time.Second/200 {
		t.Errorf("11 bytes at 200 a second left before the last after %v", d)
	}
}
