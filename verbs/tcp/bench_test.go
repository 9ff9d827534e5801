package tcp

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// BenchmarkWrite compares WRITEs, 4 in flight, with a raw TCP connection that acknowledges
// each message by a byte, from and to equal buffers.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("qp/%dMiB", size>>20), func(b *testing.B) {
			x, y := pair(b, inFlight*size)
			benchWrite(b, x, y, size)
		})
		b.Run(fmt.Sprintf("raw/%dMiB", size>>20), func(b *testing.B) {
			x, y := rawPair(b)
			benchRaw(b, x, y, size)
		})
	}
}

// BenchmarkWriteTLS does the same with TLS, whose cipher both negotiate alike.
func BenchmarkWriteTLS(b *testing.B) {
	const size = 16 << 20
	server, client := tlsConfigs(b)
	b.Run("qp/16MiB", func(b *testing.B) {
		p := &tlsProvider{t: b, server: server, client: client}
		x, y := newSideOf(b, p, inFlight*size), newSideOf(b, p, inFlight*size)
		connect(x, y)
		benchWrite(b, x, y, size)
	})
	b.Run("raw/16MiB", func(b *testing.B) {
		x, y := rawPair(b)
		client := client.Clone()
		client.ServerName = "127.0.0.1"
		benchRaw(b, tls.Client(x, client), tls.Server(y, server), size)
	})
}

const inFlight = 4

func benchWrite(b *testing.B, x, y *side, size int) {
	x.post(x.write(y, 0, 0, 8))
	x.expect(0, verbs.StatusOK)
	b.SetBytes(int64(size))
	posted := 0
	for b.Loop() {
		if posted >= inFlight {
			x.next()
		}
		x.post(x.write(y, 1, posted%inFlight*size, size))
		posted++
	}
	for range min(posted, inFlight) {
		x.next()
	}
}

// rawPair returns the two ends of a TCP connection.
func rawPair(b *testing.B) (x, y net.Conn) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if x, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if y, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

func benchRaw(b *testing.B, x, y net.Conn, size int) {
	from, to := make([]byte, inFlight*size), make([]byte, inFlight*size)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			at := i % inFlight * size
			if _, err := io.ReadFull(y, to[at:at+size]); err != nil {
				return
			}
			if _, err := y.Write([]byte{1}); err != nil {
				return
			}
		}
	}()
	b.SetBytes(int64(size))
	posted, ack := 0, make([]byte, 1)
	must := func(_ int, err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if posted >= inFlight {
			must(io.ReadFull(x, ack))
		}
		at := posted % inFlight * size
		must(x.Write(from[at : at+size]))
		posted++
	}
	for range min(posted, inFlight) {
		must(io.ReadFull(x, ack))
	}
	x.Close()
	<-ended
}

// BenchmarkPingPong compares messages of 8 bytes there and back, each caused by the callback
// of the completion before it, with raw TCP.
func BenchmarkPingPong(b *testing.B) {
	b.Run("qp", benchPingPong)
	b.Run("raw", func(b *testing.B) {
		x, y := rawPair(b)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			io.Copy(y, y) //nolint:errcheck // ends with the connection
		}()
		var msg [8]byte
		for b.Loop() {
			if _, err := x.Write(msg[:]); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(x, msg[:]); err != nil {
				b.Fatal(err)
			}
		}
		x.Close()
		<-ended
	})
}

func benchPingPong(b *testing.B) {
	x, y := pair(b, 4096)
	turns := make(chan struct{}, 1)
	for _, s := range []*side{x, y} {
		for range 64 {
			s.recv(1, 0, 8)
		}
		s.cq.OnEvent(answer(s, func(sent int) bool {
			if s == x && sent == b.N {
				turns <- struct{}{}
				return false
			}
			return true
		}))
		s.check(s.cq.Arm(false))
	}
	b.ResetTimer()
	x.post(x.send(2, 8, 8))
	<-turns
}

// answer returns a callback that posts a message for each that was received, until more
// returns false. Every 16th message is signaled.
func answer(s *side, more func(sent int) bool) func() {
	sent := 1
	wcs := make([]verbs.WC, 16)
	wr := []verbs.SendWR{s.send(2, 8, 8)}
	recv := []verbs.RecvWR{{ID: 1, SGL: []verbs.SGE{s.sge(0, 8)}}}
	return func() {
		for {
			n, err := s.cq.Poll(wcs)
			if err != nil { // closed: a callback may outlast the end of the test
				return
			}
			for _, wc := range wcs[:n] {
				if wc.Status != verbs.StatusOK {
					s.t.Errorf("%+v", wc)
					return
				}
				if wc.Op != verbs.WCRecv {
					continue
				}
				if _, err := s.qp.PostRecv(recv); err != nil {
					s.t.Error(err)
				}
				if !more(sent) {
					return
				}
				wr[0].Signaled = sent%16 == 0
				sent++
				if _, err := s.qp.PostSend(wr); err != nil {
					s.t.Error(err)
				}
			}
			if n > 0 {
				continue
			}
			if err := s.cq.Arm(false); err != nil {
				return
			}
			if s.cq.Empty() {
				return
			}
		}
	}
}
