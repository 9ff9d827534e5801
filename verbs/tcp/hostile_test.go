package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// handmade is a peer that writes its frames by hand. It knows the offers of both sides.
type handmade struct {
	t      testing.TB
	victim *side
	secret [frame.SecretLen]byte
	gid    verbs.GID
	c      net.Conn
	number uint64 // of its next request
	acked  uint64 // of the victim's requests
}

const handmadeQPN = 0x77

// newHandmade returns a peer whose connection is up, to a victim with n bytes of memory.
func newHandmade(t testing.TB, n int) *handmade {
	t.Helper()
	h := offerHandmade(t, n)
	reply := h.greet(h.greeting())
	if reply.Reason != "" {
		t.Fatalf("refused: %s", reply.Reason)
	}
	return h
}

// offerHandmade connects the victim's queue pair to the peer, which has not called yet.
func offerHandmade(t testing.TB, n int) *handmade {
	t.Helper()
	return offerHandmadeFor(t, n, 0)
}

// offerHandmadeFor is offerHandmade with another time for greetings than the default.
func offerHandmadeFor(t testing.TB, n int, greeting time.Duration) *handmade {
	t.Helper()
	h := &handmade{t: t, gid: verbs.GID{1: 1}, number: 100}
	h.secret[0] = 1
	h.victim = newSide(t, Options{ListenOn: "127.0.0.1:0", GreetingTime: greeting}, n)
	v := h.victim
	v.check(v.path.Init(v.qp))
	own := frame.Endpoint{Secret: h.secret}
	v.check(v.path.Connect(v.qp, v.psn, verbs.Endpoint{QPN: handmadeQPN, PSN: 100, GID: h.gid, Data: own.Append(nil)}))
	h.acked = uint64(v.psn)
	return h
}

func (h *handmade) greeting() frame.Greeting {
	n := frame.Names{From: handmadeQPN, To: h.victim.qp.number, FromGID: h.gid, ToGID: h.victim.dev.gid}
	return frame.Greeting{Names: n, Proof: frame.Connecting(&n, &frame.Secrets{From: h.secret, To: h.victim.qp.secret})}
}

// dial opens a connection to the victim.
func (h *handmade) dial() net.Conn {
	h.t.Helper()
	c, err := net.Dial("tcp", h.victim.dev.addresses[0])
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // a new connection
	return c
}

// greet sends a greeting over a new connection, and returns the reply.
func (h *handmade) greet(g frame.Greeting) (r frame.Reply) {
	h.t.Helper()
	h.c = h.dial()
	if _, err := h.c.Write(g.Append(nil)); err != nil {
		h.t.Fatal(err)
	}
	head := make([]byte, frame.ReplyHeadLen)
	if _, err := io.ReadFull(h.c, head); err != nil {
		h.t.Fatal(err)
	}
	n, err := r.ParseHead(head)
	if err != nil {
		h.t.Fatal(err)
	}
	reason := make([]byte, n)
	if _, err := io.ReadFull(h.c, reason); err != nil {
		h.t.Fatal(err)
	}
	r.Reason = string(reason)
	return r
}

// request writes the first frame of a request, with its number, and its content.
func (h *handmade) request(f frame.Header, content []byte) {
	h.t.Helper()
	f.Number, f.Length = h.number, uint32(len(content))
	h.number++
	h.frame(f, content)
}

func (h *handmade) frame(f frame.Header, content []byte) {
	h.t.Helper()
	f.Acked = h.acked
	if _, err := h.c.Write(append(f.Append(nil), content...)); err != nil {
		h.t.Fatal(err)
	}
}

// read returns the next frame of the victim, without content.
func (h *handmade) read() (f frame.Header) {
	h.t.Helper()
	b := make([]byte, frame.HeaderLen)
	if _, err := io.ReadFull(h.c, b); err != nil {
		h.t.Fatal(err)
	}
	if err := f.Parse(b); err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, h.c, int64(f.Length)); err != nil {
		h.t.Fatal(err)
	}
	return f
}

// closed waits for the end of a connection.
func closed(t testing.TB, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection stays open")
	}
}

// TestStrangersAreClosed: whatever a foreign host sends, or does not send, its connection ends,
// and the device works.
func TestStrangersAreClosed(t *testing.T) {
	h := offerHandmadeFor(t, 4096, time.Second)
	magic := []byte(Magic)
	for name, b := range map[string][]byte{
		"nothing": nil, "http": []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n" + strings.Repeat("x", 200)),
		"half a greeting": magic, "noise": bytes.Repeat([]byte{0xa5}, 4096), "another version": append(append([]byte(Magic), 9), make([]byte, 100)...),
	} {
		t.Run(name, func(t *testing.T) {
			c := h.dial()
			c.Write(b) //nolint:errcheck // it may be closed already
			closed(t, c)
		})
	}
	if r := h.greet(h.greeting()); r.Reason != "" {
		t.Errorf("the right peer is refused: %s", r.Reason)
	}
}

