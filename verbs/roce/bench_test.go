package roce

import (
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// benchEnd is one end of a connection over the loopback interface.
type benchEnd struct {
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
	mem []byte
}

func newBenchEnd(b *testing.B, p *Provider, size int) *benchEnd {
	b.Helper()
	e := loopback(b, p, netip.MustParseAddr("127.0.0.1"))
	var err error
	must := func() {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	end := &benchEnd{mem: make([]byte, size)}
	end.dev, err = p.Open(e.Device)
	must()
	end.pd, err = end.dev.AllocPD()
	must()
	end.cq, err = end.dev.CreateCQ(verbs.CQConfig{Size: 1024})
	must()
	end.mr, err = end.pd.RegisterMemory(end.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
	must()
	end.qp, err = end.pd.CreateQP(verbs.QPConfig{SendCQ: end.cq, RecvCQ: end.cq, MaxSend: 256, MaxRecv: 256, MaxInline: 256})
	must()
	err = end.path().Init(end.qp)
	must()
	b.Cleanup(func() {
		for _, c := range []interface{ Close() error }{end.qp, end.cq, end.mr, end.pd, end.dev} {
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		}
	})
	return end
}

func (*benchEnd) path() verbs.Path {
	return verbs.Path{
		Port: 1, MTU: verbs.MTU4096, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead, Timeout: 16, Retry: 6, RNRRetry: 6, MinRNRTimer: 12,
		ReadAtomic: maxReadAtomic,
	}
}

func (e *benchEnd) connect(b *testing.B, to *benchEnd) {
	b.Helper()
	peer := to.qp.Endpoint()
	peer.GID = verbs.GIDFromAddr(netip.MustParseAddr("127.0.0.1"))
	if err := e.path().Connect(e.qp, 0, peer); err != nil {
		b.Fatal(err)
	}
}

func benchPair(b *testing.B, size int) (x, y *benchEnd) {
	b.Helper()
	p := New(Options{})
	x, y = newBenchEnd(b, p, size), newBenchEnd(b, New(Options{}), size)
	x.connect(b, y)
	y.connect(b, x)
	return x, y
}

// poll waits for n completions of a kind.
func (e *benchEnd) poll(b *testing.B, op verbs.WCOp, n int) {
	var wcs [16]verbs.WC
	for n > 0 {
		k, err := e.cq.Poll(wcs[:min(n, len(wcs))])
		if err != nil {
			b.Fatal(err)
		}
		if k == 0 {
			if err := e.cq.Arm(false); err != nil {
				b.Fatal(err)
			}
			if k, err = e.cq.Poll(wcs[:min(n, len(wcs))]); err != nil {
				b.Fatal(err)
			}
			if k == 0 {
				if err := e.cq.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
				continue
			}
		}
		for _, wc := range wcs[:k] {
			if wc.Status != verbs.StatusOK {
				b.Fatalf("%+v", wc)
			}
			if wc.Op == op {
				n--
			}
		}
	}
}

func BenchmarkWrite1MiB(b *testing.B) { transfers1MiB(b, verbs.OpWrite, verbs.WCWrite) }

func BenchmarkRead1MiB(b *testing.B) { transfers1MiB(b, verbs.OpRead, verbs.WCRead) }

func transfers1MiB(b *testing.B, op verbs.Opcode, ended verbs.WCOp) {
	b.Helper()
	const size = 1 << 20
	x, y := benchPair(b, 4*size)
	b.SetBytes(size)
	b.ReportAllocs()
	under := 0
	for i := range b.N {
		if under == 4 {
			x.poll(b, ended, 1)
			under--
		}
		off := uint64(i%4) * size
		if _, err := x.qp.PostSend([]verbs.SendWR{{Op: op, Signaled: true, RemoteAddr: y.mr.Addr() + off, RKey: y.mr.RKey(),
			SGL: []verbs.SGE{{Addr: x.mr.Addr() + off, Length: size, LKey: x.mr.LKey()}}}}); err != nil {
			b.Fatal(err)
		}
		under++
	}
	x.poll(b, ended, under)
	x.report(b)
}

// report reports packet counts.
func (e *benchEnd) report(b *testing.B) {
	counted, ok := e.dev.(verbs.CounterReader)
	if !ok {
		b.Fatal("the device does not count")
	}
	c, err := counted.Counters(1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(c["resent_pkts"])/float64(b.N), "resent/op")
	b.ReportMetric(float64(c["completer_retry_err"]), "timeouts")
	b.ReportMetric(float64(c["rcvd_pkts"])/float64(b.N), "acks/op")
	b.ReportMetric(float64(c["sent_pkts"])/float64(b.N), "pkts/op")
}

// BenchmarkPingPong sends a message of 8 bytes back and forth.
func BenchmarkPingPong(b *testing.B) {
	x, y := benchPair(b, 4096)
	send := func(e *benchEnd) {
		if _, err := e.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Inline: e.mem[:8]}}); err != nil {
			b.Error(err)
		}
	}
	recv := func(e *benchEnd) {
		if _, err := e.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: 8, LKey: e.mr.LKey()}}}}); err != nil {
			b.Error(err)
		}
	}
	b.ReportAllocs()
	recv(y)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range b.N {
			y.poll(b, verbs.WCRecv, 1)
			recv(y)
			send(y)
		}
	}()
	for range b.N {
		recv(x)
		send(x)
		x.poll(b, verbs.WCRecv, 1)
	}
	<-done
	x.report(b)
}
