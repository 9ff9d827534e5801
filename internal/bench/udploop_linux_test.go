package bench

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// loopPair is both ends of the UDP baseline, and the tensors that it serves.
func loopPair(t *testing.T, sizes ...int64) (*loopClient, map[int64]*tensor.Tensor) {
	t.Helper()
	tensors := make(map[int64]*tensor.Tensor)
	for _, size := range sizes {
		x, err := randomTensor(tensor.Heap{}, size)
		if err != nil {
			t.Fatal(err)
		}
		tensors[size] = x
	}
	s, err := serveLoop(tensors)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close()
		for _, x := range tensors {
			x.Release()
		}
	})
	c, err := dialLoop(t.Context(), s.address().String(), tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c, tensors
}

// TestUDPLoopDelivers the right content, with several responses under way.
func TestUDPLoopDelivers(t *testing.T) {
	c, tensors := loopPair(t, 0, 1, 8, loopMTU, loopMTU+1, loopMTU*loopSegments, loopMTU*loopSegments+1, 1<<20)
	var work sync.WaitGroup
	for size, x := range tensors {
		for range 2 {
			work.Go(func() {
				for range 5 {
					got := make([]byte, size)
					if err := c.fetch(size, got); err != nil {
						t.Errorf("%d bytes: %v", size, err)
						return
					}
					if !bytes.Equal(got, x.Bytes()) {
						t.Errorf("%d bytes: wrong content", size)
					}
				}
			})
		}
	}
	work.Wait()
}

// TestUDPLoopKeepsToItsWindow when more is requested.
func TestUDPLoopKeepsToItsWindow(t *testing.T) {
	x, err := randomTensor(tensor.Heap{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	end, err := newLoopEnd()
	if err != nil {
		t.Fatal(err)
	}
	defer end.close()
	s := &loopServer{loopEnd: end, tensors: map[int64]*tensor.Tensor{1 << 20: x}}
	request := make([]byte, loopRequestSize)
	binary.LittleEndian.PutUint64(request, 1<<20)
	binary.LittleEndian.PutUint16(request[8:], end.port)
	var acked uint32
	for range 3 { // 3 MiB, which the window does not allow at once
		if err := s.take(loopPart{kind: loopRequest, content: request, from: end.address()}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if err := s.respond(); err != nil {
			t.Fatal(err)
		}
		if under := (s.sent - acked) * loopPacket; under > loopWindow || under < loopWindow/2 {
			t.Fatalf("%d bytes are under way, want at most %d and at least half of it", under, loopWindow)
		}
		acked += loopSegments
		if err := s.take(loopPart{kind: loopAck, number: acked}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUDPLoopReportsLoss: a lost or damaged packet ends the connection, and every receive.
func TestUDPLoopReportsLoss(t *testing.T) {
	for what, change := range map[string]struct {
		packet func(good []byte) []byte
		text   string
	}{
		"lost":          {func(b []byte) []byte { return sealed(b, func(b []byte) { b[8]++ }) }, "packet 1 arrived in place of packet 0"},
		"not requested": {func(b []byte) []byte { return sealed(b, func(b []byte) { b[4]++ }) }, "8 bytes arrived that were not requested"},
		"damaged":       {func(b []byte) []byte { b[13]++; return b }, "a packet is damaged"},
		"cut off":       {func(b []byte) []byte { return b[:loopHeader] }, "a packet is damaged"},
		"too much":      {func(b []byte) []byte { return sealed(append(b, b...), func([]byte) {}) }, "32 bytes arrived that were not requested"},
		"a trailer":     {func([]byte) []byte { return make([]byte, loopTrailer) }, "a packet is damaged"},
	} {
		t.Run(what, func(t *testing.T) {
			server, err := newLoopEnd() // the test responds itself
			if err != nil {
				t.Fatal(err)
			}
			defer server.close()
			c, err := dialLoop(t.Context(), server.address().String(), tensor.Heap{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			done := make(chan error, 1)
			go func() { done <- c.receive(8) }()
			var id uint32
			if err := server.receive(func(p loopPart) error { id = p.id; return nil }); err != nil {
				t.Fatal(err)
			}
			packet := make([]byte, loopHeader+8+loopTrailer)
			packet[0] = loopContent
			binary.LittleEndian.PutUint32(packet[4:], id)
			packet = change.packet(sealed(packet, func([]byte) {}))
			to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.port)
			if _, err := server.out.WriteToUDPAddrPort(packet, to); err != nil {
				t.Fatal(err)
			}
			if err := <-done; status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), change.text) {
				t.Errorf("got %v, want Unavailable with %q", err, change.text)
			}
			if err := c.receive(8); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), change.text) {
				t.Errorf("the next receive: got %v, want the same", err)
			}
		})
	}
}

// TestUDPLoopSeparatesResponses whose packets arrive in turn.
func TestUDPLoopSeparatesResponses(t *testing.T) {
	first, second := &loopWait{rest: make([]byte, 8)}, &loopWait{rest: make([]byte, 8)}
	c := &loopClient{waiting: map[uint32]*loopWait{1: first, 2: second}}
	for i, p := range []loopPart{{id: 1}, {id: 2}, {id: 2}, {id: 1}} {
		p.kind, p.number, p.content = loopContent, uint32(i), make([]byte, 3) //nolint:gosec // of 4
		if err := c.take(p); err != nil {
			t.Fatal(err)
		}
	}
	if len(first.rest) != 2 || len(second.rest) != 2 {
		t.Errorf("%d and %d bytes are missing, want 2 and 2", len(first.rest), len(second.rest))
	}
}

// sealed changes a packet and makes its trailer anew.
func sealed(packet []byte, change func([]byte)) []byte {
	change(packet)
	e := loopEnd{}
	e.fill(0, packet[0], binary.LittleEndian.Uint32(packet[4:]), binary.LittleEndian.Uint32(packet[8:]), packet[loopHeader:len(packet)-loopTrailer])
	return bytes.Join(e.buffers[:3], nil)
}