// TestRefusalsAreInWords: the connecting side learns why.
func TestRefusalsAreInWords(t *testing.T) {
	h := offerHandmade(t, 4096)
	for want, change := range map[string]func(*frame.Greeting){
		"leads to another process": func(g *frame.Greeting) { g.Names.ToGID[0]++ },
		"has no queue pair":        func(g *frame.Greeting) { g.Names.To ^= 1 },
		"has another peer":         func(g *frame.Greeting) { g.Names.From++ },
		"proof for queue pair":     func(g *frame.Greeting) { g.Proof[31]++ },
	} {
		g := h.greeting()
		change(&g)
		if r := h.greet(g); !strings.Contains(r.Reason, want) || r.Proof != (frame.Proof{}) {
			t.Errorf("refused with %q, want %q", r.Reason, want)
		}
		closed(t, h.c)
	}
	if r := h.greet(h.greeting()); r.Reason != "" {
		t.Errorf("the right peer is refused: %s", r.Reason)
	}
	if r := h.greet(h.greeting()); !strings.Contains(r.Reason, "connected already") {
		t.Errorf("a second connection gets %q", r.Reason)
	}
}

// TestUnprovenConnectionsAreBounded: more than maxUnproven are closed at once.
func TestUnprovenConnectionsAreBounded(t *testing.T) {
	h := offerHandmade(t, 4096)
	ends, others := net.Pipe()
	defer others.Close()
	h.victim.dev.acceptMu.Lock()
	for range maxUnproven { // as if so many were waiting
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		h.victim.dev.unproven[a] = struct{}{}
	}
	h.victim.dev.acceptMu.Unlock()
	h.victim.dev.Accept(ends)
	if n := unproven(h.victim.dev); n != maxUnproven {
		t.Errorf("%d connections are waited for", n)
	}
	if _, err := others.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one too many: %v", err)
	}
}

// TestDocumentsHaveTheBoundOfUnprovenConnections: what an operator reads is the number of the code.
func TestDocumentsHaveTheBoundOfUnprovenConnections(t *testing.T) {
	for file, text := range map[string]string{
		"../../docs/security.md": "closes what comes beyond %d (`verbs/tcp TestUnprovenConnectionsAreBounded`)",
		"../../PROTOCOL.md":      "while %d connections of the device are without a proved greeting",
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(string(b)), " ")
		if want := fmt.Sprintf(text, maxUnproven); !strings.Contains(words, want) {
			t.Errorf("%s does not have %q", file, want)
		}
	}
}

// TestGreetingWaitsForRTR: a peer that is ahead is not refused.
func TestGreetingWaitsForRTR(t *testing.T) {
	a, b := newSide(t, Options{}, 4096), newSide(t, Options{ListenOn: "127.0.0.1:0"}, 4096)
	a.check(a.path.Init(a.qp))
	b.check(b.path.Init(b.qp))
	changed := b.qp.changed
	a.check(a.path.Connect(a.qp, a.psn, b.endpoint()))
	for unproven(b.dev) == 0 { // the connection has not come
		runtime.Gosched()
	}
	select {
	case <-changed:
		t.Fatal("nothing has changed")
	default:
	}
	b.check(b.path.Connect(b.qp, b.psn, a.endpoint()))
	a.post(a.write(b, 1, 0, 64))
	a.expect(1, verbs.StatusOK)
}

func unproven(d *device) int {
	d.acceptMu.Lock()
	defer d.acceptMu.Unlock()
	return len(d.unproven)
}

