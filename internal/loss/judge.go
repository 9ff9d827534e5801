package loss

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"time"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

const (
	// interval is the time between two readings while there is traffic. A reading of a
	// NIC opens some 30 files of sysfs.
	interval = 5 * time.Second
	// span is how long readings without enough losses for a judgement are compared with
	// the same one. A slow path needs the time to lose leastLosses packets.
	span = time.Minute
	// leastLosses is the least number of losses that makes a rate: one burst is none.
	leastLosses = 10
	// Rate is the share of lost packets from which on RDMA is reported. A lost packet is
	// sent again with all that follow it. At this rate a flow of roce in packets of 1 KiB
	// keeps a third of its window, and a NIC of 100 Gbit/s a few percent less than all. A
	// busy host whose acknowledgements are late seems to lose up to half of this.
	Rate = 0.0005
	// TCPRate is that of TCP, which sends again only what is lost. Some loss is how TCP
	// finds the rate of the network, so it is reported only if the bound that follows from
	// it is below TCPEnough.
	TCPRate = 0.001
	// TCPEnough is the throughput from which on loss is not reported, in bytes a second: a
	// gigabit network.
	TCPEnough = 100e6
	// unknownLosses is the number of losses in interval from which on they are reported
	// without a rate, for a device that does not count packets.
	unknownLosses = 100
	// warnPause is how long loss of one kind is not reported again for the same peer.
	warnPause = time.Hour
	// nicRoundTrip is the round trip of the bound that is reported for a NIC, which does not
	// tell its own.
	nicRoundTrip = 100 * time.Microsecond
)

// tcpKind is the kind of loss that TCP has seen on the connections of gRPC and of queue pairs.
const tcpKind = "tcp"

// Reading is what is known of packets at one time.
type Reading struct {
	at       time.Time
	choice   discovery.Choice // of the device; its Device is empty while there is none
	Software bool             // the device has no hardware
	// throughput is that of the device's provider (providers.Row); nil for a device of the kernel.
	throughput func(mtu verbs.MTU, roundTrip time.Duration, loss float64) float64
	Counters   map[string]uint64
	Paths      []verbs.PathStats
	TCP        []Conn
}

// Conn are the counters of one connection.
type Conn struct {
	id           uint64 // distinguishes connections of one address
	peer         netip.AddrPort
	sent, resent uint64 // segments
	MSS          int
	roundTrip    time.Duration
}

// finding is loss that is to be reported.
type finding struct {
	kind      string
	what      string
	device    string
	peer      netip.AddrPort // zero if it is not known
	lost, of  uint64         // losses, and packets; of is 0 if it is not known
	over      time.Duration
	roundTrip time.Duration // 0 if it is not known
	expect    float64       // bytes a second; 0 if there is no estimate
	do        string
}

// subject is what a warning is about. The port of a peer is not part of it: a client gets another one
// with each connection.
type subject struct {
	kind string
	peer netip.Addr // zero if it is not known
}

// judge compares readings. It is pure.
type judge struct {
	since  Reading
	warned map[subject]time.Time
	rates  map[string]float64 // of the last comparison, by kind
}

// begin starts with a reading after a time without traffic.
func (j *judge) begin(r Reading) { j.since = r }

// observe compares a reading with the first one. It returns what is to be reported now.
func (j *judge) observe(r Reading) (report []finding) {
	was := j.since
	if was.choice.Device != r.choice.Device { // other counters
		j.since = r
		return nil
	}
	all, enough := findings(was, r)
	if !enough && r.at.Sub(was.at) < span {
		return nil
	}
	j.since = r
	j.rates = make(map[string]float64)
	maps.DeleteFunc(j.warned, func(_ subject, last time.Time) bool { return r.at.Sub(last) >= warnPause })
	for _, f := range all {
		j.rates[f.kind] = f.rate()
		of := subject{f.kind, f.peer.Addr()}
		if _, ok := j.warned[of]; ok || !f.matters() {
			continue
		}
		if j.warned == nil {
			j.warned = make(map[subject]time.Time)
		}
		j.warned[of] = r.at
		report = append(report, f)
	}
	return report
}

// rate is the share of lost packets; 0 if the number of packets is not known.
func (f *finding) rate() float64 {
	if f.of == 0 {
		return 0
	}
	return min(1, float64(f.lost)/float64(f.of))
}

// matters reports whether an operator should know of it.
func (f *finding) matters() bool {
	switch {
	case f.lost < leastLosses:
		return false
	case f.of == 0:
		return float64(f.lost) >= unknownLosses*max(1, f.over.Seconds()/interval.Seconds())
	case f.kind == tcpKind:
		return f.rate() >= TCPRate && f.expect < TCPEnough
	}
	return f.rate() >= Rate
}

// findings returns the losses of each kind between two readings. enough is set if there are none,
// or if one kind has enough for a judgement.
func findings(was, now Reading) (all []finding, enough bool) {
	if now.choice.Device != "" && was.Counters != nil { // nil would mean all losses since the device started
		all = deviceFindings(was, now)
	}
	if f, ok := tcpFinding(was.TCP, now.TCP); ok {
		all = append(all, f)
	}
	enough = len(all) == 0
	for i := range all {
		all[i].over = now.at.Sub(was.at)
		enough = enough || all[i].lost >= leastLosses
	}
	return all, enough
}

