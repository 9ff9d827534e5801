//go:build linux

package shm

import (
	"log/slog"
	"testing"

	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

var unsupported = map[verbstest.Feature]string{
	verbstest.PortEvents: "the port of shared memory is always up",
	verbstest.MaxRegion:  "a region may be as large as memory",
}

// TestSuite runs the suite of all providers between two devices of one process.
func TestSuite(t *testing.T) {
	verbstest.Run(t, verbstest.Env{Ends: twoEnds, Unsupported: unsupported})
}

// TestSuiteOneDevice: both ends are one opened device.
func TestSuiteOneDevice(t *testing.T) {
	verbstest.Run(t, verbstest.Env{
		Ends: func(t testing.TB) (a, b verbstest.End) {
			a, _ = twoEnds(t)
			return a, a
		},
		Unsupported: unsupported,
	})
}

// twoEnds returns devices of two providers.
func twoEnds(t testing.TB) (a, b verbstest.End) {
	log := Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	p, o := New(log), New(log)
	o.order = p.order
	return verbstest.End{Provider: p, Device: DeviceName, Port: 1}, verbstest.End{Provider: o, Device: DeviceName, Port: 1}
}
