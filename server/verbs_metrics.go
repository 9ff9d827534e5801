package server

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// watch adds the metrics of r.
func (n *node) watch(r *rdma) {
	stats := func(name, help string, read func(verbstransport.MemoryStats) int64) {
		n.metrics.gauge(name, help, func() float64 { return float64(read(r.transport.Memory())) })
	}
	stats("tryst_verbs_registered_sending_bytes", "Memory registered for sending, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Sending.Registered })
	stats("tryst_verbs_registered_receiving_bytes", "Memory registered for receiving, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Receiving.Registered })
	stats("tryst_verbs_sending_bytes", "Registered memory of tensors that are being sent, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Sending.InUse })
	stats("tryst_verbs_receiving_bytes", "Registered memory of received tensors, until they are released, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Receiving.InUse })
	stats("tryst_verbs_quarantined_bytes", "Registered memory of failed receives that peers may still write to, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Quarantined })
	stats("tryst_verbs_message_bytes", "Memory registered for control messages, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Slots })
	stats("tryst_verbs_pool_exhausted", "Failed allocations of registered memory.", func(s verbstransport.MemoryStats) int64 { return s.Sending.Exhausted + s.Receiving.Exhausted })
	stats("tryst_verbs_copied_bytes", "Content copied into registered memory for sending, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.CopiedBytes })
	n.metrics.all = append(n.metrics.all, newDeviceInfo(r.Selection), newPeerMetrics(r))
	if counters := r.counters(); counters != nil {
		n.metrics.all = append(n.metrics.all, newPortCounters(r.Choice, counters))
	}
}

// counters returns the function that reads the counters of the port, from the kernel or from the
// device itself; nil if it has none.
func (r *rdma) counters() func() (map[string]uint64, error) {
	if d, ok := r.Device.(verbs.CounterReader); ok {
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

// newDeviceInfo makes the metric whose labels describe the device that verbs uses.
func newDeviceInfo(s Selection) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tryst_verbs_device_info", Help: "1, with the device that verbs uses, its provider, and the reasons for both.",
		ConstLabels: prometheus.Labels{
			"provider": s.Name(), "why": labelText(s.Why), "device": s.Choice.Device, "reason": labelText(s.Choice.Reason),
		},
	}, func() float64 { return 1 })
}

// labelText makes s a label. Labels must be UTF-8, and must not show queue pair numbers, because all
// users of the metrics see them.
func labelText(s string) string { return strings.ToValidUTF8(status.WithoutQPNs(s), "\uFFFD") }

// peerMetrics are the metrics of each peer. The tasks of the cluster, whose number is bounded, have
// their names as labels. All other peers share the label otherPeers.
type peerMetrics struct {
	r            *rdma
	route, state *prometheus.Desc
	values       []peerValue
}

// otherPeers is the label of peers that are not in the cluster.
const otherPeers = "other"

// peerValue is one metric of each peer.
type peerValue struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	read   func(verbstransport.Connection) uint64
	labels []string // after the peer
}

func newPeerMetrics(r *rdma) *peerMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"peer"}, labels...), nil)
	}
	const total, now = prometheus.CounterValue, prometheus.GaugeValue
	type connection = verbstransport.Connection
	fallbacks := desc("tryst_verbs_fallbacks_total", "Receives that fell back to gRPC or were retried, by reason.", "reason")
	return &peerMetrics{
		r:     r,
		state: desc("tryst_verbs_channel_state", "1 for the state of a peer's channel: down, handshake or up.", "state"),
		route: desc("tryst_route", "1 for the transport that carries a peer's tensors, with the reason if it is not verbs; none if verbs is down and fallback is none.", "transport", "reason"),
		values: []peerValue{
			{desc("tryst_verbs_sent_tensors_total", "Tensors sent over verbs."), total, func(c connection) uint64 { return c.Stats.Sent }, nil},
			{desc("tryst_verbs_sent_bytes_total", "Content of the tensors sent over verbs, in bytes."), total, func(c connection) uint64 { return c.Stats.SentBytes }, nil},
			{desc("tryst_verbs_breaks_total", "Channels that broke or were closed."), total, func(c connection) uint64 { return c.Stats.Breaks }, nil},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.Without }, []string{"no channel"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.Lost }, []string{"channel broke"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.NoMemory }, []string{"no registered memory"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.PeerNoMemory }, []string{"no registered memory at the peer"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.NoFit }, []string{"does not fit a channel"}},
			{desc("tryst_verbs_sent_messages_total", "Messages sent over verbs: requests, responses, and the last writes of contents."), total, func(c connection) uint64 { return c.Stats.MessagesSent }, nil},
			{desc("tryst_verbs_received_messages_total", "Messages received over verbs: requests, responses, and the last writes of contents."), total, func(c connection) uint64 { return c.Stats.MessagesReceived }, nil},
			{desc("tryst_verbs_channel_generation", "Generation of the channel that is up, 0 if none is; it increases with each new channel."), now, func(c connection) uint64 { return c.Generation }, nil},
			{desc("tryst_verbs_queue_pairs", "Queue pairs of the channel that is up, 0 if none is; the lower setting of the two sides."), now, func(c connection) uint64 { return uint64(c.QueuePairs) }, nil}, //nolint:gosec // at most wire.MaxRails
			{desc("tryst_verbs_bootstraps_total", "Bootstrap calls to the peer; more than one for each channel are retries."), total, func(c connection) uint64 { return c.Stats.Bootstraps }, nil},
			{desc("tryst_verbs_polls_total", "Polls of the completion queues; divided by tryst_verbs_completions_total, the polls per completion."), total, func(c connection) uint64 { return c.Poll.Polls }, nil},
			{desc("tryst_verbs_completions_total", "Completions that the polls returned."), total, func(c connection) uint64 { return c.Poll.Completions }, nil},
			{desc("tryst_verbs_wakeups_total", "Wake-ups of the goroutine of a completion queue."), total, func(c connection) uint64 { return c.Poll.Wakeups }, nil},
		},
	}
}

