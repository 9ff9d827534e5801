package rdma

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// AddMetrics adds the metrics.
func (r *Part) AddMetrics(to *metrics.Metrics) {
	stats := func(name, help string, read func(verbstransport.MemoryStats) int64) {
		to.Gauge(name, help, func() float64 { return float64(read(r.Transport.Memory())) })
	}
	stats("tryst_verbs_registered_sending_bytes", "Memory registered for sending, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Sending.Registered })
	stats("tryst_verbs_registered_receiving_bytes", "Memory registered for receiving, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Receiving.Registered })
	stats("tryst_verbs_sending_bytes", "Registered memory of tensors that are being sent, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Sending.InUse })
	stats("tryst_verbs_receiving_bytes", "Registered memory of received tensors, until they are released, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Receiving.InUse })
	stats("tryst_verbs_quarantined_bytes", "Registered memory of failed receives that peers may still write to, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Quarantined })
	stats("tryst_verbs_message_bytes", "Memory registered for control messages, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.Slots })
	stats("tryst_verbs_pool_exhausted", "Failed allocations of registered memory.", func(s verbstransport.MemoryStats) int64 { return s.Sending.Exhausted + s.Receiving.Exhausted })
	stats("tryst_verbs_copied_bytes", "Content copied into registered memory for sending, in bytes.", func(s verbstransport.MemoryStats) int64 { return s.CopiedBytes })
	for _, p := range providers.All() {
		for _, m := range p.Metrics {
			add := to.Counter
			if m.Gauge {
				add = to.Gauge
			}
			add(m.Name, m.Help, func() float64 { return r.Fixed.Metric(m) })
		}
	}
	r.addKept(to.Kept)
	to.Gauge("tryst_verbs_device_up", "1 while verbs has a device of any provider with an address (tryst_verbs_kind_up has each), 0 while it has none and tensors go over gRPC.", func() float64 {
		if _, ok := r.Selection(); ok {
			return 1
		}
		return 0
	})
	to.Counter("tryst_verbs_devices_lost_total", "Devices that were removed while verbs used them.", func() float64 { return float64(r.Finder.Lost()) })
	to.Add(newProvidersUp(r.Transport.Devices), newDeviceInfo(r.Selections), newPeerMetrics(r), newPortCounters(r.Finder.Counters), newPathMetrics(r))
}

// providersUp is the metric of each provider.
type providersUp struct {
	devices func() []verbstransport.DeviceStatus
	desc    *prometheus.Desc
}

func newProvidersUp(devices func() []verbstransport.DeviceStatus) *providersUp {
	return &providersUp{devices, prometheus.NewDesc("tryst_verbs_kind_up",
		"1 for each provider that verbs can use (rdma is libibverbs or roce), 0 for one whose device is lost; rdma is also 0 when there never was a device.", []string{"over"}, nil)}
}

// Describe implements prometheus.Collector.
func (k *providersUp) Describe(c chan<- *prometheus.Desc) { c <- k.desc }

// Collect implements prometheus.Collector.
func (k *providersUp) Collect(c chan<- prometheus.Metric) {
	for _, d := range k.devices() {
		up := 0.0
		if d.Err == nil {
			up = 1
		}
		c <- prometheus.MustNewConstMetric(k.desc, prometheus.GaugeValue, up, d.Route)
	}
}

// deviceInfo is the metric whose labels describe the devices that verbs uses. It has no value
// while there is none.
type deviceInfo struct {
	inUse func() []devices.Selection
	desc  *prometheus.Desc
}

func newDeviceInfo(inUse func() []devices.Selection) *deviceInfo {
	return &deviceInfo{inUse, prometheus.NewDesc("tryst_verbs_device_info", "1 for each device that verbs uses, with its provider. tryst doctor has the reasons for both.",
		[]string{"device", "provider"}, nil)}
}

// Describe implements prometheus.Collector.
func (d *deviceInfo) Describe(c chan<- *prometheus.Desc) { c <- d.desc }

// Collect implements prometheus.Collector.
func (d *deviceInfo) Collect(c chan<- prometheus.Metric) {
	for _, s := range d.inUse() {
		c <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, 1, s.Choice.Device, s.Name())
	}
}

// peerMetrics are the metrics of each peer. The tasks of the cluster, whose number is bounded, have
// their names as labels. All other peers share the label metrics.OtherPeers.
type peerMetrics struct {
	r                  *Part
	route, state, over *prometheus.Desc
	values             []peerValue
}

// peerValue is one metric of each peer.
type peerValue struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	read   func(verbstransport.Connection) uint64
	labels []string // after the peer
}

func newPeerMetrics(r *Part) *peerMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"peer"}, labels...), nil)
	}
	sent := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"peer"}, prometheus.Labels{"transport": verbstransport.Name})
	}
	const total, now = prometheus.CounterValue, prometheus.GaugeValue
	type connection = verbstransport.Connection
	fallbacks := desc("tryst_verbs_fallbacks_total", "Receives that fell back to gRPC or were retried, by reason.", "reason")
	return &peerMetrics{
		r:     r,
		over:  prometheus.NewDesc("tryst_verbs_route", "1 for the provider by which verbs reaches a peer (rdma is libibverbs or roce), and 0 for each other one; /links has the reasons.", []string{"peer", "over", "device"}, nil),
		state: desc("tryst_verbs_channel_state", "1 for the state of a peer's channel: down, handshake or up.", "state"),
		route: desc("tryst_route", "1 for the transport that carries a peer's tensors, with the kind of reason if it is not verbs; none if verbs is down and fallback is none. /links has the reason itself.", "transport", "reason"),
		values: []peerValue{
			{sent(metrics.SentTensors, metrics.SentTensorsHelp), total, func(c connection) uint64 { return c.Stats.Sent }, nil},
			{sent(metrics.SentBytes, metrics.SentBytesHelp), total, func(c connection) uint64 { return c.Stats.SentBytes }, nil},
			{desc("tryst_verbs_breaks_total", "Channels that broke or were closed."), total, func(c connection) uint64 { return c.Stats.Breaks }, nil},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.Without }, []string{"no_channel"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.Lost }, []string{"channel_broke"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.NoMemory }, []string{"no_memory"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.PeerNoMemory }, []string{"peer_no_memory"}},
			{fallbacks, total, func(c connection) uint64 { return c.Stats.NoFit }, []string{"no_fit"}},
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
	c <- w.over
	for _, v := range w.values {
		c <- v.desc
	}
}

