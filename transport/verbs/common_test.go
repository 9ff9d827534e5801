package verbstransport_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// apart are options of a cluster that allows nothing but verbs, in which task 1 has one device, over
// link, and task 0 all but that.
func apart(link verbs.LinkLayer) clusterOptions {
	o := sideBySide()
	o.require = true
	o.tune = func(task cluster.Task, o *verbstransport.Options) {
		o.Backoff = gateBackoff
		all := append([]verbstransport.PortOptions{o.PortOptions}, o.Fixed...)
		o.PortOptions, o.Fixed = verbstransport.PortOptions{}, nil
		for i, p := range all {
			is := i == 0 && link == verbs.LinkEthernet || i > 0 && p.Device.Info().Name == link.String()
			switch {
			case is != (task.Index == 1):
			case i == 0:
				o.PortOptions = p
			default:
				o.Fixed = append(o.Fixed, p)
			}
		}
	}
	return o
}

// TestNothingInCommonFailsAtOnce: two processes whose devices have no route in common, and that may use
// nothing else, fail receives as soon as each knows what the other has. The error names the setting, and
// is none that is tried again. A process with a fabric device alone quotes its peer.
func TestNothingInCommonFailsAtOnce(t *testing.T) {
	for link, words := range map[verbs.LinkLayer][2][]string{
		verbs.LinkTCP:      {{"has tcp (setting provider)", "has shm, libibverbs"}, {"has tcp", "has shm, libibverbs (setting provider)"}},
		verbs.LinkEthernet: {{"no route over rdma", "setting provider"}, {"has libibverbs", "has shm, tcp (setting provider)"}},
	} {
		t.Run(link.String(), func(t *testing.T) {
			s := newStage(t, apart(link))
			all := s.startWith(0, transporttest.NodeOptions{})
			one := s.startWith(1, transporttest.NodeOptions{})
			const what = "fallback is none"
			one.recv(1, all.key(one, "v")).fails(status.FailedPrecondition, append(words[0], what)...)
			all.recv(1, one.key(all, "v")).fails(status.FailedPrecondition, append(words[1], what)...)
		})
	}
}
