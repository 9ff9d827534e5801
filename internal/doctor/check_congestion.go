package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

func (e *examiner) congestion() {
	d := e.chosen()
	if d == nil {
		return
	}
	f, c := e.facts, e.facts.Choice
	const check = "congestion"
	if f.NoCounters != nil && !errors.Is(f.NoCounters, verbs.ErrUnavailable) {
		e.warn(check, doRead, "some counters could not be read: %v", f.NoCounters)
	}
	losses := discovery.LossesBetween(nil, f.Counters)
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(losses.Names)) {
		_, text, _ := discovery.LossCounter(name)
		lost = append(lost, fmt.Sprintf("%s %d (%s)", name, losses.Names[name], text))
	}
	if len(lost) > 0 {
		kind := discovery.LossKinds[0]
		for _, k := range discovery.LossKinds {
			if losses.By[k] > losses.By[kind] {
				kind = k
			}
		}
		e.warn(check, discovery.LossDo(kind, d.Software(), c.Link == verbs.LinkInfiniBand), "since the counters started: %s", strings.Join(lost, ", "))
	} else if len(f.Counters) > 0 {
		e.ok(check, "the counters show no lost packets")
	}
	if d.Software() || c.Link != verbs.LinkEthernet {
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
			e.warn("ECN", "echo 1 > /sys/class/net/"+c.Netdev+"/ecn/roce_np/enable/3, and the same for roce_rp, with the priority of RoCE",
				"%s reacts to ECN marks in no priority", c.Netdev)
		} else {
			e.ok("ECN", "%s reacts to ECN marks in priority %s", c.Netdev, strings.Join(on, ", "))
		}
	}
	if sent, handled := f.Counters["np_cnp_sent"], f.Counters["rp_cnp_handled"]; sent+handled > 0 {
		e.ok("ECN", "it works: %d congestion notifications were sent, and %d were handled", sent, handled)
	}
}

// pfc checks the pauses of the chosen netdev. Where NICs and switches derive the priority from the
// DSCP, it is the upper three bits of the DSCP, unless another mapping is configured.
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
		e.ok(check, "PFC is off on %s, and ECN is on", f.Choice.Netdev)
	case len(on) == 0:
		e.warn(check, "enable PFC for the priority of RoCE on the NICs and all switches between them (dcb pfc set dev "+f.Choice.Netdev+" prio-pfc 3:on), or use ECN",
			"PFC is off on %s: packets are lost where a queue is full", f.Choice.Netdev)
	case !slices.Contains(on, ours):
		e.warn(check, fmt.Sprintf("use --rdma-traffic-class %d, or the traffic class that this network maps to priority %d", on[0]<<5, on[0]),
			"PFC is on for %s priority %s; but packets with --rdma-traffic-class %d have priority %d where it is derived from the DSCP", f.Choice.Netdev, strings.Join(words, ", "), f.TrafficClass, ours)
	default:
		e.ok(check, "PFC is on for %s priority %s, and packets have priority %d", f.Choice.Netdev, strings.Join(words, ", "), ours)
	}
}
