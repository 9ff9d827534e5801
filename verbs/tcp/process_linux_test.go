package tcp

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// offer is what two processes of a test tell each other.
type offer struct {
	Endpoint verbs.Endpoint
	Addr     uint64
	RKey     verbs.RKey
}

func (s *side) offer() offer {
	return offer{Endpoint: s.endpoint(), Addr: s.mr.Addr(), RKey: s.mr.RKey()}
}

const childVariable = "TRYST_TEST_TCP_CHILD"

// TestChild is the other process of the tests below: it connects, and waits for the end of its
// input.
func TestChild(t *testing.T) {
	if len(os.Args) == 0 || os.Args[len(os.Args)-1] != childVariable {
		return // the tests below start it
	}
	s := newSide(t, Options{ListenOn: "127.0.0.1:0"}, 1<<20)
	s.check(s.path.Init(s.qp))
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(bufio.NewReader(os.Stdin))
	s.check(out.Encode(s.offer()))
	var peer offer
	s.check(in.Decode(&peer))
	s.check(s.path.Connect(s.qp, s.psn, peer.Endpoint))
	in.Decode(&peer) //nolint:errcheck // it ends with the other process
}

// child starts the other process, and connects s to it.
func (s *side) child() (p *os.Process, peer offer) {
	s.t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestChild$", "--", childVariable)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	s.check(err)
	out, err := c.StdoutPipe()
	s.check(err)
	s.check(c.Start())
	s.t.Cleanup(func() {
		c.Process.Kill() //nolint:errcheck // it may have ended
		c.Wait()         //nolint:errcheck // likewise
	})
	s.check(json.NewDecoder(out).Decode(&peer))
	s.check(s.path.Init(s.qp))
	s.check(json.NewEncoder(in).Encode(s.offer()))
	s.check(s.path.Connect(s.qp, s.psn, peer.Endpoint))
	return c.Process, peer
}

func (s *side) writeTo(peer offer, id verbs.WRID, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpWrite, Signaled: true, SGL: []verbs.SGE{s.sge(0, n)}, RemoteAddr: peer.Addr, RKey: peer.RKey}
}

// TestStoppedPeerFailsAlthoughItsKernelTakesBytes: a completion means that the peer's process
// has placed the content. A stopped process places nothing, and its kernel acknowledges.
func TestStoppedPeerFailsAlthoughItsKernelTakesBytes(t *testing.T) {
	for name, n := range map[string]int{"short": 8, "long": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, Options{}, 1<<20)
			p, peer := s.child()
			s.post(s.writeTo(peer, 1, n))
			s.expect(1, verbs.StatusOK)
			s.check(p.Signal(syscall.SIGSTOP))
			var status syscall.WaitStatus // all threads have stopped when it is known
			_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
			s.check(err)
			start := time.Now()
			s.post(s.writeTo(peer, 2, n), s.writeTo(peer, 3, n))
			s.expect(2, verbs.StatusRetryExceeded)
			s.expect(3, verbs.StatusFlushed)
			if took := time.Since(start); took < minPatience || took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if s.qp.ConnectionError() == nil {
				t.Error("there is no reason in words")
			}
		})
	}
}

// TestKilledPeerFailsWithinTheRetries: nothing can come from a closed connection, so the
// patience for a slow peer is not needed.
func TestKilledPeerFailsWithinTheRetries(t *testing.T) {
	s := newSide(t, Options{}, 1<<20)
	s.path.Retry, s.path.Timeout = 1, verbs.TimeoutCode(time.Second) // while it lives it may wait for a processor
	p, peer := s.child()
	s.post(s.writeTo(peer, 1, 8))
	s.expect(1, verbs.StatusOK)
	s.check(p.Kill())
	s.post(s.writeTo(peer, 2, 8))
	s.expect(2, verbs.StatusRetryExceeded)
}

// TestLittleWaitsUnsentInTheKernel: TCP_NOTSENT_LOWAT is set on both ends of a connection, also
// under TLS. What waits unsent is ahead of every acknowledgement.
func TestLittleWaitsUnsentInTheKernel(t *testing.T) {
	server, client := tlsConfigs(t)
	for name, p := range map[string]verbs.Provider{
		"plain": New(Options{ListenOn: "127.0.0.1:0"}), "TLS": &tlsProvider{t: t, server: server, client: client},
	} {
		a, b := newSideOf(t, p, 4096), newSideOf(t, p, 4096)
		connect(a, b)
		a.post(a.write(b, 1, 0, 8))
		a.expect(1, verbs.StatusOK)
		for _, s := range []*side{a, b} {
			out := s.qp.conn.Load().out
			if c, ok := out.(interface{ NetConn() net.Conn }); ok {
				out = c.NetConn()
			}
			raw, err := socketOf(out).SyscallConn()
			s.check(err)
			s.check(raw.Control(func(fd uintptr) {
				if n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT); err != nil || n != 128<<10 {
					t.Errorf("%s: %d, %v", name, n, err)
				}
			}))
		}
	}
}
