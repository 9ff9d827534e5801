package rdma

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/loss"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/verbs"
)

// pathMetrics are what a device that counts by peer knows of the packets to and from each.
type pathMetrics struct {
	r                          *Part
	packets, losses, roundTrip *prometheus.Desc
}

func newPathMetrics(r *Part) *pathMetrics {
	const whole = " They begin anew with each channel, and only the device in user space has them."
	return &pathMetrics{
		r: r,
		packets: prometheus.NewDesc("tryst_verbs_path_packets_total", "RDMA packets to the peer (sent, and resent of them), and from it (received)."+whole,
			[]string{"peer", "what"}, nil),
		losses: prometheus.NewDesc("tryst_verbs_path_losses_total", "Losses of RDMA packets to the peer (sent) and from it (received)."+whole,
			[]string{"peer", "what"}, nil),
		roundTrip: prometheus.NewDesc("tryst_verbs_path_round_trip_seconds", "Round trip of RDMA packets to the peer in seconds, with the time that they wait at both hosts.",
			[]string{"peer"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *pathMetrics) Describe(c chan<- *prometheus.Desc) {
	c <- m.packets
	c <- m.losses
	c <- m.roundTrip
}

// Collect implements prometheus.Collector.
func (m *pathMetrics) Collect(c chan<- prometheus.Metric) {
	s, ok := m.r.Finder.Current()
	if !ok {
		return
	}
	reader, ok := s.Device.(verbs.PathReader)
	if !ok {
		return
	}
	sums := make(map[string]verbs.PathStats)
	connections := m.r.Transport.Connections()
	for _, p := range reader.Paths() {
		peer := metrics.OtherPeers
		for _, l := range connections {
			if l.Verbs && loss.SamePeer(p.Peer, l.Socket) && m.r.Callable(l.Task) {
				peer = l.Task.String()
			}
		}
		s := sums[peer]
		s.Sent, s.Resent, s.Lost = s.Sent+p.Sent, s.Resent+p.Resent, s.Lost+p.Lost
		s.Received, s.Missing, s.RoundTrip = s.Received+p.Received, s.Missing+p.Missing, max(s.RoundTrip, p.RoundTrip)
		sums[peer] = s
	}
	for peer, s := range sums {
		count := func(d *prometheus.Desc, what string, n uint64) {
			c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), peer, what)
		}
		count(m.packets, "sent", s.Sent)
		count(m.packets, "resent", s.Resent)
		count(m.packets, "received", s.Received)
		count(m.losses, "sent", s.Lost)
		count(m.losses, "received", s.Missing)
		if s.RoundTrip > 0 && peer != metrics.OtherPeers {
			c <- prometheus.MustNewConstMetric(m.roundTrip, prometheus.GaugeValue, s.RoundTrip.Seconds(), peer)
		}
	}
}
