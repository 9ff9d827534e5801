package roce

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/verbs"
)

// counters are the counters of an opened device. Their names in Counters are those of
// the kernel's rxe (rxe_hw_counters.c) and, for congestion, of mlx5, so that one graph
// can show all devices.
type counters struct {
	sent, received             atomic.Uint64 // packets
	retransmitted              atomic.Uint64 // packets sent again, included in sent
	duplicates                 atomic.Uint64 // requests that had been executed before
	nakSeqSent, nakSeqReceived atomic.Uint64 // NAKs for sequence errors
	rnrSent, rnrReceived       atomic.Uint64 // RNR NAKs
	timeouts, retriesExceeded  atomic.Uint64 // retransmission timers that fired; work requests whose retries were exhausted
	rejected                   atomic.Uint64 // requests of the peer answered with an error NAK
	cnpSent, cnpReceived       atomic.Uint64
}

// pathCounters count what travels between an endpoint and the receiving socket of a peer.
type pathCounters struct {
	sent, resent, lost, received, missing atomic.Uint64
}

// Paths implements verbs.PathReader. A path counts for each device that uses its endpoint.
func (d *device) Paths() (paths []verbs.PathStats) {
	d.Mu.Lock()
	endpoints := slices.Clone(d.endpoints)
	d.Mu.Unlock()
	for _, e := range endpoints {
		flows := make(map[*peer][]*flow)
		e.mu.Lock()
		for _, f := range e.flows {
			flows[f.peer] = append(flows[f.peer], f)
		}
		e.mu.Unlock()
		for p, list := range flows { // without e.mu, which is taken after a flow's lock
			s := verbs.PathStats{
				Peer: list[0].remote.at, Sent: p.counts.sent.Load(), Resent: p.counts.resent.Load(), Lost: p.counts.lost.Load(),
				Received: p.counts.received.Load(), Missing: p.counts.missing.Load(),
			}
			for _, f := range list {
				f.mu.Lock()
				s.RoundTrip = max(s.RoundTrip, f.window.rtt)
				if l := f.window.least; l != 0 && (s.Shortest == 0 || l < s.Shortest) {
					s.Shortest = l
				}
				f.mu.Unlock()
			}
			paths = append(paths, s)
		}
	}
	return paths
}

// Counters implements verbs.CounterReader. Packets that an endpoint drops count for each
// device that uses it.
func (d *device) Counters(port uint8) (map[string]uint64, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := d.UsableLocked("read the counters of"); err != nil {
		return nil, err
	}
	if port != onlyPort {
		return nil, verbs.Errorf("read the counters of", fmt.Sprintf("%s port %d", d.Name(), port), verbs.ErrNotFound, "the only port is %d", onlyPort)
	}
	c := &d.counts
	all := map[string]uint64{
		"sent_pkts": c.sent.Load(), "rcvd_pkts": c.received.Load(), "resent_pkts": c.retransmitted.Load(),
		"duplicate_request": c.duplicates.Load(), "out_of_seq_request": c.nakSeqSent.Load(), "rcvd_seq_err": c.nakSeqReceived.Load(),
		"send_rnr_err": c.rnrSent.Load(), "rcvd_rnr_err": c.rnrReceived.Load(), "completer_retry_err": c.timeouts.Load(),
		"retry_exceeded_err": c.retriesExceeded.Load(), "resp_remote_err": c.rejected.Load(),
		"np_cnp_sent": c.cnpSent.Load(), "rp_cnp_handled": c.cnpReceived.Load(),
	}
	for _, s := range d.endpoints {
		for name, n := range map[string]*atomic.Uint64{
			"dropped_malformed": &s.drops.malformed, "dropped_unknown_qp": &s.drops.unknown, "dropped_wrong_source": &s.drops.source,
			"dropped_icrc": &s.drops.damaged, "dropped_wrong_state": &s.drops.closed,
		} {
			all[name] += n.Load()
		}
		all["dropped_buffer_full"] += s.receiver.Overflowed()
	}
	return all, nil
}
