package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Requests adds the metrics of what requests take.
func (m *Set) Requests(r *grpctransport.RequestStats) {
	m.Gauge("tryst_request_bytes", "What the requests under way take, from their first byte to the end of their calls, in bytes.", func() float64 { return float64(r.Bytes()) })
	m.Counter("tryst_unread_connections_total", "Connections that were ended since their clients did not read their responses.", func() float64 { return float64(r.Unread()) })
	for reason := range r.Refused() {
		m.Add(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tryst_refused_requests_total", ConstLabels: prometheus.Labels{"reason": reason},
			Help: "Requests that were refused, by reason: bytes when others took all that they may, late when the rest did not come, size when the message would have taken too much.",
		}, func() float64 { return float64(r.Refused()[reason]) }))
	}
}