// kinds are the kinds of RDMA that have a rate, with what is logged. A connection that broke
// is logged by the transport.
var kinds = []struct {
	kind discovery.LossKind
	text string
}{
	{discovery.LostSent, "packets to peers are lost"},
	{discovery.LostReceived, "packets of peers are lost"},
	{discovery.LostBuffer, "packets of peers are lost since the receive buffer of this host is full"},
	{discovery.LostDamaged, "packets of peers arrive damaged"},
	{discovery.NotReady, "packets wait for receives that are posted late"},
}

// deviceFindings returns the losses that the device has counted.
func deviceFindings(was, now Reading) (all []finding) {
	l := discovery.LossesBetween(was.Counters, now.Counters)
	for _, k := range kinds {
		f := finding{
			kind: k.kind.String(), what: k.text, device: fmt.Sprintf("%s port %d", now.choice.Device, now.choice.Port),
			lost: l.By[k.kind], of: l.Of(k.kind), do: discovery.LossDo(k.kind, now.Software, now.choice.Link == verbs.LinkInfiniBand),
		}
		if k.kind == discovery.LostSent && now.throughput != nil {
			f.lost = l.Names["rcvd_seq_err"] // a timeout alone may be an acknowledgement that a busy host sent late
		}
		if k.kind == discovery.LostSent || k.kind == discovery.LostReceived {
			f.worstPath(k.kind, was.Paths, now.Paths)
			f.estimate(now)
		}
		if f.lost > 0 {
			all = append(all, f)
		}
	}
	return all
}

// worstPath restricts a finding to the path that loses most, if the device counts by peer: the
// others would dilute its rate.
func (f *finding) worstPath(kind discovery.LossKind, was, now []verbs.PathStats) {
	before := make(map[netip.AddrPort]verbs.PathStats)
	for _, p := range was {
		before[p.Peer] = p
	}
	var worst finding
	for _, p := range now {
		b := before[p.Peer]
		if b.Sent > p.Sent || b.Received > p.Received { // a new path to the same socket
			b = verbs.PathStats{}
		}
		at := finding{lost: p.Lost - b.Lost, of: p.Sent - b.Sent}
		if kind == discovery.LostReceived {
			at.lost, at.of = p.Missing-b.Missing, p.Received-b.Received
		}
		if at.peer, at.roundTrip = p.Peer, p.RoundTrip; at.lost > worst.lost {
			worst = at
		}
	}
	if worst.lost > 0 {
		f.peer, f.roundTrip, f.lost, f.of = worst.peer, worst.roundTrip, worst.lost, worst.of
	}
}

// estimate sets what to expect of a path with such loss.
func (f *finding) estimate(now Reading) {
	mtu, p := cmp.Or(now.choice.MTU, verbs.MTU1024), f.rate()
	switch {
	case p == 0 || now.choice.Link == verbs.LinkInfiniBand:
	case now.throughput != nil && f.roundTrip > 0:
		f.expect = now.throughput(mtu, f.roundTrip, p)
	case now.throughput == nil:
		f.roundTrip = nicRoundTrip
		f.expect = GoBackN(mtu, f.roundTrip, p, math.Inf(1))
	}
}

// GoBackN estimates the bytes a second over a path with that round trip and share of lost packets,
// 0 to 1, for a device of the kernel that sends line bytes a second: a NIC without a window that
// shrinks. Each lost packet costs the packets of a round trip, which are sent again behind it: of
// line*roundTrip/mtu packets each, so the time for a byte is 1/line + loss*roundTrip/mtu.
func GoBackN(mtu verbs.MTU, roundTrip time.Duration, loss, line float64) float64 {
	return 1 / (1/line + loss*roundTrip.Seconds()/float64(mtu))
}

// TCPThroughput is the upper bound of a TCP connection in bytes a second, with that share of lost
// segments, 0 to 1 (Mathis, Semke, Mahdavi and Ott, "The macroscopic behavior of the TCP congestion
// avoidance algorithm", 1997): MSS/RTT * sqrt(3/2)/sqrt(p). Without loss there is none: +Inf.
func TCPThroughput(mss int, roundTrip time.Duration, loss float64) float64 {
	return float64(mss) / max(roundTrip, time.Microsecond).Seconds() * math.Sqrt(1.5/loss)
}

// TCPAdvice says what to do about a bound that follows from loss of TCP.
const TCPAdvice = "find where packets are lost (ip -s link, tc -s qdisc, the counters of the switches); several connections share the loss: raise the setting connections-per-peer"

// tcpFinding returns the loss of the connection with most of it.
func tcpFinding(was, now []Conn) (worst finding, ok bool) {
	before := make(map[uint64]Conn)
	for _, c := range was {
		before[c.id] = c
	}
	for _, c := range now {
		b := before[c.id]
		if c.resent-b.resent <= worst.lost {
			continue
		}
		worst = finding{
			kind: tcpKind, what: "TCP sends again what is lost on a TCP connection", device: "tcp", peer: c.peer,
			lost: c.resent - b.resent, of: c.sent - b.sent, roundTrip: c.roundTrip,
			do: TCPAdvice,
		}
		worst.expect = TCPThroughput(c.MSS, c.roundTrip, worst.rate())
	}
	return worst, worst.lost > 0
}
