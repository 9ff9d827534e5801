package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/config"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// VerbsServer is a Server whose tensors go by RDMA where a peer is reached so: it
// serves VerbsService, exchanges queue pairs with every task of the cluster that
// is up, and with the others when they come, in any order.
type VerbsServer struct{ *Server }

// StartVerbs is Start for a process that needs verbs: settings with another
// transport are InvalidArgument, and a host without a device is
// FailedPrecondition.
func StartVerbs(ctx context.Context, cfg config.Config, o Options) (*VerbsServer, error) {
	if cfg.Transport != verbstransport.Name {
		return nil, status.Errorf(status.InvalidArgument, "transport %q: a verbs server has the transport %s", cfg.Transport, verbstransport.Name)
	}
	s, err := Start(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	v, ok := s.Verbs()
	if !ok {
		return nil, errors.Join(status.New(status.FailedPrecondition, "there is no RDMA device that could be used; the log says why"), s.Close(ctx))
	}
	return v, nil
}

// Verbs returns the server as one with verbs. ok is false when all goes over
// gRPC, by the settings or for want of a device.
func (s *Server) Verbs() (v *VerbsServer, ok bool) {
	if s.rdma == nil {
		return nil, false
	}
	return &VerbsServer{s}, true
}

// Choice returns the device, port and address that are used, with the reason.
func (v *VerbsServer) Choice() discovery.Choice { return v.rdma.choice }

// Links tells for each peer which wire carries its tensors, and why.
func (v *VerbsServer) Links() []verbstransport.Link { return v.rdma.transport.Links() }

// Memory counts the registered memory.
func (v *VerbsServer) Memory() mem.Stats { return v.rdma.transport.Memory() }

// Allocator makes tensors that are sent without a copy.
func (v *VerbsServer) Allocator() tensor.Allocator { return v.rdma.transport.Allocator() }

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
	n.metrics.all = append(n.metrics.all, wires{r})
}

// wires is the metric of which wire carries which peer. Its peers are the tasks
// of the cluster, whose number is bounded: not those who only ask here.
type wires struct{ r *rdma }

var wireDesc = prometheus.NewDesc("tryst_wire", "1 for the wire that carries a peer's tensors, with the reason when it is not verbs.",
	[]string{"peer", "transport", "reason"}, nil)

// Describe implements prometheus.Collector.
func (wires) Describe(c chan<- *prometheus.Desc) { c <- wireDesc }

// Collect implements prometheus.Collector.
func (w wires) Collect(c chan<- prometheus.Metric) {
	for _, l := range w.r.transport.Links() {
		if !w.r.callable(l.Task) {
			continue
		}
		wire, reason := verbstransport.Name, ""
		if !l.Verbs {
			wire, reason = "grpc", fmt.Sprint(l.Reason)
			if l.Reason == nil {
				reason = "not asked yet"
			}
		}
		c <- prometheus.MustNewConstMetric(wireDesc, prometheus.GaugeValue, 1, l.Task.String(), wire, strings.ToValidUTF8(reason, "�"))
	}
}
