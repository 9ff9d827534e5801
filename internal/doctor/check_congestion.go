package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// losses are counters that rise when packets are lost or come out of order, by
// the names of several drivers (mlx5, irdma, bnxt_re, rxe), with what each means.
var losses = map[string]string{
	"out_of_sequence":                "packets came out of order",
	"packet_seq_err":                 "peers said that packets are missing",
	"local_ack_timeout_err":          "acknowledgements did not come in time",
	"rcvd_seq_err":                   "peers said that packets are missing",
	"out_of_seq_request":             "packets came out of order",
	"retry_exceeded_err":             "connections were given up after all retries",
	"oos_drop_count":                 "packets came out of order and were dropped",
	"max_retry_exceeded":             "connections were given up after all retries",
	"req_transport_retries_exceeded": "connections were given up after all retries",
}

func (e *examiner) congestion() {
	d := e.chosen()
	if d == nil {
		return
	}
	f, c := e.facts, e.facts.Choice
	const check = "congestion"
	if f.NoCounters != nil && !errors.Is(f.NoCounters, verbs.ErrUnavailable) {
		e.warn(check, doRead, "not all counters could be read: %v", f.NoCounters)
	}
	if c.Link != verbs.LinkEthernet {
		return
	}
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(losses)) {
		if n := f.Counters[name]; n > 0 {
			lost = append(lost, fmt.Sprintf("%s %d (%s)", name, n, losses[name]))
		}
	}
	if len(lost) > 0 {
		do := "make the network lossless for RoCE: PFC on one priority on NICs and every switch between, or ECN (DCQCN); see that --rdma-traffic-class is of that priority"
		if d.Software() {
			do = "look where packets are lost: ip -s link, tc -s qdisc"
		}
		e.warn(check, do, "since the counters began: %s", strings.Join(lost, ", "))
	} else if len(f.Counters) > 0 {
		e.ok(check, "the counters tell of no lost packets")
	}
	if d.Software() {
		return
	}
	e.pfc()
	if len(f.ECN) > 0 {
		var on []string
		for _, prio := range slices.Sorted(maps.Keys(f.ECN)) {
			if f.ECN[prio] {
				on = append(on, fmt.Sprint(prio))
			}
		}
		if len(on) == 0 {
			e.warn("ECN", "echo 1 > /sys/class/net/"+c.Netdev+"/ecn/roce_np/enable/3, and roce_rp likewise, for the priority of RoCE",
				"%s answers packets that switches marked in no priority", c.Netdev)
		} else {
			e.ok("ECN", "%s answers packets that switches marked in priority %s", c.Netdev, strings.Join(on, ", "))
		}
	}
	if sent, handled := f.Counters["np_cnp_sent"], f.Counters["rp_cnp_handled"]; sent+handled > 0 {
		e.ok("ECN", "it works: %d notifications of congestion were sent and %d were obeyed", sent, handled)
	}
}

// pfc judges the pauses of the chosen netdev. Where NICs and switches go by the
// DSCP, its upper three bits are the priority unless somebody has set another
// table.
func (e *examiner) pfc() {
	f := e.facts
	if f.PFC == nil {
		return
	}
	const check = "PFC"
	on := f.PFC.Priorities()
	ours := int(f.TrafficClass >> 5)
	var words []string
	for _, p := range on {
		words = append(words, fmt.Sprintf("%d (%d pauses sent, %d received)", p, f.PFC.Sent[p], f.PFC.Received[p]))
	}
	notified := slices.Contains(slices.Collect(maps.Values(f.ECN)), true)
	switch {
	case len(on) == 0 && notified:
		e.ok(check, "%s pauses no priority, and ECN is on", f.Choice.Netdev)
	case len(on) == 0:
		e.warn(check, "pause the priority of RoCE on NICs and every switch between (dcb pfc set dev "+f.Choice.Netdev+" prio-pfc 3:on), or use ECN",
			"%s pauses no priority: packets are lost where a queue is full", f.Choice.Netdev)
	case !slices.Contains(on, ours):
		e.warn(check, fmt.Sprintf("--rdma-traffic-class %d, or whatever this network maps to priority %d", on[0]<<5, on[0]),
			"%s pauses priority %s; packets with --rdma-traffic-class %d are of priority %d where the DSCP decides", f.Choice.Netdev, strings.Join(words, ", "), f.TrafficClass, ours)
	default:
		e.ok(check, "%s pauses priority %s, and packets are of %d", f.Choice.Netdev, strings.Join(words, ", "), ours)
	}
}