// Collect implements prometheus.Collector.
func (w *peerMetrics) Collect(c chan<- prometheus.Metric) {
	others := make([]uint64, len(w.values))
	for _, l := range w.r.Transport.Connections() {
		if !w.r.Callable(l.Task) {
			for i, v := range w.values {
				others[i] += v.read(l)
			}
			continue
		}
		peer := l.Task.String()
		name, _ := CurrentRoute(l, w.r.Required)
		c <- prometheus.MustNewConstMetric(w.route, prometheus.GaugeValue, 1, peer, name, w.r.reasonWord(l))
		c <- prometheus.MustNewConstMetric(w.state, prometheus.GaugeValue, 1, peer, l.State.String())
		for _, r := range l.Routes {
			used := 0.0
			if r.Used {
				used = 1
			}
			c <- prometheus.MustNewConstMetric(w.over, prometheus.GaugeValue, used, peer, r.Route, r.Device)
		}
		for _, v := range w.values {
			c <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(v.read(l)), append([]string{peer}, v.labels...)...)
		}
	}
	for i, v := range w.values {
		c <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(others[i]), append([]string{metrics.OtherPeers}, v.labels...)...)
	}
}

// CurrentRoute returns the transport that carries a peer's tensors, and the reason if it is not
// verbs. Without the fallback it is NoRoute instead of gRPC.
func CurrentRoute(l verbstransport.Connection, required bool) (name, reason string) {
	if l.Verbs {
		return verbstransport.Name, ""
	}
	name, reason = grpctransport.Name, "no answer yet"
	if required {
		name = NoRoute
	}
	if l.Reason != nil {
		reason = metrics.Label(l.Reason.Error())
	}
	return name, reason
}

// reasonWord returns the kind of the reason why verbs does not carry a peer's tensors; empty if it does. It is a word:
// the text of a reason may have numbers and what the peer said, and each text would be a series.
func (r *Part) reasonWord(l verbstransport.Connection) string {
	switch {
	case l.Verbs:
		return ""
	case l.Reason == nil:
		return "waiting" // for the first answer
	}
	word := verbstransport.ReasonWord(l.Task, l.Reason)
	if r.Optional && word == "away" {
		return "waiting" // for a receive: a peer that was away is not called before one needs it, and may be back
	}
	if r.Optional && (word == "unfit" || word == "refused") && !verbstransport.IsDenied(l.Reason) {
		return "optional" // as it should be: nobody has asked for verbs
	}
	return word
}

// NoRoute is the transport of a peer that cannot be reached at present.
const NoRoute = "none"

// portCounters are the counters of the port in use.
type portCounters struct {
	read    func() (discovery.Choice, map[string]uint64)
	counter *prometheus.Desc
}

func newPortCounters(read func() (discovery.Choice, map[string]uint64)) *portCounters {
	return &portCounters{read, prometheus.NewDesc("tryst_rdma_port_counter", "Counters of the RDMA port in use, with the names and units of the kernel, or of the device in user space.",
		[]string{"counter", "device", "port"}, nil)}
}

// Describe implements prometheus.Collector.
func (p *portCounters) Describe(c chan<- *prometheus.Desc) { c <- p.counter }

// Collect implements prometheus.Collector. Counters that cannot be read are left out.
func (p *portCounters) Collect(c chan<- prometheus.Metric) {
	on, values := p.read()
	for name, v := range values {
		c <- prometheus.MustNewConstMetric(p.counter, prometheus.UntypedValue, float64(v), name, on.Device, strconv.Itoa(int(on.Port)))
	}
}
