//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// limited runs a process as one that may lock so many bytes, and has no capability
// to lock more (capabilities(7), CAP_IPC_LOCK).
func limited(bytes int64) []string {
	return []string{"prlimit", fmt.Sprintf("--memlock=%d:%d", bytes, bytes), "setpriv", "--bounding-set=-ipc_lock"}
}

// A process that may lock too little memory says which number to raise: at its
// start when it can do nothing at all, and with the receive that has no room when
// there is no other wire. Where there is one, that carries what has no room.
func TestRxeMemlockTooSmall(t *testing.T) {
	w := newWorld(t, 2)
	t.Run("not even a start", func(t *testing.T) {
		w.within(t)
		r := w.launch(0, settings{}, limited(1<<20)...).wait(0)
		for _, want := range []string{"ulimit -l", "RLIMIT_MEMLOCK", "1048576"} {
			if !strings.Contains(r.Text, want) {
				t.Errorf("the error lacks %q: %q %s", want, r.Code, r.Text)
			}
		}
	})
	b := w.start(1, settings{})
	const locked = 24 << 20 // both pools' first arenas, messages, and some of what is exchanged
	for _, tt := range []struct{ name, fallback string }{{"another wire", "grpc"}, {"no other wire", "none"}} {
		t.Run(tt.name, func(t *testing.T) {
			w.within(t)
			a := w.start(0, settings{Fallback: tt.fallback}, limited(locked)...)
			a.untilVerbs(1, 0)
			b.untilVerbs(0, 0)
			w.meet(a, b)
			w.exchangeOverVerbs(a, b)
			w.step++
			x := w.parcel(b, a, large)
			b.send(x)
			id := a.recv(x)
			if tt.fallback == "grpc" {
				a.good(id)
				if s := a.state(); s.Bytes["grpc"] != x.size || s.Links[1].Elsewhere != 1 {
					t.Errorf("%+v", s)
				}
			} else {
				a.bad(status.ResourceExhausted, "ulimit -l", id)
				b.do(command{Op: opAbort, Step: x.step, Name: "over"})
			}
			w.exchangeOverVerbs(a, b)
			a.untilFree()
			a.close()
		})
	}
	b.untilFree()
	b.close()
}

// When the pool is empty a tensor takes the other wire, or is an error where there
// is none, and those with room go on over verbs.
func TestRxePoolEmpty(t *testing.T) {
	const limit = 4 << 20
	for _, fallback := range []string{"grpc", "none"} {
		t.Run("fallback "+fallback, func(t *testing.T) {
			w := newWorld(t, 2)
			a := w.launch(0, settings{Fallback: fallback, ArenaLimit: limit})
			b := w.launch(1, settings{Fallback: fallback})
			a.up()
			b.up()
			a.untilVerbs(1, 0)
			b.untilVerbs(0, 0)
			w.exchangeOverVerbs(a, b)
			w.step++
			x := w.parcel(b, a, 2*limit)
			many := []parcel{x}
			for range 15 {
				many = append(many, w.parcel(b, a, 1<<20))
			}
			var ids []int
			for _, x := range many {
				ids = append(ids, a.recv(x))
			}
			mend := w.slow(b.device, 4<<20) // so that they are under way together
			b.send(many...)
			there, exhausted := 0, 0
			for i, id := range ids {
				switch r := a.wait(id); {
				case r.Code == "":
					there++
				case r.Code == status.ResourceExhausted.String() && strings.Contains(r.Text, "pool") && fallback == "none":
					exhausted++
				default:
					t.Errorf("receive %d of %d bytes: %s", i, many[i].size, r.Text)
				}
			}
			mend()
			s := a.state()
			t.Logf("%d arrived, %v; %d had no room; %+v", there, s.Tensors, exhausted, s.Links[1])
			if exhausted+s.Tensors["grpc"] < 2 { // one is larger than the pool
				t.Error("everything had room that fits into the pool at all")
			}
			w.exchangeOverVerbs(a, b) // there is some again
			b.do(command{Op: opAbort, Step: x.step, Name: "over"})
			w.end(a, b)
		})
	}
}
