package tcp

import (
	"testing"

	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// TestSuite: both devices listen, so the secrets decide who connects.
func TestSuite(t *testing.T) {
	verbstest.Run(t, environment(Options{ListenOn: "127.0.0.1:0"}, Options{ListenOn: "127.0.0.1:0"}))
}

func environment(a, b Options) verbstest.Env {
	return verbstest.Env{
		Ends: func(testing.TB) (verbstest.End, verbstest.End) {
			return verbstest.End{Provider: New(a), Device: deviceName, Port: onlyPort}, verbstest.End{Provider: New(b), Device: deviceName, Port: onlyPort}
		},
		Unsupported: map[verbstest.Feature]string{
			verbstest.PortEvents: "the port is always active",
			verbstest.MaxRegion:  "a region may be as large as memory",
		},
	}
}

// TestSuiteOneSideListens: the side without an address connects, as a client does. Its readers spin, and
// those of the other side do not.
func TestSuiteOneSideListens(t *testing.T) {
	env := environment(Options{Busy: true}, Options{ListenOn: "127.0.0.1:0"})
	env.Unsupported[verbstest.SelfConnect] = "a device without an address cannot be dialed, also not by itself"
	env.Groups = []string{"State", "Data", "Failure"}
	verbstest.Run(t, env)
}
