package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs"
)

// madeUp are rows for two providers that Tryst does not have, with the devices of a host in memory: one of RDMA,
// which is preferred to all others, and one for shared memory.
func (w *kindsTown) madeUp(i int) []providers.Row {
	host := fmt.Sprintf("host%d", i)
	return []providers.Row{
		{
			Name: "ether", Order: 1, Timeout: 9 * time.Millisecond, QueuePairs: 3,
			New: func(providers.Options) verbs.Provider { return namedProvider{w.fabric.Provider(host), "ether", nil} },
		},
		{
			Name: "blackboard", Link: verbs.LinkShared, Order: 0,
			New: func(providers.Options) verbs.Provider {
				return namedProvider{w.fixed[ProviderSHM].Provider(host), "blackboard", w.broken["blackboard"]}
			},
			Metrics: []providers.Metric{{Name: "x", Read: func(p verbs.Provider) float64 { return float64(len(p.Name())) }}},
		},
	}
}

// TestAMadeUpProviderIsARow: a provider with a row is chosen and opened, with its defaults, and carries tensors; nothing
// else knows it. auto prefers it by its order.
func TestAMadeUpProviderIsARow(t *testing.T) {
	w := newKindsTown(t, 2)
	start := func(i int) *VerbsServer {
		o := Options{Allocator: tensortest.NewAllocator(t), rows: append(providers.All(), w.madeUp(i)...)}
		o.rows = slices.DeleteFunc(o.rows, func(p providers.Row) bool { return p.Link == verbs.LinkTCP || p.Local() && p.Name != "blackboard" })
		v, err := StartVerbs(t.Context(), w.settings(i, func(c *Config) { c.RDMA.Timeout = 0 }), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := v.Close(context.Background()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return v
	}
	a, b := start(0), start(1)
	if got := devicesOf(a); !slices.Equal(got, []string{"mem0", "shm0"}) {
		t.Fatalf("the devices are %q", got)
	}
	for i, want := range []string{"ether", "blackboard"} {
		if s := a.Devices()[i]; s.Name() != want || s.Why != "auto: it works here" {
			t.Errorf("%s has %v, because %s; want %s", s.Name(), s.Choice, s.Why, want)
		}
	}
	if p := a.rdma.Finder.Port(a.Devices()[0]); p.Rails != 3 || p.Path.Timeout != verbs.TimeoutCode(9*time.Millisecond) {
		t.Errorf("%d queue pairs, timeout %d: not the defaults of its row", p.Rails, p.Path.Timeout)
	}
	if m := w.madeUp(0)[1].Metrics[0]; a.rdma.Fixed.Metric(m) != float64(len("blackboard")) {
		t.Errorf("its metric is %v", a.rdma.Fixed.Metric(m))
	}
	w.up(a, b.Task())
	w.exchange(1, a, b, 7)
	if l := a.Links()[0]; l.Device != "shm0" {
		t.Errorf("the channel is over %s", l.Device)
	}
}
