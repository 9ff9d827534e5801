package verbstest

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// memoryEnv returns an environment of the suite on a fabric. The limit of a memory region is
// low enough for a test to exceed it.
func memoryEnv(o Options, virtual bool, plant bug) Env {
	limits := defaultLimits()
	limits.MRSize = 8 << 20
	if len(o.Devices) == 0 {
		o.Devices = []DeviceOptions{{}}
	}
	for i := range o.Devices {
		o.Devices[i].Limits = limits
	}
	nics := make(map[verbs.Provider]*NIC)
	return Env{
		Virtual: virtual,
		Ends: func(t testing.TB) (End, End) {
			f := NewFabric(o)
			f.bug = plant
			t.Cleanup(func() {
				if c := f.Counts(); c != (verbs.Counts{}) && !t.Failed() {
					t.Errorf("left open: %+v", c)
				}
				f.Close()
			})
			a := End{Provider: f.Provider("a"), Device: "mem0", Port: 1, GIDIndex: gidIndexIPv4}
			b := a
			b.Provider = f.Provider("b")
			clear(nics)
			nics[a.Provider], nics[b.Provider] = f.Host("a").NIC("mem0"), f.Host("b").NIC("mem0")
			return a, b
		},
		SetPort: func(_ testing.TB, e End, up bool) {
			if up {
				nics[e.Provider].PortUp(e.Port)
			} else {
				nics[e.Provider].PortDown(e.Port)
			}
		},
		KernelCounts: func(_ testing.TB, e End) (c verbs.Counts) {
			nics[e.Provider].f.mu.Lock()
			defer nics[e.Provider].f.mu.Unlock()
			c.QPs, c.MRs = len(nics[e.Provider].qps), len(nics[e.Provider].local)
			return c
		},
	}
}

// TestSuite runs the suite on fabrics with different options.
func TestSuite(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		real    bool
		change  func(*Env)
	}{
		{name: "AtOnce"},
		{name: "RealTime", real: true},
		{name: "RealTimeAndLatency", options: Options{Latency: 20 * time.Microsecond}, real: true},
		{name: "Latency", options: Options{Latency: 50 * time.Microsecond}},
		{name: "Bandwidth", options: Options{Latency: time.Microsecond, Bandwidth: 100 << 20}},
		{name: "Loss", options: Options{Latency: time.Microsecond, Loss: 0.005}},
		{name: "PollTime", options: Options{PollTime: time.Microsecond}},
		{name: "StaleCompletions", options: Options{Latency: time.Microsecond, StaleCompletions: true}},
		{name: "InfiniBand", options: Options{Devices: []DeviceOptions{{Link: verbs.LinkInfiniBand}}}, change: func(e *Env) {
			ends := e.Ends
			e.Ends = func(t testing.TB) (End, End) {
				a, b := ends(t)
				a.GIDIndex, b.GIDIndex = 0, 0
				return a, b
			}
		}},
		{name: "OneDevice", change: func(e *Env) {
			ends := e.Ends
			e.Ends = func(t testing.TB) (End, End) {
				a, _ := ends(t)
				return a, a
			}
		}},
		{name: "SmallPackets", options: Options{Devices: []DeviceOptions{{MTU: verbs.MTU1024}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Seed = 1
			env := memoryEnv(c.options, !c.real, "")
			if c.change != nil {
				c.change(&env)
			}
			Run(t, env)
		})
	}
}
