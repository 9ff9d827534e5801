package roce

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestCorruptedPacketsAreOnlyCounted: transfers of all kinds in both directions, with
// one bit flipped in every twentieth packet. Each work request completes once, with
// success; memory has the right content; and a counter of dropped packets counts each
// such packet.
func TestCorruptedPacketsAreOnlyCounted(t *testing.T) {
	const (
		chunk, chunks = 20000, 8
		part          = chunk * chunks
		counter       = 4 * part // after the source, the target of WRITEs, the inbox and the sink of READs
		rounds        = 20
	)
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.corrupt, f.buffer = 0.05, 1<<30
		x, y := f.pair(t, counter+8*(1+chunks))
		joinEnds(x, y, nil)
		ends := [2]*testEnd{x, y}
		for round := range rounds {
			var want [2]map[verbs.WRID]verbs.WCOp
			for i, e := range ends {
				rand.NewChaCha8([32]byte{byte(round), byte(i)}).Read(e.mem[:part]) //nolint:errcheck // never fails
				want[i] = make(map[verbs.WRID]verbs.WCOp)
				for k := range chunks {
					id := verbs.WRID(1000 + k)
					e.recv(id, 2*part+k*chunk, chunk)
					want[i][id] = verbs.WCRecv
				}
			}
			for i, e := range ends {
				peer := ends[1-i]
				for k := range chunks {
					at := k * chunk
					e.post(
						e.to(peer, verbs.WRID(4*k), verbs.OpWrite, at, chunk, part+at), e.to(peer, verbs.WRID(4*k+1), verbs.OpSend, at, chunk, 0),
						e.to(peer, verbs.WRID(4*k+2), verbs.OpRead, 3*part+at, chunk, at),
						func(wr verbs.SendWR) verbs.SendWR { wr.Add = 1; return wr }(e.to(peer, verbs.WRID(4*k+3), verbs.OpFetchAdd, counter+8*(1+k), 8, counter)),
					)
					for j, op := range []verbs.WCOp{verbs.WCWrite, verbs.WCSend, verbs.WCRead, verbs.WCAtomic} {
						want[i][verbs.WRID(4*k+j)] = op
					}
				}
			}
			for i, e := range ends {
				got := make(map[verbs.WRID]verbs.WCOp)
				for range want[i] {
					wc := e.wait()
					if _, twice := got[wc.ID]; twice || wc.Status != verbs.StatusOK {
						t.Fatalf("round %d: %+v, twice %v", round, wc, twice)
					}
					got[wc.ID] = wc.Op
				}
				if !maps.Equal(got, want[i]) {
					t.Fatalf("round %d: what ended is %v, want %v", round, got, want[i])
				}
			}
			for i, e := range ends {
				source := ends[1-i].mem[:part]
				for name, at := range map[string]int{"written": part, "sent": 2 * part, "read": 3 * part} {
					if !bytes.Equal(e.mem[at:at+part], source) {
						t.Errorf("round %d: what was %s has other bytes", round, name)
					}
				}
				for k := range chunks {
					if n := native(e.mem[counter+8*(1+k):]); n != uint64(round*chunks+k) {
						t.Errorf("round %d: addition %d found %d", round, k, n)
					}
				}
			}
			time.Sleep(time.Second) // repeated requests read the memory
			synctest.Wait()
		}
		dropped := uint64(0)
		for _, e := range ends {
			var wcs [8]verbs.WC
			if n := must(e.cq.Poll(wcs[:]))(t); n > 0 || len(e.wcs) > 0 {
				t.Errorf("%d more end: %+v", n, wcs[:n])
			}
			d := e.dev.(verbs.CounterReader) //nolint:errcheck // it has counters
			all := must(d.Counters(onlyPort))(t)
			for name, n := range all {
				if strings.HasPrefix(name, "dropped_") {
					dropped += n
				}
			}
			if all["dropped_icrc"] == 0 || all["resp_remote_err"] > 0 {
				t.Errorf("counted are %v", all)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		t.Logf("%d packets were corrupted", f.corrupted)
		if dropped != uint64(f.corrupted) || dropped < 100 {
			t.Errorf("%d packets were dropped, and %d corrupted", dropped, f.corrupted)
		}
	})
}
