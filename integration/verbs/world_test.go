//go:build rxe && linux

package verbs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/transporttest"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// patience bounds what must not hang, on an emulated processor that others share.
const patience = 5 * time.Minute

// lookEvery is how often a node or the kernel is asked whether something is so.
const lookEvery = 50 * time.Millisecond

// world is what one test has: an address by which each task is called, which stays
// when its process changes, and processes.
type world struct {
	t       *testing.T
	devices []string
	proxies []*transporttest.Proxy
	nodes   []*process
	step    int64 // the present one
	parcels int   // that there were
}

// newWorld has the addresses of some tasks. When the test has ended and its
// processes are gone, the kernel counts as many objects as now.
func newWorld(t *testing.T, tasks int) *world {
	t.Helper()
	w := &world{t: t, devices: strings.Split(os.Getenv("TRYST_TEST_DEVICES"), ",")}
	if len(w.devices) != 2 {
		t.Fatalf("TRYST_TEST_DEVICES is %q, and must name two devices", os.Getenv("TRYST_TEST_DEVICES"))
	}
	before := w.objects()
	t.Cleanup(func() {
		w.eventually("the kernel has as many objects as before", func() (string, bool) {
			now := w.objects()
			return describe(before) + " before, now " + describe(now), maps.Equal(now, before)
		})
	})
	for range tasks {
		w.proxies = append(w.proxies, transporttest.NewProxy(t))
	}
	return w
}

// within lets a subtest use the world: it is the one that fails.
func (w *world) within(t *testing.T) *world {
	outer := w.t
	w.t = t
	t.Cleanup(func() { w.t = outer })
	return w
}

// objects counts what the kernel has of each device.
func (w *world) objects() map[string]discovery.ResourceCounts {
	w.t.Helper()
	m := make(map[string]discovery.ResourceCounts)
	for _, d := range w.devices {
		n, err := discovery.Resources(d)
		if err != nil {
			w.t.Fatal(err)
		}
		m[d] = n
	}
	return m
}

func describe(m map[string]discovery.ResourceCounts) string {
	var all []string
	for _, d := range []string{"rxe0", "rxe1"} {
		all = append(all, d+": "+m[d].String())
	}
	return strings.Join(all, "; ")
}

// eventually waits, by asking again, until something is so.
func (w *world) eventually(what string, so func() (now string, ok bool)) {
	w.t.Helper()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	late := time.After(patience)
	for {
		now, ok := so()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("it is not so that %s: %s", what, now)
		}
	}
}

// sentPackets is how many packets a device has sent, by its own count.
func (w *world) sentPackets(device string) uint64 { return w.counter(device, "sent_pkts") }

// counter is one of rxe's own (rxe_hw_counters.c in the kernel).
func (w *world) counter(device, name string) uint64 {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "ports/1/hw_counters", name))
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// untilSent waits until a device has sent so many packets more: a transfer over
// verbs is in its middle.
func (w *world) untilSent(device string, since uint64, packets uint64) {
	w.t.Helper()
	w.eventually("packets go out of "+device, func() (string, bool) {
		n := w.sentPackets(device) - since
		return strconv.FormatUint(n, 10) + " have", n >= packets
	})
}

// process is a node as the test has it.
type process struct {
	w      *world
	cmd    *exec.Cmd
	task   int
	device string
	in     io.WriteCloser
	gone   chan struct{} // closed when the process has ended

	mu      sync.Mutex
	lastID  int
	replies map[int]chan reply // of commands; 0 is the start
	log     bytes.Buffer
}

// start starts the process of a task, waits until it is up, and leads the task's
// address to it.
func (w *world) start(task int, s settings, under ...string) *process {
	w.t.Helper()
	p := w.launch(task, s, under...)
	p.up()
	return p
}

// up waits until a process has started, and leads its task's address to it.
func (p *process) up() {
	p.w.t.Helper()
	r := p.wait(0)
	if r.Code != "" {
		p.w.t.Fatalf("task %d does not start: %s", p.task, r.Text)
	}
	if r.Address != "" {
		p.w.proxies[p.task].SetTarget(r.Address)
	}
}

// startAll starts the processes of all tasks, with channels between the first and
// each other one.
func (w *world) startAll(s settings) []*process {
	w.t.Helper()
	var all []*process
	for i := range w.proxies {
		all = append(all, w.launch(i, s))
	}
	for _, p := range all {
		p.up()
	}
	for i, p := range all[1:] {
		p.untilVerbs(0, 0)
		all[0].untilVerbs(i+1, 0)
	}
	return all
}

