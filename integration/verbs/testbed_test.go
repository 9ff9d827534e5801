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

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
)

// testTimeout limits how long a test waits for one event, on a shared and emulated processor.
const testTimeout = 5 * time.Minute

// pollInterval is the interval at which a test polls the state of a node or of the kernel.
const pollInterval = 50 * time.Millisecond

// testbed is the environment of one test: processes, and for each task a proxy, whose address stays
// the same when the task's process is replaced.
type testbed struct {
	t       *testing.T
	devices []string
	proxies []*transporttest.Proxy // by task
	nodes   []*process
	step    int64 // the current step
	tensors int   // number of testTensors made
}

// newTestbed returns a testbed for some tasks, without processes. When the test and its processes
// have ended, the kernel must count as many objects as now.
func newTestbed(t *testing.T, tasks int) *testbed {
	t.Helper()
	bed := &testbed{t: t, devices: strings.Split(os.Getenv("TRYST_TEST_DEVICES"), ",")}
	if len(bed.devices) != 2 {
		t.Fatalf("TRYST_TEST_DEVICES is %q, want the names of two devices", os.Getenv("TRYST_TEST_DEVICES"))
	}
	before := bed.objects()
	t.Cleanup(func() {
		bed.eventually("the kernel has as many objects as before", func() (string, bool) {
			now := bed.objects()
			return describe(before) + " before, now " + describe(now), maps.Equal(now, before)
		})
	})
	for range tasks {
		bed.proxies = append(bed.proxies, transporttest.NewProxy(t))
	}
	return bed
}

// within makes the testbed report failures to a subtest, until that ends.
func (bed *testbed) within(t *testing.T) *testbed {
	outer := bed.t
	bed.t = t
	t.Cleanup(func() { bed.t = outer })
	return bed
}

// objects counts the kernel's objects of each device.
func (bed *testbed) objects() map[string]discovery.ResourceCounts {
	bed.t.Helper()
	m := make(map[string]discovery.ResourceCounts)
	for _, d := range bed.devices {
		n, err := discovery.Resources(d)
		if err != nil {
			bed.t.Fatal(err)
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

// eventually polls until a condition holds. what describes the condition, and now the present
// state.
func (bed *testbed) eventually(what string, condition func() (now string, ok bool)) {
	bed.t.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	timeout := time.After(testTimeout)
	for {
		now, ok := condition()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			bed.t.Fatalf("not within %v: %s; now: %s", testTimeout, what, now)
		}
	}
}

// sentPackets returns the number of packets that a device has sent.
func (bed *testbed) sentPackets(device string) uint64 { return bed.counter(device, "sent_pkts") }

// counter reads a counter of rxe (rxe_hw_counters.c in the kernel).
func (bed *testbed) counter(device, name string) uint64 {
	bed.t.Helper()
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "ports/1/hw_counters", name))
	if err != nil {
		bed.t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		bed.t.Fatal(err)
	}
	return n
}

// slowRate is what a slowed device sends in bytes per second: a large tensor takes six seconds, so
// that it is still under way when a test that runs on a busy machine does what comes next.
const slowRate = large / 6

// untilSent waits until a device has sent packets more than since, so that a transfer over verbs is
// in progress.
func (bed *testbed) untilSent(device string, since uint64, packets uint64) {
	bed.t.Helper()
	bed.eventually(device+" has sent packets", func() (string, bool) {
		n := bed.sentPackets(device) - since
		return strconv.FormatUint(n, 10) + " packets", n >= packets
	})
}

// process is a node, seen from the test.
type process struct {
	bed    *testbed
	cmd    *exec.Cmd
	task   int
	device string
	in     io.WriteCloser
	exited chan struct{} // closed when the process has ended

	mu      sync.Mutex
	lastID  int
	replies map[int]chan reply // by command; 0 is the start
	log     bytes.Buffer
}

// start starts the process of a task and waits until it has started.
func (bed *testbed) start(task int, s settings, prefix ...string) *process {
	bed.t.Helper()
	p := bed.launch(task, s, prefix...)
	p.up()
	return p
}

// up waits until a process has started, and makes it the target of its task's proxy.
func (p *process) up() {
	p.bed.t.Helper()
	r := p.wait(0)
	if r.Code != "" {
		p.bed.t.Fatalf("task %d did not start: %s", p.task, r.Text)
	}
	if r.Address != "" {
		p.bed.proxies[p.task].SetTarget(r.Address)
	}
}

