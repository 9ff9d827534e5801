//go:build linux

package shm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// offer is what parent and child exchange before they connect.
type offer struct {
	Endpoint verbs.Endpoint
	Addr     uint64
	RKey     verbs.RKey
}

// child is another process with one end of a connection.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	offer offer
}

const (
	childMemory = 4 << 20
	messages    = 100 // that exercises sends
)

// startChild starts this binary again in a role, with a device whose options are in JSON. change
// may set what the process runs in.
func startChild(t testing.TB, role string, o Options, change func(*exec.Cmd)) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childVariable+"="+role, "TRYST_SHM_TEST_DIR="+o.Dir, fmt.Sprintf("TRYST_SHM_TEST_TRUSTED=%v", o.Trusted))
	var problems bytes.Buffer
	c.cmd.Stderr = &problems
	if change != nil {
		change(c.cmd)
	}
	if c.cmd.Stdin == nil {
		c.in = must(c.cmd.StdinPipe())(t)
	}
	out := must(c.cmd.StdoutPipe())(t)
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		if change != nil && noNamespaces(err) {
			t.Skip(skipNamespaces)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.in != nil {
			c.in.Close()
		}
		if err := c.cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Errorf("the child ends with %v: %s", err, problems.String())
		}
	})
	if err := json.Unmarshal([]byte(c.line()), &c.offer); err != nil {
		t.Fatal(err)
	}
	return c
}

// line returns the next line of the child.
func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the child says nothing more: %v", c.out.Err())
	}
	return c.out.Text()
}

func (c *child) say(v any) {
	c.t.Helper()
	if err := json.NewEncoder(c.in).Encode(v); err != nil {
		c.t.Fatal(err)
	}
}

// join connects an end to the child.
func (c *child) join(x *testEnd) {
	c.t.Helper()
	c.say(offer{Endpoint: x.endpoint(), Addr: x.mr.Addr(), RKey: x.mr.RKey()})
	x.connect(c.offer.Endpoint)
}

// remote is a signaled operation on the child's memory.
func (c *child) remote(x *testEnd, id verbs.WRID, op verbs.Opcode, off, n, at int) verbs.SendWR {
	return verbs.SendWR{
		ID: id, Op: op, Signaled: true, RemoteAddr: c.offer.Addr + uint64(at), RKey: c.offer.RKey,
		SGL: []verbs.SGE{{Addr: x.mr.Addr() + uint64(off), Length: uint32(n), LKey: x.mr.LKey()}},
	}
}

// childT is the testing.TB of a child: the methods that testEnd uses.
type childT struct {
	testing.TB
	ends []func()
}

func (*childT) Helper()             {}
func (c *childT) Cleanup(f func())  { c.ends = append(c.ends, f) }
func (c *childT) Fatal(args ...any) { c.die(fmt.Sprint(args...)) }
func (c *childT) Error(args ...any) { c.die(fmt.Sprint(args...)) }
func (c *childT) Errorf(f string, args ...any) {
	c.die(fmt.Sprintf(f, args...))
}
func (c *childT) Fatalf(f string, args ...any) { c.die(fmt.Sprintf(f, args...)) }
func (c *childT) die(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(3)
}

// end does what Cleanup registered.
func (c *childT) end() {
	for _, f := range slices.Backward(c.ends) {
		f()
	}
}