// Describe implements prometheus.Collector.
func (w *peerMetrics) Describe(c chan<- *prometheus.Desc) {
	c <- w.route
	c <- w.state
	for _, v := range w.values {
		c <- v.desc
	}
}

// Collect implements prometheus.Collector.
func (w *peerMetrics) Collect(c chan<- prometheus.Metric) {
	others := make([]uint64, len(w.values))
	for _, l := range w.r.transport.Connections() {
		if !w.r.callable(l.Task) {
			for i, v := range w.values {
				others[i] += v.read(l)
			}
			continue
		}
		peer := l.Task.String()
		name, reason := currentRoute(l, w.r.required)
		c <- prometheus.MustNewConstMetric(w.route, prometheus.GaugeValue, 1, peer, name, reason)
		c <- prometheus.MustNewConstMetric(w.state, prometheus.GaugeValue, 1, peer, l.State.String())
		for _, v := range w.values {
			c <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(v.read(l)), append([]string{peer}, v.labels...)...)
		}
	}
	for i, v := range w.values {
		c <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(others[i]), append([]string{otherPeers}, v.labels...)...)
	}
}

// currentRoute returns the transport that carries a peer's tensors, and the reason if it is not
// verbs. Without the fallback it is noRoute instead of gRPC.
func currentRoute(l verbstransport.Connection, required bool) (name, reason string) {
	if l.Verbs {
		return verbstransport.Name, ""
	}
	name, reason = grpctransport.Name, "no answer yet"
	if required {
		name = noRoute
	}
	if l.Reason != nil {
		reason = labelText(l.Reason.Error())
	}
	return name, reason
}

// noRoute is the transport of a peer that cannot be reached at present.
const noRoute = "none"

// portCounters are the counters of the port in use.
type portCounters struct {
	read    func() (map[string]uint64, error)
	counter *prometheus.Desc
}

func newPortCounters(c discovery.Choice, read func() (map[string]uint64, error)) *portCounters {
	return &portCounters{read, prometheus.NewDesc("tryst_rdma_port_counter", "Counters of the RDMA port in use, with the names and units of the kernel, or of the device in user space.",
		[]string{"counter"}, prometheus.Labels{"device": c.Device, "port": strconv.Itoa(int(c.Port))})}
}

// Describe implements prometheus.Collector.
func (p *portCounters) Describe(c chan<- *prometheus.Desc) { c <- p.counter }

// Collect implements prometheus.Collector. Counters that cannot be read are left out.
func (p *portCounters) Collect(c chan<- prometheus.Metric) {
	values, _ := p.read()
	for name, v := range values {
		c <- prometheus.MustNewConstMetric(p.counter, prometheus.UntypedValue, float64(v), name)
	}
}
