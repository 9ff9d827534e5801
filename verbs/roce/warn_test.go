package roce

import (
	"log/slog"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// narrowHost is a host whose link takes no datagram longer than 1400 bytes.
type narrowHost struct{ *memoryHost }

func (h narrowHost) sender(addr netip.Addr) (sender, error) {
	s, err := h.memoryHost.sender(addr)
	return narrowSender{s}, err
}

type narrowSender struct{ sender }

func (s narrowSender) Send(msgs []udp.Message) (int, error) {
	for i, m := range msgs {
		if m.Segment > 1400 {
			return i, syscall.EMSGSIZE
		}
		if _, err := s.sender.Send(msgs[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(msgs), nil
}

// TestPathMTUWarningIsLoggedOnce: per minute, although ACKs between the full packets
// get through.
func TestPathMTUWarningIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		reported := &lineCounter{}
		p := newProvider(Options{Logger: slog.New(slog.NewTextHandler(reported, &slog.HandlerOptions{Level: slog.LevelWarn}))}, narrowHost{f.host(hostA)})
		x := newTestEnd(t, p, "roce-eth0", netip.MustParseAddr(hostA), 1<<16)
		y := newTestEnd(t, newProvider(Options{}, f.host(hostB)), "roce-eth0", netip.MustParseAddr(hostB), 1<<16)
		joinEnds(x, y, func(p *verbs.Path, _ *verbs.Endpoint) { p.Timeout = 22 }) // 17 s: it fails after two minutes
		x.post(x.to(y, 1, verbs.OpWrite, 0, 1<<16, 0))
		pass := func(d time.Duration) {
			for range d / (100 * ms) {
				y.post(y.to(x, 2, verbs.OpWrite, 0, 8, 0))
				y.ends(2, verbs.StatusOK)
				time.Sleep(100 * ms)
			}
		}
		pass(warnInterval * 9 / 10)
		d, _ := x.dev.(verbs.CounterReader)
		c, err := d.Counters(onlyPort)
		if err != nil || c["completer_retry_err"] < 5 {
			t.Fatalf("%d timeouts, %v: it was not tried again", c["completer_retry_err"], err)
		}
		if n := reported.Load(); n != 1 {
			t.Errorf("in a minute there are %d warnings", n)
		}
		if pass(warnInterval / 2); reported.Load() != 2 {
			t.Errorf("in the next minute the number of warnings is %d", reported.Load())
		}
	})
}

// takenHost is a host on which another socket has the port of RoCE.
type takenHost struct{ system }

func (h takenHost) listen(addr netip.Addr) (receiver, error) {
	r, err := h.system.listen(addr)
	return takenReceiver{r}, err
}

type takenReceiver struct{ receiver }

func (takenReceiver) PortTaken() string { return "port 4791 is used" }

// TestTakenPortIsLoggedForDebugging: every second process of a host lacks the port, and few peers
// need it.
func TestTakenPortIsLoggedForDebugging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for level, want := range map[slog.Level]int64{slog.LevelInfo: 0, slog.LevelDebug: 1} {
			reported := &lineCounter{}
			p := newProvider(Options{Logger: slog.New(slog.NewTextHandler(reported, &slog.HandlerOptions{Level: level}))}, takenHost{newFabric().host(hostA)})
			newTestEnd(t, p, "roce-eth0", netip.MustParseAddr(hostA), 1<<16)
			if n := reported.Load(); n != want {
				t.Errorf("at %v: %d lines, want %d", level, n, want)
			}
		}
	})
}