// runChild is what a child does: it connects, does what its role says, and ends with its input.
func runChild(role string) int {
	t := &childT{}
	if name, ok := strings.CutPrefix(role, "namespaces="); ok {
		return runNamespaces(name)
	}
	if role, ok := strings.CutPrefix(role, dropsPrefix); ok {
		return dropAndRun(role)
	}
	if os.Getenv("TRYST_SHM_TEST_BARE") != "" {
		checkBare(t)
	}
	p := New(Options{Dir: os.Getenv("TRYST_SHM_TEST_DIR"), Trusted: os.Getenv("TRYST_SHM_TEST_TRUSTED") == "true"})
	if lie := os.Getenv("TRYST_SHM_TEST_USERNS"); lie != "" {
		p.ownNS = func() (uint64, error) { return strconv.ParseUint(lie, 10, 64) }
		p.peerNS = func(*net.UnixConn) (uint64, error) { return 0, errNotSaid }
	}
	x := newTestEnd(t, p, childMemory)
	if role == "exercise" { // with a process at its input and output
		c := &child{t: t, in: os.Stdout, out: bufio.NewScanner(os.Stdin)}
		if err := json.Unmarshal([]byte(c.line()), &c.offer); err != nil {
			t.Fatal(err)
		}
		c.join(x)
		x.exercises(c)
		c.say(offer{})
		c.out.Scan() // the peer has the completion of its last message, which closing can break
		t.end()
		return 0
	}
	for i := range 16 {
		x.recv(verbs.WRID(i), 64*i, 64)
	}
	if err := json.NewEncoder(os.Stdout).Encode(offer{Endpoint: x.endpoint(), Addr: x.mr.Addr(), RKey: x.mr.RKey()}); err != nil {
		return 4
	}
	in := json.NewDecoder(os.Stdin)
	var peer offer
	if err := in.Decode(&peer); err != nil {
		return 0
	}
	x.connect(peer.Endpoint)
	switch role {
	case "echo":
		go x.echo()
	case "poor": // it has no descriptor free
		wait(t, func() bool { return x.qp.live.Load() != nil })
		f, err := os.Open("/")
		if err != nil {
			return 4
		}
		limit := syscall.Rlimit{Cur: uint64(f.Fd()), Max: uint64(f.Fd())} // the lowest free one, and all above
		f.Close()
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return 4
		}
		fmt.Println("poor")
		wait(t, func() bool { s, _ := x.qp.State(); return s == verbs.StateErr })
		fmt.Println("broken")
	case "write": // until it is killed
		for i := 0; ; i++ {
			wr := verbs.SendWR{
				Op: verbs.OpWrite, Signaled: true, RemoteAddr: peer.Addr, RKey: peer.RKey,
				SGL: []verbs.SGE{{Addr: x.mr.Addr(), Length: childMemory, LKey: x.mr.LKey()}},
			}
			x.post(wr)
			if x.wait().Status != verbs.StatusOK {
				return 0
			}
			if i == 3 {
				fmt.Println("writing")
			}
		}
	}
	_ = in.Decode(&peer) // waits for the end of the input
	if role != "echo" {
		t.end()
	}
	return 0
}

// echo sends back each message, until the connection ends.
func (x *testEnd) echo() {
	for x.echoOne() {
	}
}

// echoOne sends back the next message. It returns false when the connection ends.
func (x *testEnd) echoOne() bool {
	wc := x.wait()
	if wc.Status != verbs.StatusOK {
		return false
	}
	if wc.Op != verbs.WCRecv {
		return true
	}
	x.post(verbs.SendWR{Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{{Addr: x.mr.Addr() + 64*uint64(wc.ID), Length: wc.Len, LKey: x.mr.LKey()}}})
	if wc := x.wait(); wc.Status != verbs.StatusOK {
		return false
	}
	x.recv(wc.ID, 64*int(wc.ID), 64)
	return true
}

// TestTwoProcesses: all operations between two processes.
func TestTwoProcesses(t *testing.T) {
	x := newTestEnd(t, New(Options{}), childMemory)
	c := startChild(t, "echo", Options{}, nil)
	c.join(x)
	x.exercises(c)
}

// exercises runs all operations and checks what they did.
func (x *testEnd) exercises(c *child) {
	t := x.t
	t.Helper()
	for i := range x.mem[:2<<20] {
		x.mem[i] = byte(i * 7 >> 3)
	}
	x.post(c.remote(x, 1, verbs.OpWrite, 0, 1<<20, 2<<20))
	x.ends(1, verbs.StatusOK)
	x.post(c.remote(x, 2, verbs.OpRead, 3<<20, 1<<20, 2<<20))
	x.ends(2, verbs.StatusOK)
	if !bytes.Equal(x.mem[:1<<20], x.mem[3<<20:]) {
		t.Error("what was written is not what was read")
	}
	add := c.remote(x, 3, verbs.OpFetchAdd, 2<<20, 8, 2<<20)
	add.Add = 5
	x.post(add)
	x.ends(3, verbs.StatusOK)
	if !bytes.Equal(x.mem[2<<20:][:8], x.mem[:8]) {
		t.Error("an atomic returns another value than was written")
	}
	for i := range messages {
		copy(x.mem, fmt.Sprintf("message %3d", i))
		x.recv(10, 64, 64)
		x.post(verbs.SendWR{ID: 11, Op: verbs.OpSend, Signaled: true, SGL: []verbs.SGE{{Addr: x.mr.Addr(), Length: 11, LKey: x.mr.LKey()}}})
		for range 2 {
			if wc := x.wait(); wc.Status != verbs.StatusOK {
				t.Fatalf("message %d: %+v", i, wc)
			}
		}
		if !bytes.Equal(x.mem[:11], x.mem[64:75]) {
			t.Fatalf("message %d comes back as %q", i, x.mem[64:75])
		}
	}
}

