package udp

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkDatagram measures the processor time to send and to receive a datagram or
// super-packet. Over the loopback the kernel's part of both counts as sending. Other
// load on the machine does not count.
func BenchmarkDatagram(b *testing.B) {
	for family, addr := range loopbacks {
		for _, c := range []struct{ segments, size int }{{15, 4112}, {8, 4112}, {4, 4112}, {2, 4112}, {1, 4112}, {62, 1040}, {1, 1040}, {1, 28}} {
			b.Run(fmt.Sprintf("%s/%dx%d", family, c.segments, c.size), func(b *testing.B) {
				r, s := ends(b, addr)
				to := NewDestination(r.Addr())
				m := Message{To: to, Segment: c.size}
				header, trailer, payload := pattern(12), pattern(4), pattern(c.size-16)
				for range c.segments {
					m.Buffers = append(m.Buffers, header, payload, trailer)
				}
				msgs := make([]Message, 4)
				for i := range msgs {
					msgs[i] = m
				}
				batch := NewBatch()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var sending, receiving time.Duration
				for b.Loop() {
					begin := threadTime(b)
					send(b, s, msgs...)
					middle := threadTime(b)
					for range msgs {
						if err := r.Receive(batch, nil); err != nil {
							b.Fatal(err)
						}
					}
					sending += middle - begin
					receiving += threadTime(b) - middle
				}
				n := float64(b.N * len(msgs))
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(sending)/n, "ns/send")
				b.ReportMetric(float64(receiving)/n, "ns/receive")
				b.ReportMetric(n*float64(c.segments*c.size)/float64(sending+receiving), "GB/s")
			})
		}
	}
}

// threadTime returns the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
