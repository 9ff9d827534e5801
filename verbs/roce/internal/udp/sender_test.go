package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
)

// disturbed is a kernel that returns planted errors before it calls the real one.
type disturbed struct {
	kernel
	answer func(m *ipv4.Message) error // nil: the result of the real kernel
	calls  int
}

func (d *disturbed) send(p *packing, at int) (int, error) { return d.disturb(p, at, d.kernel.send) }
func (d *disturbed) wait(p *packing, at int) (int, error) { return d.disturb(p, at, d.kernel.wait) }

// disturb sends the messages before the first one with a planted error, as the kernel
// does, which returns the error in the next call (sendmmsg(2)).
func (d *disturbed) disturb(p *packing, at int, send func(*packing, int) (int, error)) (int, error) {
	d.calls++
	n := p.n
	defer func() { p.n = n }()
	for i := at; i < n; i++ {
		if err := d.answer(&p.msgs[i]); err != nil {
			if i == at {
				return 0, &net.OpError{Op: "write", Net: "udp", Err: os.NewSyscallError("sendmmsg", err)}
			}
			p.n = i
			break
		}
	}
	return send(p, at)
}

// disturb makes a Sender use a disturbed kernel.
func disturb(s *Sender, answer func(m *ipv4.Message) error) *disturbed {
	d := &disturbed{kernel: s.kernel, answer: answer}
	s.kernel = d
	return d
}

// An error that is not about segments leaves super-packets enabled.
func TestErrorOfThePath(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ECONNREFUSED, syscall.EINVAL} {
		t.Run(errno.Error(), func(t *testing.T) {
			r, s := ends(t, loopbacks["IPv4"])
			bad := true
			d := disturb(s, func(*ipv4.Message) error {
				if bad {
					return errno
				}
				return nil
			})
			to := NewDestination(r.Addr())
			msgs := []Message{{To: to, Segment: 4112, Buffers: [][]byte{pattern(9000)}}}
			n, err := s.Send(msgs)
			var e *Error
			if n != 0 || !errors.Is(err, errno) || !errors.As(err, &e) || e.Addr != to.Addr() || errors.Is(err, ErrTooBig) {
				t.Errorf("%d sent: %v", n, err)
			}
			if s.canSegment && s.MaxSegments(to, 4112) == 1 {
				t.Error("super-packets are disabled for it")
			}
			if again := d.calls > 1; s.canSegment && again != refusesSegments(errno) {
				t.Errorf("%d calls", d.calls)
			}
			bad = false
			send(t, s, msgs...)
			segments(t, r, 3)
		})
	}
}

// Messages sent before an error are counted, and those after it can be sent.
func TestErrorIsOfTheFirstUnsentMessage(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		to := NewDestination(r.Addr())
		good := Message{To: to, Segment: 100, Buffers: [][]byte{pattern(250)}}
		other := loopbacks["IPv4"]
		if addr.Is4() {
			other = loopbacks["IPv6"]
		}
		for name, bad := range map[string]Message{
			"port 0":         {To: NewDestination(netip.AddrPortFrom(addr, 0)), Buffers: [][]byte{{1}}},
			"family":         {To: NewDestination(netip.AddrPortFrom(other, 9)), Buffers: [][]byte{{1}}},
			"empty":          {To: to},
			"empty buffers":  {To: to, Buffers: [][]byte{nil, {}}},
			"too long":       {To: to, Segment: 4112, Buffers: [][]byte{pattern(maxPayload + 1)}},
			"many segments":  {To: to, Segment: 100, Buffers: [][]byte{pattern(100*maxSegments + 1)}},
			"negative":       {To: to, Segment: -1, Buffers: [][]byte{{1}}},
			"segment and 0":  {To: NewDestination(netip.AddrPortFrom(addr, 0)), Segment: 2, Buffers: [][]byte{{1, 2, 3}}},
			"far too long":   {To: to, Buffers: [][]byte{pattern(1 << 20)}},
			"large segments": {To: to, Segment: 1 << 20, Buffers: [][]byte{pattern(1 << 20)}},
		} {
			t.Run(name, func(t *testing.T) {
				msgs := []Message{good, good, bad, good}
				n, err := s.Send(msgs)
				var e *Error
				if n != 2 || !errors.As(err, &e) || e.Addr != bad.To.Addr() {
					t.Errorf("%d sent: %v, want 2 and why the third is not", n, err)
				}
				send(t, s, msgs[3:]...)
				segments(t, r, 9)
			})
		}
	})
}