// TestWrongFramesBreakTheQueuePair: each is a fault of the peer, in words.
func TestWrongFramesBreakTheQueuePair(t *testing.T) {
	for want, send := range map[string]func(h *handmade){
		"unknown kind": func(h *handmade) { h.frame(frame.Header{Kind: 99}, nil) },
		"which were sent": func(h *handmade) {
			h.victim.post(h.victim.send(1, 0, 8))
			h.read()
			h.acked += 1
			h.frame(frame.Header{Kind: frame.Ack}, nil)
			h.acked += 2
			h.frame(frame.Header{Kind: frame.Ack}, nil)
		},
		"answers no read": func(h *handmade) { h.frame(frame.Header{Kind: frame.Response, Length: 8}, make([]byte, 8)) },
		"continues no message": func(h *handmade) {
			h.request(frame.Header{Kind: frame.Write}, nil)
			h.frame(frame.Header{Kind: frame.Data, Length: 8, Number: h.number}, make([]byte, 8))
		},
		"is expected": func(h *handmade) {
			h.request(frame.Header{Kind: frame.Write}, nil)
			h.number += 5
			h.request(frame.Header{Kind: frame.Write}, nil)
		},
		"bytes after": func(h *handmade) {
			v := h.victim
			h.request(frame.Header{Kind: frame.Write, Total: 16, Addr: v.mr.Addr(), RKey: uint32(v.mr.RKey())}, make([]byte, 8))
			h.frame(frame.Header{Kind: frame.Data, Length: 9, Number: h.number - 1}, make([]byte, 9))
		},
		"refuses nothing":    func(h *handmade) { h.frame(frame.Header{Kind: frame.NAK, Number: h.acked, Imm: 3}, nil) },
		"refuses no request": func(h *handmade) { h.frame(frame.Header{Kind: frame.NAK, Number: h.acked, Imm: 10}, nil) },
		"was not sent":       func(h *handmade) { h.frame(frame.Header{Kind: frame.RNR, Number: h.acked, Imm: 10}, nil) },
		"the timer code 32":  func(h *handmade) { h.frame(frame.Header{Kind: frame.RNR, Number: h.acked, Imm: 32}, nil) },
	} {
		t.Run(want, func(t *testing.T) {
			h := newHandmade(t, 4096)
			h.victim.recv(50, 0, 8)
			send(h)
			for {
				wc := h.victim.next()
				if wc.ID == 50 {
					if wc.Status != verbs.StatusFlushed {
						t.Errorf("the receive ends with %v", wc.Status)
					}
					break
				}
			}
			if err := h.victim.qp.ConnectionError(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the reason is %v", err)
			}
			if e, err := h.victim.dev.NextEvent(t.Context()); err != nil || e.Kind != verbs.EventQPProtocol {
				t.Errorf("the event is %v, %v", e.Kind, err)
			}
			closed(t, h.c)
		})
	}
}

// TestRandomFramesHarmNothing: frames with random fields never write outside what the peer
// may write, and leave no goroutine and no memory (goleak, Counts).
func TestRandomFramesHarmNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		h := newHandmade(t, 8192)
		v := h.victim
		win, err := v.qp.BindWindow(v.mr, 4096, 1024, verbs.AccessRemoteWrite)
		v.check(err)
		v.recv(1, 6000, 100)
		var b []byte
		for range 1 + random.IntN(8) {
			f := frame.Header{
				Kind: frame.Kind(random.IntN(16)), Flags: uint8(random.IntN(5)), Number: h.number, Acked: h.acked, Imm: uint32(random.IntN(40)),
				Addr: v.mr.Addr() + 4096 + uint64(random.IntN(2048)) - 512, RKey: uint32(win.RKey()), Length: uint32(random.IntN(200)),
			}
			if random.IntN(3) > 0 {
				f.Kind, f.Flags, f.Imm = frame.Write, 0, 0
			}
			f.Total = uint64(f.Length) + uint64(random.IntN(2)*random.IntN(2000))
			h.number += uint64(random.IntN(2))
			b = append(f.Append(b), bytes.Repeat([]byte{0xee}, int(f.Length))...)
		}
		h.c.Write(b)                    //nolint:errcheck // the victim may have closed it
		h.c.(*net.TCPConn).CloseWrite() //nolint:errcheck // likewise
		closed(t, h.c)
		v.check(win.Close())
		if !quiet(v.mem[:4096]) || !quiet(v.mem[5120:6000]) || !quiet(v.mem[6100:]) {
			t.Fatal("memory outside of the window and the receive was written")
		}
	}
}

func quiet(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// FuzzConnection: any bytes after a proved greeting.
func FuzzConnection(f *testing.F) {
	write := frame.Header{Kind: frame.Write, Number: 100, Length: 4, Total: 8}
	f.Add(append(write.Append(nil), "abcd"...))
	f.Add((&frame.Header{Kind: frame.Probe, Number: 100}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHandmade(t, 4096)
		for i := 0; i+frame.HeaderLen <= len(b); i += frame.HeaderLen + int(binary.LittleEndian.Uint32(b[i+4:]))%(1<<20) {
			binary.LittleEndian.PutUint64(b[i+16:], h.acked) // else most inputs end there
		}
		h.c.Write(b)                    //nolint:errcheck // the victim may have closed it
		h.c.(*net.TCPConn).CloseWrite() //nolint:errcheck // likewise
		closed(t, h.c)
	})
}
