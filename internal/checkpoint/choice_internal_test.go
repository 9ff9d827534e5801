package checkpoint

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/delta"
)

// A path of many small deltas costs a round trip and the bytes of a receive for each.
func TestEachDeltaOfAPathIsCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		route  pullRoute
		length int64
		each   int64 // bytes of a delta
		n      int
		want   bool
	}{
		"one delta":                                {pullRoute{10e6, time.Millisecond}, 1 << 20, 10_000, 1, true},
		"ten, of a large tensor":                   {pullRoute{10e6, time.Millisecond}, 1 << 20, 10_000, 10, true},
		"64 round trips":                           {pullRoute{10e6, 10 * time.Millisecond}, 1 << 20, 100, 64, false},
		"64 without a round trip":                  {pullRoute{10e6, 0}, 1 << 20, 100, 64, true},
		"64 receives of 600 bytes, slow":           {pullRoute{1e4, time.Microsecond}, 30_000, 50, 64, false},
		"ten of them":                              {pullRoute{1e4, time.Microsecond}, 30_000, 50, 10, true},
		"64 receives of 600 bytes, rate not known": {pullRoute{0, time.Second}, 30_000, 50, 64, false},
		"ten of them, rate not known":              {pullRoute{0, time.Second}, 30_000, 50, 10, true},
		"small":                                    {pullRoute{10e6, time.Millisecond}, 1000, 100, 1, true},
		"small, two":                               {pullRoute{10e6, time.Millisecond}, 1000, 100, 2, false},
	} {
		if got := tt.route.gains(tt.length, delta.Cost{Bytes: int64(tt.n) * tt.each}, tt.n); got != tt.want {
			t.Errorf("%s: by deltas %v, want %v", name, got, tt.want)
		}
	}
}

func TestRoundTripIsTheShortestAnswer(t *testing.T) {
	f := new(follower)
	for _, tt := range []struct{ took, want time.Duration }{{8 * time.Millisecond, 8 * time.Millisecond}, {2 * time.Millisecond, 2 * time.Millisecond}, {10 * time.Millisecond, 3 * time.Millisecond}} {
		if f.answered(tt.took); f.trip != tt.want {
			t.Errorf("after an answer in %v it is %v, want %v", tt.took, f.trip, tt.want)
		}
	}
}

// A pull waits for deltas as long as all tensors are there earlier for it.
func TestAPullWaitsForDeltasWhileThatGains(t *testing.T) {
	const mib = 1 << 20
	slow, fast := pullRoute{rate: 1 << 20, trip: time.Millisecond}, pullRoute{rate: 1 << 30, trip: time.Millisecond}
	made := func(ready time.Duration) awaited {
		return awaited{ready: ready, gains: true, length: mib, deltas: delta.Cost{Bytes: 10_000}}
	}
	whole := awaited{ready: time.Second, length: mib}
	for name, tt := range map[string]struct {
		route pullRoute
		all   []awaited
		want  int
	}{
		"none":                              {slow, nil, 0},
		"made":                              {slow, []awaited{made(0), made(0)}, 0},
		"soon":                              {slow, []awaited{made(time.Millisecond), made(2 * time.Millisecond)}, 2},
		"late, over a fast route":           {fast, []awaited{made(time.Second), made(2 * time.Second)}, 0},
		"the last one is late":              {slow, []awaited{made(time.Millisecond), made(2 * time.Millisecond), made(time.Minute)}, 2},
		"late, but many gain by it":         {slow, []awaited{made(2 * time.Second), made(2 * time.Second), made(2*time.Second + 1), made(2*time.Second + 2)}, 4},
		"the first of many alone is late":   {slow, []awaited{made(1500 * time.Millisecond)}, 0},
		"one that does not gain at the end": {slow, []awaited{made(time.Millisecond), whole}, 1},
		"one that does not gain before":     {slow, []awaited{whole, made(time.Millisecond)}, 2},
		"rate not known":                    {pullRoute{}, []awaited{made(time.Hour), whole, made(2 * time.Hour), whole}, 3},
		"rate not known, made":              {pullRoute{}, []awaited{made(0), whole}, 0},
	} {
		if got := tt.route.await(tt.all); got != tt.want {
			t.Errorf("%s: it waits for %d, want %d", name, got, tt.want)
		}
	}
}
