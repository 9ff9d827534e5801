package discovery

import (
	"maps"
	"testing"
)

// TestLossesBetween: the losses of some time by kind, and as a share of the packets, with the
// names of each driver.
func TestLossesBetween(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after map[string]uint64
		want          map[LossKind]uint64
		sent          float64 // the rate of LostSent
	}{
		{"nothing lost", map[string]uint64{"sent_pkts": 1}, map[string]uint64{"sent_pkts": 1001, "rp_cnp_handled": 5}, map[LossKind]uint64{}, 0},
		{
			"mlx5", map[string]uint64{"packet_seq_err": 100, "local_ack_timeout_err": 0, "out_of_sequence": 0, "port_xmit_packets": 5000, "port_rcv_packets": 0},
			map[string]uint64{"packet_seq_err": 103, "local_ack_timeout_err": 2, "out_of_sequence": 7, "port_xmit_packets": 6000, "port_rcv_packets": 10},
			map[LossKind]uint64{LostSent: 5, LostReceived: 7}, 0.005,
		},
		{ // each NAK is also a retry
			"rxe", nil, map[string]uint64{"sent_pkts": 1000, "rcvd_seq_err": 4, "completer_retry_err": 5, "send_rnr_err": 1},
			map[LossKind]uint64{LostSent: 5, NotReady: 1}, 0.005,
		},
		{
			"roce", nil, map[string]uint64{"sent_pkts": 1000, "resent_pkts": 90, "rcvd_seq_err": 4, "completer_retry_err": 5, "dropped_buffer_full": 3},
			map[LossKind]uint64{LostSent: 9, LostBuffer: 3}, 0.009,
		},
		{"counters that were reset", map[string]uint64{"rq_num_oos": 50}, map[string]uint64{"rq_num_oos": 2}, map[LossKind]uint64{LostReceived: 2}, 0},
		{ // its value may be that of months
			"counters that could not be read before", map[string]uint64{"rq_num_oos": 50},
			map[string]uint64{"rq_num_oos": 51, "sq_num_to": 9000, "sent_pkts": 10_000}, map[LossKind]uint64{LostReceived: 1}, 0,
		},
		{"no count of packets", nil, map[string]uint64{"sq_num_to": 2}, map[LossKind]uint64{LostSent: 2}, 0},
	} {
		l := LossesBetween(c.before, c.after)
		if !maps.Equal(l.By, c.want) || l.Rate(LostSent) != c.sent {
			t.Errorf("%s: %v, rate %v; want %v, rate %v", c.name, l.By, l.Rate(LostSent), c.want, c.sent)
		}
	}
}

// TestEveryLossCounterHasAKindAndWords: also each kind has a label.
func TestEveryLossCounterHasAKindAndWords(t *testing.T) {
	used := make(map[LossKind]bool)
	for name := range lossCounters {
		kind, text, ok := LossCounter(name)
		if used[kind] = true; !ok || kind == 0 || text == "" {
			t.Errorf("%s: %v %q", name, kind, text)
		}
	}
	labels := make(map[string]bool)
	for _, k := range LossKinds {
		if labels[k.String()] = true; !used[k] {
			t.Errorf("no counter means %v", k)
		}
	}
	if len(labels) != len(LossKinds) {
		t.Errorf("kinds share a label: %v", labels)
	}
}
