package server

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// watch adds the metrics of verbs.
func (n *node) watch(r *rdma) {
	stats := func(name, help string, read func(mem.Stats) int64) {
		n.metrics.gauge(name, help, func() float64 { return float64(read(r.transport.Memory())) })
	}
	stats("tryst_verbs_registered_sending_bytes", "Memory registered for sending, in bytes.", func(s mem.Stats) int64 { return s.Sending.Registered })
	stats("tryst_verbs_registered_receiving_bytes", "Memory registered for receiving, in bytes.", func(s mem.Stats) int64 { return s.Receiving.Registered })
	stats("tryst_verbs_sending_bytes", "Registered memory of tensors that go out, in bytes.", func(s mem.Stats) int64 { return s.Sending.InUse })
	stats("tryst_verbs_receiving_bytes", "Registered memory of tensors that come in or are in use, in bytes.", func(s mem.Stats) int64 { return s.Receiving.InUse })
	stats("tryst_verbs_quarantined_bytes", "Registered memory of receives that have ended, which their peers may still write to, in bytes.", func(s mem.Stats) int64 { return s.Quarantined })
	stats("tryst_verbs_message_bytes", "Memory registered for control messages, in bytes.", func(s mem.Stats) int64 { return s.Slots })
	stats("tryst_verbs_pool_exhausted", "How often there was no registered memory left.", func(s mem.Stats) int64 { return s.Sending.Exhausted + s.Receiving.Exhausted })
	stats("tryst_verbs_copied_bytes", "Content that was copied into registered memory to be sent, in bytes.", func(s mem.Stats) int64 { return s.CopiedBytes })
	n.metrics.all = append(n.metrics.all, newDeviceInfo(r.Selection), newPeerMetrics(r))
	if counters := r.counters(); counters != nil {
		n.metrics.all = append(n.metrics.all, newPortCounters(r.Choice, counters))
	}
}

// counters reads those of the port: the kernel's, or what the device itself counts; nil
// when there are none.
func (r *rdma) counters() func() (map[string]uint64, error) {
	if d, ok := r.Device.(verbs.Counted); ok {
		return func() (map[string]uint64, error) { return d.Counters(r.Choice.Port) }
	}
	if !r.Kernel {
		return nil
	}
	return func() (map[string]uint64, error) {
		host, err := discovery.Host()
		if err != nil {
			return nil, err
		}
		return host.Counters(r.Choice.Device, r.Choice.Port)
	}
}

// newDeviceInfo tells which device verbs uses; its value is always 1.
func newDeviceInfo(s Selection) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tryst_verbs_device_info", Help: "1, with the device that verbs uses, where it comes from, and why both were chosen.",
		ConstLabels: prometheus.Labels{
			"provider": s.Name(), "why": labelText(s.Why), "device": s.Choice.Device, "reason": labelText(s.Choice.Reason),
		},
	}, func() float64 { return 1 })
}

// labelText is s as a label, which must be UTF-8, and is for everybody.
func labelText(s string) string { return strings.ToValidUTF8(status.WithoutQPNs(s), "\uFFFD") }

// wires are the metrics of each peer. Peers are the tasks of the cluster, whose
// number is bounded; those who only ask here are one together.
type peerMetrics struct {
	r           *rdma
	wire, state *prometheus.Desc
	values      []peerValue
}

// otherPeers is the label of peers that the cluster does not have.
const otherPeers = "other"

// peerValue is a number of each peer.
type peerValue struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	read   func(verbstransport.Link) uint64
	labels []string // beside the peer
}

