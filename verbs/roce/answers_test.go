package roce

import (
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestReadsFitIntoTheOwnBuffer: what a peer's buffer holds says nothing of where its
// answers go.
func TestReadsFitIntoTheOwnBuffer(t *testing.T) {
	const size = 1 << 22
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.buffer, f.bandwidth = 64<<10, 256<<20
		x, y := f.tips(t, size)
		joinTips(x, y, func(_ *verbs.Path, peer *verbs.Endpoint) { peer.UDP.Buffer = 4 << 20 })
		for range 2 {
			y.post(y.to(x, 1, verbs.OpRead, 0, size, 0))
			y.ends(1, verbs.StatusOK)
		}
		d, _ := y.dev.(verbs.Counted)
		c, err := d.Counters(onlyPort)
		if err != nil || c["resent_pkts"] > 0 || c["completer_retry_err"] > 0 {
			t.Errorf("%d requests were sent again, after %d timeouts, %v", c["resent_pkts"], c["completer_retry_err"], err)
		}
	})
}
