//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// limited returns a command prefix for a process that may lock this many bytes, without the
// capability to lock more (capabilities(7), CAP_IPC_LOCK).
func limited(bytes int64) []string {
	return []string{"prlimit", fmt.Sprintf("--memlock=%d:%d", bytes, bytes), "setpriv", "--bounding-set=-ipc_lock"}
}

// If a process may lock too little memory, its error names the limit to raise. It does not start if
// it cannot allocate its pools. Otherwise a receive without memory takes gRPC, and fails if that is
// off.
func TestRxeMemlockTooSmall(t *testing.T) {
	bed := newTestbed(t, 2)
	t.Run("too little to start", func(t *testing.T) {
		bed.within(t)
		r := bed.launch(0, settings{}, limited(1<<20)...).wait(0)
		for _, want := range []string{"ulimit -l", "RLIMIT_MEMLOCK", "1048576"} {
			if !strings.Contains(r.Text, want) {
				t.Errorf("error %q %s lacks %q", r.Code, r.Text, want)
			}
		}
	})
	b := bed.start(1, settings{})
	const locked = 24 << 20 // the first arenas of both pools, messages, and some of the tensors
	for _, tt := range []struct{ name, fallback string }{{"fallback grpc", "grpc"}, {"fallback none", "none"}} {
		t.Run(tt.name, func(t *testing.T) {
			bed.within(t)
			a := bed.start(0, settings{Fallback: tt.fallback}, limited(locked)...)
			a.untilVerbs(1, 0)
			b.untilVerbs(0, 0)
			bed.untilRestartKnown(a, b)
			bed.exchangeOverVerbs(a, b)
			bed.step++
			x := bed.newTensor(b, a, large)
			b.send(x)
			id := a.recv(x)
			if tt.fallback == "grpc" {
				a.recvOK(id)
				if s := a.state(); s.Bytes["grpc"] != x.size || s.Connections[1].Elsewhere != 1 {
					t.Errorf("state %+v, want %d bytes over gRPC, of one receive without memory", s, x.size)
				}
			} else {
				a.recvFails(status.ResourceExhausted, "ulimit -l", id)
				b.do(command{Op: opAbort, Step: x.step, Name: "over"})
			}
			bed.exchangeOverVerbs(a, b)
			a.untilFree()
			a.close()
		})
	}
	b.untilFree()
	b.close()
}

// When the pool is full, a tensor takes gRPC, or its receive fails if that is off. Tensors for
// which there is memory still take verbs.
func TestRxePoolEmpty(t *testing.T) {
	const limit = 4 << 20
	for _, fallback := range []string{"grpc", "none"} {
		t.Run("fallback "+fallback, func(t *testing.T) {
			bed := newTestbed(t, 2)
			a := bed.launch(0, settings{Fallback: fallback, ArenaLimit: limit})
			b := bed.launch(1, settings{Fallback: fallback})
			a.up()
			b.up()
			a.untilVerbs(1, 0)
			b.untilVerbs(0, 0)
			bed.exchangeOverVerbs(a, b)
			bed.step++
			x := bed.newTensor(b, a, 2*limit)
			many := []testTensor{x}
			for range 15 {
				many = append(many, bed.newTensor(b, a, 1<<20))
			}
			var ids []int
			for _, x := range many {
				ids = append(ids, a.recv(x))
			}
			restore := bed.slow(b.device, 4<<20) // so that all are under way together
			b.send(many...)
			received, exhausted := 0, 0
			for i, id := range ids {
				switch r := a.wait(id); {
				case r.Code == "":
					received++
				case r.Code == status.ResourceExhausted.String() && strings.Contains(r.Text, "pool") && fallback == "none":
					exhausted++
				default:
					t.Errorf("receive %d of %d bytes: %s", i, many[i].size, r.Text)
				}
			}
			restore()
			s := a.state()
			t.Logf("%d were received (%v), %d had no memory; channel %+v", received, s.Tensors, exhausted, s.Connections[1])
			if exhausted+s.Tensors["grpc"] < 2 { // one is larger than the pool
				t.Errorf("%d tensors had no memory, want at least 2: the pool was never full", exhausted+s.Tensors["grpc"])
			}
			bed.exchangeOverVerbs(a, b) // the pool has memory again
			b.do(command{Op: opAbort, Step: x.step, Name: "over"})
			bed.end(a, b)
		})
	}
}