// startPair starts two tasks, with a channel between them.
func (w *world) startPair(s settings) (a, b *process) {
	w.t.Helper()
	all := w.startAll(s)
	return all[0], all[1]
}

// launch starts a process, under another program if one is given.
func (w *world) launch(task int, s settings, under ...string) *process {
	w.t.Helper()
	s.Task, s.Device = task, w.devices[task%2]
	if s.Dial == "" {
		s.Cluster = make(map[int]string)
		for i, p := range w.proxies {
			s.Cluster[i] = p.Addr()
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	args := append(append([]string{}, under...), program)
	p := &process{
		w: w, cmd: exec.Command(args[0], args[1:]...), task: task, device: s.Device,
		gone: make(chan struct{}), replies: map[int]chan reply{0: make(chan reply, 2)},
	}
	p.cmd.Env = []string{asNode + "=" + string(text), "PATH=" + os.Getenv("PATH")}
	p.cmd.Stderr = (*logWriter)(p)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.nodes = append(w.nodes, p)
	var work sync.WaitGroup
	work.Go(func() { p.listen(out) })
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error when it has ended
		work.Wait()
		if w.t.Failed() {
			w.t.Logf("task %d on %s said:\n%s", p.task, p.device, p.log.String())
		}
	})
	return p
}

// logWriter is a process's stderr.
type logWriter process

func (l *logWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(b)
}

// listen takes the replies until the process ends.
func (p *process) listen(out io.Reader) {
	in := json.NewDecoder(out)
	for {
		var r reply
		if err := in.Decode(&r); err != nil {
			break
		}
		p.mu.Lock()
		c := p.replies[r.ID]
		p.mu.Unlock()
		select {
		case c <- r: // nil, which blocks, for a command that there was not
		default:
			p.w.t.Errorf("task %d: a third word on command %d: %+v", p.task, r.ID, r)
		}
	}
	_ = p.cmd.Wait() // how it ended is in its last reply
	close(p.gone)
}

// command gives a command, whose reply is waited for with its ID.
func (p *process) command(c command) (id int) {
	p.w.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	c.ID = p.lastID
	p.replies[c.ID] = make(chan reply, 2)
	if err := json.NewEncoder(p.in).Encode(c); err != nil {
		p.w.t.Fatalf("task %d takes no command: %v", p.task, err)
	}
	return c.ID
}

// wait waits for the reply to a command.
func (p *process) wait(id int) reply {
	p.w.t.Helper()
	p.mu.Lock()
	c := p.replies[id]
	p.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case r := <-c:
		return r
	case <-p.gone:
		select {
		case r := <-c:
			return r
		default:
		}
		p.w.t.Fatalf("task %d has ended without a word on command %d", p.task, id)
	case <-late.C:
		p.w.t.Fatalf("task %d says nothing on command %d", p.task, id)
	}
	return reply{}
}

// do gives a command and waits until it has succeeded.
func (p *process) do(c command) reply {
	p.w.t.Helper()
	r := p.wait(p.command(c))
	if r.Code != "" {
		p.w.t.Fatalf("task %d, %s: %s", p.task, c.Op, r.Text)
	}
	return r
}

// good waits for the end of receives, which are all to have the right value.
func (p *process) good(ids ...int) {
	p.w.t.Helper()
	for _, id := range ids {
		if r := p.wait(id); r.Code != "" {
			p.w.t.Errorf("task %d, receive %d: %s", p.task, id, r.Text)
		}
	}
}

// bad waits for the end of receives, which are all to fail with a code and text.
func (p *process) bad(code status.Code, text string, ids ...int) {
	p.w.t.Helper()
	for _, id := range ids {
		if r := p.wait(id); r.Code != code.String() || !strings.Contains(r.Text, text) {
			p.w.t.Errorf("task %d, receive %d: %q %q, want %v with %q", p.task, id, r.Code, r.Text, code, text)
		}
	}
}

// recv begins the receive of a tensor that another task sends.
func (p *process) recv(x parcel) int {
	p.w.t.Helper()
	return p.command(command{Op: opRecv, Step: x.step, Peer: x.from, Name: x.name, Size: x.size, Seed: x.seed})
}

// send sends tensors to other tasks.
func (p *process) send(xs ...parcel) {
	p.w.t.Helper()
	var ids []int
	for _, x := range xs {
		ids = append(ids, p.command(command{Op: opSend, Step: x.step, Peer: x.to, Name: x.name, Size: x.size, Seed: x.seed}))
	}
	p.good(ids...)
}