// startAll starts the processes of all tasks, and waits for channels between the first and each
// other one.
func (bed *testbed) startAll(s settings) []*process {
	bed.t.Helper()
	var all []*process
	for i := range bed.proxies {
		all = append(all, bed.launch(i, s))
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

// startPair starts the processes of two tasks, and waits for a channel between them.
func (bed *testbed) startPair(s settings) (a, b *process) {
	bed.t.Helper()
	all := bed.startAll(s)
	return all[0], all[1]
}

// launch starts a process without waiting for it. prefix is a command that runs it, if any.
func (bed *testbed) launch(task int, s settings, prefix ...string) *process {
	bed.t.Helper()
	s.Task, s.Device = task, bed.devices[task%2]
	if s.Dial == "" {
		s.Cluster = make(map[int]string)
		for i, p := range bed.proxies {
			s.Cluster[i] = p.Addr()
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		bed.t.Fatal(err)
	}
	args := append(append([]string{}, prefix...), program)
	p := &process{
		bed: bed, cmd: exec.Command(args[0], args[1:]...), task: task, device: s.Device,
		exited: make(chan struct{}), replies: map[int]chan reply{0: make(chan reply, 2)},
	}
	p.cmd.Env = []string{asNode + "=" + string(text), "PATH=" + os.Getenv("PATH")}
	p.cmd.Stderr = (*logWriter)(p)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		bed.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		bed.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		bed.t.Fatal(err)
	}
	bed.nodes = append(bed.nodes, p)
	var work sync.WaitGroup
	work.Go(func() { p.readReplies(out) })
	bed.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error if it has ended
		work.Wait()
		if bed.t.Failed() {
			bed.t.Logf("log of task %d on %s:\n%s", p.task, p.device, p.log.String())
		}
	})
	return p
}

// logWriter collects a process's stderr.
type logWriter process

func (l *logWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(b)
}

// readReplies reads replies until the process ends.
func (p *process) readReplies(out io.Reader) {
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
		case c <- r: // blocks for an unknown command, since c is nil
		default:
			p.bed.t.Errorf("task %d: got reply %+v, want at most two to command %d", p.task, r, r.ID)
		}
	}
	_ = p.cmd.Wait() // its last reply has the result
	close(p.exited)
}

// command sends a command and returns its ID, with which wait gets the reply.
func (p *process) command(c command) (id int) {
	p.bed.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	c.ID = p.lastID
	p.replies[c.ID] = make(chan reply, 2)
	if err := json.NewEncoder(p.in).Encode(c); err != nil {
		p.bed.t.Fatalf("send %s to task %d: %v", c.Op, p.task, err)
	}
	return c.ID
}

// wait waits for the reply to a command.
func (p *process) wait(id int) reply {
	p.bed.t.Helper()
	p.mu.Lock()
	c := p.replies[id]
	p.mu.Unlock()
	timeout := time.NewTimer(testTimeout)
	defer timeout.Stop()
	select {
	case r := <-c:
		return r
	case <-p.exited:
		select {
		case r := <-c:
			return r
		default:
		}
		p.bed.t.Fatalf("task %d has ended without a reply to command %d", p.task, id)
	case <-timeout.C:
		p.bed.t.Fatalf("task %d has not replied to command %d within %v", p.task, id, testTimeout)
	}
	return reply{}
}

// do sends a command, which must succeed, and returns the reply.
func (p *process) do(c command) reply {
	p.bed.t.Helper()
	r := p.wait(p.command(c))
	if r.Code != "" {
		p.bed.t.Fatalf("task %d, %s: %s", p.task, c.Op, r.Text)
	}
	return r
}

// recvOK waits for the end of receives, which must all succeed.
func (p *process) recvOK(ids ...int) {
	p.bed.t.Helper()
	for _, id := range ids {
		if r := p.wait(id); r.Code != "" {
			p.bed.t.Errorf("task %d, receive %d: got error %s, want success", p.task, id, r.Text)
		}
	}
}

// recvFails waits for the end of receives, which must all fail with the code and text.
func (p *process) recvFails(code status.Code, text string, ids ...int) {
	p.bed.t.Helper()
	for _, id := range ids {
		if r := p.wait(id); r.Code != code.String() || !strings.Contains(r.Text, text) {
			p.bed.t.Errorf("task %d, receive %d: got %q %q, want %v with %q", p.task, id, r.Code, r.Text, code, text)
		}
	}
}

// recv starts the receive of a tensor from another task, and returns the ID of the command.
func (p *process) recv(x testTensor) int {
	p.bed.t.Helper()
	return p.command(command{Op: opRecv, Step: x.step, Peer: x.from, Name: x.name, Size: x.size, Seed: x.seed})
}

