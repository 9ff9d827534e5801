package roce

import (
	"fmt"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// counters are what an opening of a device has seen. The names that Counters gives
// them are the kernel's for its rxe (rxe_hw_counters.c) and, for congestion, those
// of mlx5, so that one graph shows all.
type counters struct {
	sent, received    atomic.Uint64 // packets
	sentAgain         atomic.Uint64 // of them, packets that had been sent before
	repeated          atomic.Uint64 // requests that had been carried out before
	gaps, gapsTold    atomic.Uint64 // NAKs of PSN errors: sent, received
	rnr, rnrTold      atomic.Uint64 // RNR NAKs: sent, received
	timeouts, givenUp atomic.Uint64 // retransmission timers that fired; work requests whose retries were exhausted
	refused           atomic.Uint64 // requests of peers that were answered with an error
	cnpSent, cnpTaken atomic.Uint64
}

// Counters implements verbs.Counted. What a station drops counts for each device
// that uses it.
func (d *device) Counters(port uint8) (map[string]uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usableLocked("read the counters of"); err != nil {
		return nil, err
	}
	if port != onlyPort {
		return nil, verbs.Errorf("read the counters of", fmt.Sprintf("%s port %d", d.name, port), verbs.ErrNotFound, "the only port is %d", onlyPort)
	}
	c := &d.counts
	all := map[string]uint64{
		"sent_pkts": c.sent.Load(), "rcvd_pkts": c.received.Load(), "resent_pkts": c.sentAgain.Load(),
		"duplicate_request": c.repeated.Load(), "out_of_seq_request": c.gaps.Load(), "rcvd_seq_err": c.gapsTold.Load(),
		"send_rnr_err": c.rnr.Load(), "rcvd_rnr_err": c.rnrTold.Load(), "completer_retry_err": c.timeouts.Load(),
		"retry_exceeded_err": c.givenUp.Load(), "resp_remote_err": c.refused.Load(),
		"np_cnp_sent": c.cnpSent.Load(), "rp_cnp_handled": c.cnpTaken.Load(),
	}
	for _, s := range d.endpoints {
		for name, n := range map[string]*atomic.Uint64{
			"dropped_malformed": &s.drops.malformed, "dropped_unknown_qp": &s.drops.unknown, "dropped_wrong_source": &s.drops.source,
			"dropped_icrc": &s.drops.damaged, "dropped_wrong_state": &s.drops.closed,
		} {
			all[name] += n.Load()
		}
	}
	return all, nil
}
