//go:build linux

package shm

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// BenchmarkWrite writes to another process, 4 at a time, beside a copy out of a mapped memfd by one
// process: that is the most that one copy can reach.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("bare-copy/%d", size), func(b *testing.B) {
			f := must(newMemfd(size))(b)
			defer f.free()
			m := must(unix.Mmap(f.fd, 0, size, unix.PROT_READ, unix.MAP_SHARED))(b)
			defer func() { _ = unix.Munmap(m) }()
			to := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(to, m)
			}
		})
		b.Run(fmt.Sprintf("shm/%d", size), func(b *testing.B) {
			x := newTestEnd(b, New(Options{}), childMemory)
			c := startChild(b, "echo", Options{}, nil)
			c.join(x)
			x.post(c.remote(x, 2, verbs.OpWrite, 0, size, 0)) // when it ends both sides are connected
			x.ends(2, verbs.StatusOK)
			b.SetBytes(int64(size))
			flying := 0
			for b.Loop() {
				if flying == 4 {
					x.ends(1, verbs.StatusOK)
					flying--
				}
				x.post(c.remote(x, 1, verbs.OpWrite, 0, size, 0))
				flying++
			}
			for ; flying > 0; flying-- {
				x.ends(1, verbs.StatusOK)
			}
		})
	}
}

// BenchmarkPingPong exchanges 8 bytes with another process. Both sides wait with Arm and Wait, or
// this one polls.
func BenchmarkPingPong(b *testing.B) {
	for _, polls := range []bool{false, true} {
		b.Run(fmt.Sprintf("polls=%v", polls), func(b *testing.B) {
			x := newTestEnd(b, New(Options{}), childMemory)
			c := startChild(b, "echo", Options{}, nil)
			c.join(x)
			wr := verbs.SendWR{ID: 11, Op: verbs.OpSend, SGL: []verbs.SGE{{Addr: x.mr.Addr(), Length: 8, LKey: x.mr.LKey()}}}
			b.ReportAllocs()
			x.post(verbs.SendWR{ID: 12, Op: verbs.OpWrite, Signaled: true}) // when it ends both sides are connected
			x.ends(12, verbs.StatusOK)
			n := 0
			for b.Loop() {
				x.recv(10, 64, 64)
				n++
				wr.Signaled = n%64 == 0
				x.post(wr)
				for got := false; !got; {
					var wc verbs.WC
					if polls {
						wc = x.polled()
					} else {
						wc = x.wait()
					}
					got = wc.Op == verbs.WCRecv
				}
			}
		})
	}
}

// polled returns the next completion, without sleeping.
func (x *testEnd) polled() verbs.WC {
	for {
		if n, err := x.cq.Poll(x.room[:]); err != nil {
			x.t.Fatal(err)
		} else if n > 0 {
			return x.room[0]
		}
	}
}