// TestKilledPeer: a process that is killed while it writes costs its peer only the connection.
func TestKilledPeer(t *testing.T) {
	x := newTestEnd(t, New(Options{}), childMemory)
	c := startChild(t, "write", Options{}, nil)
	c.join(x)
	c.line() // it writes
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	x.writesUntilItEnds(c.remote(x, 1, verbs.OpWrite, 0, 4096, 0))
	clear(x.mem) // nobody else writes to it
}

// TestEndOfThePeerIsNoticedAtOnce: requests do not wait for their time when the peer's process has ended,
// neither those that wait nor later ones.
func TestEndOfThePeerIsNoticedAtOnce(t *testing.T) {
	x := newTestEnd(t, New(Options{}), childMemory)
	c := startChild(t, "echo", Options{}, nil)
	c.join(x)
	x.qp.mu.Lock()
	x.qp.req.timeout = time.Hour
	x.qp.mu.Unlock()
	x.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true})
	x.ends(1, verbs.StatusOK)
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	x.writesUntilItEnds(verbs.SendWR{ID: 2, Op: verbs.OpWrite, Signaled: true})
}

// TestConnectionThatEndsInTheHandshakeIsMadeAgain: the peer closes the oldest connections when it has
// too many, and that is no refusal.
func TestConnectionThatEndsInTheHandshakeIsMadeAgain(t *testing.T) {
	x, y := newTestEnd(t, New(Options{}), childMemory), newTestEnd(t, New(Options{}), childMemory)
	if roleOf(x.qp.own.secret, y.qp.own.secret) == acceptor {
		x, y = y, x
	}
	to, from := x.endpoint(), y.endpoint()
	x.connect(from)
	d := as[*device](y.dev)
	for d.unproven.count() == 0 { // it waits until y knows its peer
		runtime.Gosched()
	}
	d.unproven.mu.Lock()
	first := d.unproven.list[0]
	first.end()
	d.unproven.mu.Unlock()
	<-first.left
	y.connect(to)
	x.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true})
	x.ends(1, verbs.StatusOK)
}

// writesUntilItEnds posts a write again and again, until it fails because the peer's process has ended. Some may be executed
// while the process is dying.
func (x *testEnd) writesUntilItEnds(wr verbs.SendWR) {
	x.t.Helper()
	for ; ; wr.ID++ {
		x.post(wr)
		if wc := x.wait(); wc.ID == wr.ID && wc.Status == verbs.StatusRetryExceeded {
			return
		} else if wc.ID != wr.ID || wc.Status != verbs.StatusOK {
			x.t.Fatalf("a write to a dead process ends with %+v", wc)
		}
	}
}

// TestStoppedPeer: work requests end when the peer's process does nothing, and do not wait for it.
func TestStoppedPeer(t *testing.T) {
	x := newTestEnd(t, New(Options{}), childMemory)
	c := startChild(t, "echo", Options{}, nil)
	c.join(x)
	x.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true})
	x.ends(1, verbs.StatusOK)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.cmd.Process.Kill() }()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the child is not stopped: %v, %v", status, err)
	}
	start := time.Now()
	x.post(c.remote(x, 2, verbs.OpWrite, 0, 4096, 0))
	x.ends(2, verbs.StatusRetryExceeded)
	if d, least := time.Since(start), x.qp.req.timeout; d < least {
		t.Errorf("it ended after %v; the peer has %v", d, least)
	}
}

// TestShortTimeoutLeavesTimeToABusyPeer: nothing is lost in shared memory, so a timeout of microseconds
// must not break a queue pair whose peer waits for a processor. Without a timeout it waits for ever.
func TestShortTimeoutLeavesTimeToABusyPeer(t *testing.T) {
	for code, want := range map[uint8]time.Duration{0: 0, 1: minPatience, 20: verbs.TimeoutDuration(20)} {
		x, y := newTestEnd(t, New(Options{}), 4096), newTestEnd(t, New(Options{}), 4096)
		p := x.path()
		p.Timeout, p.Retry = code, 0
		if err := p.Connect(x.qp, x.psn, y.endpoint()); err != nil {
			t.Fatal(err)
		}
		if got := x.qp.req.timeout; got != want {
			t.Errorf("timeout %d gives %v, want %v", code, got, want)
		}
	}
}

// TestPeerWithoutDescriptors: a process that has no descriptor free loses the connection that needed
// one, and nothing else.
func TestPeerWithoutDescriptors(t *testing.T) {
	x := newTestEnd(t, New(Options{}), childMemory)
	c := startChild(t, "poor", Options{}, nil)
	c.join(x)
	if s := c.line(); s != "poor" {
		t.Fatal(s)
	}
	x.post(c.remote(x, 1, verbs.OpWrite, 0, 4096, 0)) // passes a descriptor
	if s := c.line(); s != "broken" {
		t.Fatal(s)
	}
	x.ends(1, verbs.StatusRetryExceeded)
}