// exchange sends tensors of some sizes from one task to another, in a step of their
// own, and waits until they are there.
func (w *world) exchange(from, to *process, sizes ...int64) {
	w.t.Helper()
	w.step++
	var xs []parcel
	var ids []int
	for _, n := range sizes {
		x := w.parcel(from, to, n)
		xs, ids = append(xs, x), append(ids, to.recv(x))
	}
	from.send(xs...)
	to.good(ids...)
}

// parcel is a tensor on its way.
type parcel struct {
	step     int64
	from, to int
	name     string
	size     int64
	seed     uint64
}

// meet lets a process find out that another one, whose tensors it has received, has
// another process now: what it asked of the old one is Aborted until then, and it
// learns of it by asking.
func (w *world) meet(from, to *process) {
	w.t.Helper()
	w.step++
	x := w.parcel(from, to, 10)
	from.send(x)
	w.eventually("the new process is known", func() (string, bool) {
		r := to.wait(to.recv(x))
		return r.Text, r.Code != status.Aborted.String()
	})
}

// parcel is a tensor of its own from one task to another, in the world's step.
func (w *world) parcel(from, to *process, size int64) parcel {
	w.parcels++
	return parcel{w.step, from.task, to.task, fmt.Sprintf("x%d", w.parcels), size, uint64(w.parcels)} //nolint:gosec // a count
}

// state asks the process for its own.
func (p *process) state() *state {
	p.w.t.Helper()
	return p.do(command{Op: opState}).State
}

// untilVerbs waits until verbs carries tensors between p and a task, with a channel
// later than a generation.
func (p *process) untilVerbs(peer int, after uint64) link {
	p.w.t.Helper()
	var l link
	p.w.eventually("verbs carries the tensors", func() (string, bool) {
		l = p.state().Links[peer]
		return "task " + strconv.Itoa(p.task) + ": " + l.Reason, l.Verbs && l.Generation > after
	})
	return l
}

// untilVerbsAgain waits until verbs carries tensors again between p and a task whose process was
// replaced. before is the state of the connection before that. Generations begin anew with a new
// process, so they do not tell the new channel from the old one.
func (p *process) untilVerbsAgain(peer int, before link) {
	p.w.t.Helper()
	p.w.eventually("verbs carries the tensors again", func() (string, bool) {
		l := p.state().Links[peer]
		return fmt.Sprintf("task %d: %+v, before %+v", p.task, l, before), l.Verbs && l.Breaks > before.Breaks
	})
}

// untilIdle waits until the process holds nothing for its peers: no answers, no
// memory that they may write or read. What it sends from may be a publication's,
// which stays.
func (p *process) untilIdle() {
	p.w.t.Helper()
	p.w.eventually("nothing is held", func() (string, bool) {
		s := p.state()
		b, _ := json.Marshal(s)
		return string(b), s.Receiving == 0 && s.Quarantined == 0 && s.Kept == 0
	})
}

// untilFree is untilIdle for a process without publications: it does not hold the
// memory of a tensor, either.
func (p *process) untilFree() {
	p.w.t.Helper()
	p.untilIdle()
	p.w.eventually("the memory of what was sent is free", func() (string, bool) {
		s := p.state()
		return strconv.FormatInt(s.Sending, 10) + " bytes are in use", s.Sending == 0
	})
}

// end ends processes in peace that have nothing to do any more.
func (w *world) end(all ...*process) {
	w.t.Helper()
	for _, p := range all {
		p.untilFree()
	}
	for _, p := range all {
		p.close()
	}
}

// close lets the process end in peace, with nothing left, and each receive ended
// once.
func (p *process) close() {
	p.w.t.Helper()
	if r := p.wait(p.command(command{Op: opClose})); r.Code != "" {
		p.w.t.Errorf("task %d, at its end: %s", p.task, r.Text)
	}
	<-p.gone
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.replies {
		if len(c) > 0 {
			p.w.t.Errorf("task %d: command %d was answered twice, or nobody waited for it", p.task, id)
		}
	}
}

// kill ends the process as SIGKILL does.
func (p *process) kill() {
	p.w.proxies[p.task].SetTarget("")
	p.signal(syscall.SIGKILL)
	<-p.gone
}

func (p *process) signal(s syscall.Signal) {
	p.w.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.w.t.Fatal(err)
	}
}
