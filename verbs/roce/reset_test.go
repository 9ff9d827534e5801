package roce

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestPollDuringReset: completions that are polled while their queue pair is reset must
// not free slots of the queue pair, whose queues are empty after the reset.
func TestPollDuringReset(t *testing.T) {
	const slots, resets = 8192, 50
	x := newTestEnd(t, newProvider(Options{}, newFabric().host(hostA)), "roce-eth0", netip.MustParseAddr(hostA), 64)
	c := must(x.dev.CreateCQ(verbs.CQConfig{Size: slots}))(t)
	v := must(x.pd.CreateQP(verbs.QPConfig{SendCQ: c, RecvCQ: c, MaxSend: slots}))(t)
	q := v.(*qp) //nolint:errcheck // always a *qp
	sends, wcs := make([]verbs.SendWR, slots), make([]verbs.WC, slots)
	for range resets {
		if err := q.ToErr(); err != nil { // posted work is flushed at once
			t.Fatal(err)
		}
		if n, err := q.PostSend(sends); err != nil {
			t.Errorf("%d sends are posted: %v", n, err)
			break
		}
		var polls sync.WaitGroup
		polls.Go(func() {
			if _, err := c.Poll(wcs); err != nil {
				t.Error(err)
			}
		})
		for q.machine.req.freed.Load() == 0 { // the poll is in progress
			runtime.Gosched()
		}
		if err := q.ToReset(); err != nil {
			t.Error(err)
		}
		polls.Wait()
	}
	for _, o := range []interface{ Close() error }{q, c} {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}