// Send waits once for a full send buffer, and then drops the message.
func TestFullSendBuffer(t *testing.T) {
	for name, full := range map[string]struct {
		first, then error
		waits       bool
		lost        uint64
	}{
		"for a moment": {syscall.EAGAIN, nil, true, 0},
		"for long":     {syscall.EAGAIN, os.ErrDeadlineExceeded, true, 1},
		"a queue":      {syscall.ENOBUFS, syscall.ENOBUFS, true, 1},
		"no memory":    {syscall.ENOMEM, nil, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := ends(t, loopbacks["IPv4"])
			calls := 0
			disturb(s, func(*ipv4.Message) error {
				switch calls++; calls {
				case 1:
					return full.first
				case 2:
					if full.then == nil { // a busy machine may rest for longer than sendWait before it sends
						_ = s.conn.SetWriteDeadline(time.Now().Add(time.Minute))
					}
					return full.then
				}
				return nil
			})
			to := NewDestination(r.Addr())
			send(t, s, Message{To: to, Buffers: [][]byte{{1}}})
			send(t, s, Message{To: to, Buffers: [][]byte{{2}}})
			got, _ := segments(t, r, 2-int(full.lost)) //nolint:gosec // 0 or 1
			if last := got[len(got)-1]; last[0] != 2 {
				t.Errorf("the last is %d", last)
			}
			if st := s.Stats(); st.Lost != full.lost {
				t.Errorf("%d lost, want %d", st.Lost, full.lost)
			}
			<-time.After(2 * sendWait) // the deadline must not outlive the wait
			send(t, s, Message{To: to, Buffers: [][]byte{{3}}})
			segments(t, r, 1)
		})
	}
}

// A destination without a socket is no error, however often.
func TestNoReceiver(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		gone, err := Listen(addr, 0, opts...)
		if err != nil {
			t.Fatal(err)
		}
		r, s := ends(t, addr, opts...) // before that port is free
		gone.Close()
		dead, live := NewDestination(gone.Addr()), NewDestination(r.Addr())
		for i := range 20 {
			send(t, s, Message{To: dead, Buffers: [][]byte{{1}}}, Message{To: live, Buffers: [][]byte{{byte(i)}}})
		}
		got, _ := segments(t, r, 20)
		for i := range got {
			if got[i][0] != byte(i) {
				t.Fatalf("message %d is %d", i, got[i][0])
			}
		}
	})
}

// Many goroutines send on a socket while it is closed: each Send returns.
func TestSendersShareASocketUntilItCloses(t *testing.T) {
	eachMode(t, func(t *testing.T, addr netip.Addr, opts []Option) {
		r, s := ends(t, addr, opts...)
		to := NewDestination(r.Addr())
		var work sync.WaitGroup
		sent := make(chan struct{}, 1)
		for range 4 {
			work.Go(func() {
				msgs := []Message{{To: to, Segment: 500, Buffers: [][]byte{pattern(1200)}}, {To: to, TOS: 2, Buffers: [][]byte{{1}}}}
				for {
					if _, err := s.Send(msgs); err != nil {
						if !errors.Is(err, net.ErrClosed) {
							t.Error(err)
						}
						return
					}
					select {
					case sent <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 3 {
			<-sent
		}
		s.Close()
		work.Wait()
	})
}

// Sockets use no more memory than documented.
func TestMemory(t *testing.T) {
	_, s := ends(t, loopbacks["IPv4"])
	n := reflect.TypeFor[Sender]().Size()
	if k := reflect.TypeOf(s.kernel); k.Kind() == reflect.Pointer {
		n += k.Elem().Size()
	}
	if n > senderMemory {
		t.Errorf("a Sender takes %d bytes, documented are %d at most", n, senderMemory)
	}
	b := NewBatch()
	if n := reflect.TypeOf(b).Elem().Size() + uintptr(cap(b.data)+cap(b.control)); n > batchMemory {
		t.Errorf("a Batch takes %d bytes, documented are %d at most", n, batchMemory)
	}
}

func TestMaxSegments(t *testing.T) {
	_, s := ends(t, loopbacks["IPv4"])
	_, plain := ends(t, loopbacks["IPv4"], NoOffload())
	if !s.canSegment {
		t.Skip("this system has no UDP_SEGMENT")
	}
	to := NewDestination(netip.MustParseAddrPort("127.0.0.1:9"))
	for segment, want := range map[int]int{4112: 15, 1040: 62, 272: 64, 1: 64, maxPayload: 1, maxPayload + 1: 1, 0: 1, -1: 1} {
		if got := s.MaxSegments(to, segment); got != want {
			t.Errorf("%d segments of %d bytes, want %d", got, segment, want)
		}
		if got := plain.MaxSegments(to, segment); got != 1 {
			t.Errorf("without offload: %d segments of %d bytes", got, segment)
		}
	}
}
