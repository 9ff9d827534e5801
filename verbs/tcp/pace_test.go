package tcp

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// TestFastConnectionGivesTheKernelMoreAtATime: the share is what the connection sends in paceTime,
// within its limits.
func TestFastConnectionGivesTheKernelMoreAtATime(t *testing.T) {
	for _, c := range []struct {
		name string
		rate int // bytes in a millisecond
		want int
	}{
		{"80 Mbit/s", 10 << 10, minShare},
		{"1 Gbit/s", 122 << 10, minShare},
		{"10 Gbit/s", 1220 << 10, 1 << 20},
		{"one host", 3 << 20, 2 << 20},
		{"faster than all", 100 << 20, maxShare},
	} {
		var p pace
		now := time.Second
		p.wrote(200 << 10) // what the empty socket took: nobody has sent it
		p.filled(now)
		for range 40 { // the socket is full every quarter of a millisecond
			p.wrote(c.rate / 4)
			now += time.Millisecond / 4
			p.filled(now)
		}
		if got := p.bytes(); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
}

// TestShareFallsByHalf: one stop of the writer does not end a large share, a slow connection does.
func TestShareFallsByHalf(t *testing.T) {
	var p pace
	now := time.Second
	p.filled(now)
	step := func(n int) {
		p.wrote(n)
		now += time.Millisecond
		p.filled(now)
	}
	step(4 << 20)
	for _, want := range []int{2 << 20, 1 << 20, 512 << 10, 256 << 10, minShare, minShare} {
		if step(10 << 10); p.bytes() != want {
			t.Fatalf("%d bytes, want %d", p.bytes(), want)
		}
	}
}

// TestTimeWithoutWorkIsNotMeasured: a connection that had nothing to send is not slow for that.
func TestTimeWithoutWorkIsNotMeasured(t *testing.T) {
	var p pace
	p.filled(time.Second)
	p.wrote(4 << 20)
	p.filled(time.Second + time.Millisecond)
	p.rest()
	p.wrote(100)
	if changed := p.filled(time.Minute); changed || p.bytes() != 4<<20 {
		t.Fatalf("%d bytes after a pause, want %d", p.bytes(), 4<<20)
	}
}

// TestFramesGrowWithTheShare: a frame carries as much as the connection may take at a time, within
// the limits of frames.
func TestFramesGrowWithTheShare(t *testing.T) {
	for share, want := range map[uint64]uint32{0: minSegment, minShare: minSegment, 512 << 10: 512 << 10, maxShare: maxSegment} {
		m := newModel(t, 1, rc.RNRUnlimited)
		e := m.ends[0]
		wr := verbs.SendWR{
			Op: verbs.OpWrite, Signaled: true, SGL: []verbs.SGE{{Addr: e.mr.Addr(), Length: modelMemory, LKey: e.mr.LKey()}},
			RemoteAddr: e.peer().mr.Addr(), RKey: e.peer().mr.RKey(),
		}
		e.send(0, wr)
		var c carried
		var s frameContent
		e.machine.share = share
		e.machine.next(0, true, &c.header, &s)
		if got := c.header.Length; got != want {
			t.Errorf("with a share of %d a frame has %d bytes, want %d", share, got, want)
		}
	}
}

// TestBurstIsNoMeasurement: a socket that is full twice within paceTime says nothing about the connection.
func TestBurstIsNoMeasurement(t *testing.T) {
	var p pace
	p.filled(time.Second)
	p.wrote(1 << 20)
	if p.filled(time.Second+paceTime-1) || p.bytes() != minShare {
		t.Errorf("the share is %d bytes after a burst", p.bytes())
	}
}
