package verbstest

import (
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// memoryEnv is the suite's environment over a fabric. A region's limit is low
// enough to be exceeded.
func memoryEnv(o Options, virtual bool, plant mistake) Env {
	limits := defaultLimits()
	limits.MRSize = 8 << 20
	if len(o.Devices) == 0 {
		o.Devices = []DeviceOptions{{}}
	}
	for i := range o.Devices {
		o.Devices[i].Limits = limits
	}
	nics := make(map[End]*NIC)
	return Env{
		Virtual: virtual,
		Ends: func(t testing.TB) (End, End) {
			f := NewFabric(o)
			f.planted = plant
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
			nics[a], nics[b] = f.Host("a").NIC("mem0"), f.Host("b").NIC("mem0")
			return a, b
		},
		SetPort: func(_ testing.TB, e End, up bool) {
			if up {
				nics[e].PortUp(e.Port)
			} else {
				nics[e].PortDown(e.Port)
			}
		},
		Witness: func(_ testing.TB, e End) (c verbs.Counts) {
			nics[e].f.mu.Lock()
			defer nics[e].f.mu.Unlock()
			c.QPs, c.MRs = len(nics[e].qps), len(nics[e].local)
			return c
		},
	}
}

func TestSuiteOnVirtualTime(t *testing.T) { Run(t, memoryEnv(Options{Seed: 1}, true, "")) }

func TestSuiteOnRealTime(t *testing.T) { Run(t, memoryEnv(Options{Seed: 1}, false, "")) }