func newPeerMetrics(r *rdma) *peerMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"peer"}, labels...), nil)
	}
	const total, now = prometheus.CounterValue, prometheus.GaugeValue
	type link = verbstransport.Link
	fallbacks := desc("tryst_verbs_fallbacks_total", "Receives that took another wire or were asked again, by the reason.", "reason")
	return &peerMetrics{
		r:     r,
		state: desc("tryst_verbs_channel_state", "1 for the state of a peer's channel: down, pairing or up.", "state"),
		wire:  desc("tryst_wire", "1 for the wire that carries a peer's tensors (none where no other is allowed), with the reason when it is not verbs.", "transport", "reason"),
		values: []peerValue{
			{desc("tryst_verbs_sent_tensors_total", "Tensors sent over verbs."), total, func(l link) uint64 { return l.Stats.Sent }, nil},
			{desc("tryst_verbs_sent_bytes_total", "Content of the tensors sent over verbs, in bytes."), total, func(l link) uint64 { return l.Stats.SentBytes }, nil},
			{desc("tryst_verbs_breaks_total", "Channels that were left."), total, func(l link) uint64 { return l.Stats.Breaks }, nil},
			{fallbacks, total, func(l link) uint64 { return l.Stats.Without }, []string{"no channel"}},
			{fallbacks, total, func(l link) uint64 { return l.Stats.Lost }, []string{"channel broke"}},
			{fallbacks, total, func(l link) uint64 { return l.Stats.NoMemory }, []string{"no registered memory"}},
			{fallbacks, total, func(l link) uint64 { return l.Stats.PeerNoMemory }, []string{"no registered memory at the peer"}},
			{fallbacks, total, func(l link) uint64 { return l.Stats.NoFit }, []string{"does not fit a channel"}},
			{desc("tryst_verbs_sent_messages_total", "Messages sent over verbs: requests, answers, and the last writes of contents."), total, func(l link) uint64 { return l.Stats.MessagesSent }, nil},
			{desc("tryst_verbs_received_messages_total", "Messages received over verbs: requests, answers, and the last writes of contents."), total, func(l link) uint64 { return l.Stats.MessagesReceived }, nil},
			{desc("tryst_verbs_channel_generation", "Generation of the channel that is up, 0 without one; each break makes a higher one."), now, func(l link) uint64 { return l.Generation }, nil},
			{desc("tryst_verbs_queue_pairs", "Queue pairs of the channel that is up, 0 without one; the fewer of what the two sides are set to."), now, func(l link) uint64 { return uint64(l.QueuePairs) }, nil}, //nolint:gosec // at most wire.MaxRails
			{desc("tryst_verbs_bootstraps_total", "Calls that offered the peer a channel; more than one for each channel are retries."), total, func(l link) uint64 { return l.Stats.Bootstraps }, nil},
			{desc("tryst_verbs_polls_total", "Polls of the completion queues; by tryst_verbs_completions_total, the polls per completion."), total, func(l link) uint64 { return l.Poll.Polls }, nil},
			{desc("tryst_verbs_completions_total", "Completions that the polls brought."), total, func(l link) uint64 { return l.Poll.Completions }, nil},
			{desc("tryst_verbs_wakeups_total", "How often the goroutine of a completion queue was woken."), total, func(l link) uint64 { return l.Poll.Wakeups }, nil},
		},
	}
}

// Describe implements prometheus.Collector.
func (w *peerMetrics) Describe(c chan<- *prometheus.Desc) {
	c <- w.wire
	c <- w.state
	for _, v := range w.values {
		c <- v.desc
	}
}

// Collect implements prometheus.Collector.
func (w *peerMetrics) Collect(c chan<- prometheus.Metric) {
	others := make([]uint64, len(w.values))
	for _, l := range w.r.transport.Links() {
		if !w.r.callable(l.Task) {
			for i, v := range w.values {
				others[i] += v.read(l)
			}
			continue
		}
		peer := l.Task.String()
		wire, reason := currentRoute(l, w.r.required)
		c <- prometheus.MustNewConstMetric(w.wire, prometheus.GaugeValue, 1, peer, wire, reason)
		c <- prometheus.MustNewConstMetric(w.state, prometheus.GaugeValue, 1, peer, l.State.String())
		for _, v := range w.values {
			c <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(v.read(l)), append([]string{peer}, v.labels...)...)
		}
	}
	for i, v := range w.values {
		c <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(others[i]), append([]string{otherPeers}, v.labels...)...)
	}
}

// currentRoute is what carries a peer's tensors, and why when it is not verbs: "none"
// where no other wire is allowed.
func currentRoute(l verbstransport.Link, only bool) (wire, reason string) {
	if l.Verbs {
		return verbstransport.Name, ""
	}
	wire, reason = grpctransport.Name, "no answer yet"
	if only {
		wire = noRoute
	}
	if l.Reason != nil {
		reason = labelText(l.Reason.Error())
	}
	return wire, reason
}

// noRoute is the transport of a peer to whom nothing goes at present.
const noRoute = "none"

// portCounters are the counters of the port in use, as the kernel tells them.
type portCounters struct {
	read    func() (map[string]uint64, error)
	counter *prometheus.Desc
}

func newPortCounters(c discovery.Choice, read func() (map[string]uint64, error)) *portCounters {
	return &portCounters{read, prometheus.NewDesc("tryst_rdma_port_counter", "Counters of the RDMA port in use, by the kernel's names and in its units, or those of the device in software.",
		[]string{"counter"}, prometheus.Labels{"device": c.Device, "port": strconv.Itoa(int(c.Port))})}
}

// Describe implements prometheus.Collector.
func (p *portCounters) Describe(c chan<- *prometheus.Desc) { c <- p.counter }

// Collect implements prometheus.Collector. What cannot be read is not there.
func (p *portCounters) Collect(c chan<- prometheus.Metric) {
	values, _ := p.read()
	for name, v := range values {
		c <- prometheus.MustNewConstMetric(p.counter, prometheus.UntypedValue, float64(v), name)
	}
}