// send sends tensors to other tasks.
func (p *process) send(xs ...testTensor) {
	p.bed.t.Helper()
	var ids []int
	for _, x := range xs {
		ids = append(ids, p.command(command{Op: opSend, Step: x.step, Peer: x.to, Name: x.name, Size: x.size, Seed: x.seed}))
	}
	p.recvOK(ids...)
}

// exchange sends tensors of the given sizes from one task to another, in a new step, and waits
// until all are received.
func (bed *testbed) exchange(from, to *process, sizes ...int64) {
	bed.t.Helper()
	bed.step++
	var xs []testTensor
	var ids []int
	for _, n := range sizes {
		x := bed.newTensor(from, to, n)
		xs, ids = append(xs, x), append(ids, to.recv(x))
	}
	from.send(xs...)
	to.recvOK(ids...)
}

// testTensor is a tensor that one task sends to another.
type testTensor struct {
	step     int64
	from, to int
	name     string
	size     int64
	seed     uint64
}

// untilRestartKnown waits until process to knows that the process of another task was replaced by
// from. It learns that from its own receives, which are Aborted until then.
func (bed *testbed) untilRestartKnown(from, to *process) {
	bed.t.Helper()
	bed.step++
	x := bed.newTensor(from, to, 10)
	from.send(x)
	bed.eventually("the new process is known", func() (string, bool) {
		r := to.wait(to.recv(x))
		return r.Text, r.Code != status.Aborted.String()
	})
}

// newTensor returns a new tensor from one task to another, in the current step. It has its own name
// and content.
func (bed *testbed) newTensor(from, to *process, size int64) testTensor {
	bed.tensors++
	return testTensor{bed.step, from.task, to.task, fmt.Sprintf("x%d", bed.tensors), size, uint64(bed.tensors)} //nolint:gosec // a count
}

// state returns the state of the process.
func (p *process) state() *state {
	p.bed.t.Helper()
	return p.do(command{Op: opState}).State
}

// untilVerbs waits until p has a channel to a task whose generation is higher than after.
func (p *process) untilVerbs(peer int, after uint64) connection {
	p.bed.t.Helper()
	var l connection
	p.bed.eventually("the channel is up", func() (string, bool) {
		l = p.state().Connections[peer]
		return "task " + strconv.Itoa(p.task) + ": " + l.Reason, l.Verbs && l.Generation > after
	})
	return l
}

// untilVerbsAgain waits until p has a channel to the new process of a task. before is the state of
// the channel to the old one. Generations start anew with each process, so they do not distinguish
// the two channels.
func (p *process) untilVerbsAgain(peer int, before connection) {
	p.bed.t.Helper()
	p.bed.eventually("the channel to the new process is up", func() (string, bool) {
		l := p.state().Connections[peer]
		return fmt.Sprintf("task %d: %+v, before %+v", p.task, l, before), l.Verbs && l.Breaks > before.Breaks
	})
}

// untilIdle waits until the process holds nothing for its peers: no responses, and no memory that
// they may write. It may hold memory that it sends from, since that of a publication stays.
func (p *process) untilIdle() {
	p.bed.t.Helper()
	p.bed.eventually("nothing is held for peers", func() (string, bool) {
		s := p.state()
		b, _ := json.Marshal(s)
		return string(b), s.Receiving == 0 && s.Quarantined == 0 && s.Kept == 0
	})
}

// untilFree is untilIdle for a process without publications. It also waits until no memory is in
// use for sending.
func (p *process) untilFree() {
	p.bed.t.Helper()
	p.untilIdle()
	p.bed.eventually("the memory of sent tensors is free", func() (string, bool) {
		s := p.state()
		return strconv.FormatInt(s.Sending, 10) + " bytes are in use", s.Sending == 0
	})
}

// end waits until processes hold no memory, and closes them.
func (bed *testbed) end(all ...*process) {
	bed.t.Helper()
	for _, p := range all {
		p.untilFree()
	}
	for _, p := range all {
		p.close()
	}
}

// close closes the process, which must leave nothing and must have ended each receive once.
func (p *process) close() {
	p.bed.t.Helper()
	if r := p.wait(p.command(command{Op: opClose})); r.Code != "" {
		p.bed.t.Errorf("close task %d: %s", p.task, r.Text)
	}
	<-p.exited
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.replies {
		if len(c) > 0 {
			p.bed.t.Errorf("task %d: command %d got two replies, or the test did not wait for its reply", p.task, id)
		}
	}
}

// kill kills the process with SIGKILL.
func (p *process) kill() {
	p.bed.proxies[p.task].SetTarget("")
	p.signal(syscall.SIGKILL)
	<-p.exited
}

func (p *process) signal(s syscall.Signal) {
	p.bed.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.bed.t.Fatal(err)
	}
}
