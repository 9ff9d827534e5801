//go:build rxe

package verbstransport_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// TestRxeAddressGoesAndComesBack: an address is removed from the network device and added
// again. Verbs goes down and comes back with it, at whatever index the kernel puts it.
// (An entry that a queue pair holds stays in the table without its address, so the
// address may get another one.)
func TestRxeAddressGoesAndComesBack(t *testing.T) {
	names := rxeDevices(t)
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	p := newPair(t, clusterOptions{
		open: func(task cluster.Task) (verbs.Device, error) {
			return libibverbs.New(libibverbs.Options{}).Open(names[task.Index])
		},
		path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(100 * time.Millisecond), Retry: 6, RNRRetry: 6},
	})
	p.slow *= slow
	const address = "192.0.2.1/24 dev v0"
	t.Cleanup(func() { _ = exec.Command("ip", strings.Fields("addr replace "+address)...).Run() })
	up := p.until("verbs at first", isUp)
	p.exchange()
	was := p.address(p.to)

	ip("addr del " + address)
	gone := p.until("no verbs", func(l verbstransport.Connection) bool {
		return !l.Verbs && l.Reason != nil && strings.Contains(l.Reason.Error(), "192.0.2.1 (RoCE v2) is gone")
	})
	t.Log(gone.Reason)
	p.exchange()
	ip("addr add " + address)
	p.until("verbs again", func(l verbstransport.Connection) bool { return l.Verbs && l.Generation > up.Generation })
	p.exchange()

	// So quickly that a queue pair still holds the entry.
	ip("addr del " + address)
	ip("addr add " + address)
	p.until("verbs in the end", func(l verbstransport.Connection) bool {
		if l.Verbs {
			p.exchange()
		}
		return p.connection().Verbs
	})
	t.Logf("it was at index %d, and is at %d; %+v", was.Index, p.address(p.to).Index, p.connection().Stats)
	if l := p.connection(); l.Stats.Received < 2 {
		t.Errorf("%+v; want two tensors over verbs at least", l.Stats)
	}
}
