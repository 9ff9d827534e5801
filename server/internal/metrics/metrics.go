// Package metrics has the metrics of a process: a Set that they are added to and registered from, and those that
// no other part has. A peer is a label only where the number of peers is bounded: the tasks that this process
// requests from, and the requesters that are in the cluster. All other requesters share the label OtherPeers.
package metrics

import (
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/status"
)

// Metrics are the metrics of a process.
type Metrics struct {
	Set
	Received *Received
	Calls    *Calls
	Kept     *Kept
}

// New makes the metrics of a process.
func New() *Metrics {
	m := &Metrics{Received: newReceived(), Calls: newCalls(), Kept: newKept()}
	m.Add(m.Received.collectors()...)
	m.Add(m.Calls.collectors()...)
	m.Add(m.Kept)
	return m
}

// Set is metrics that are registered together.
type Set struct {
	all        []prometheus.Collector
	registered bool // all are in the registry
}

// Add adds metrics, before Register.
func (s *Set) Add(all ...prometheus.Collector) { s.all = append(s.all, all...) }

// Gauge adds a gauge whose value is read when metrics are collected.
func (s *Set) Gauge(name, help string, read func() float64) {
	s.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Counter adds a counter whose value is read when metrics are collected.
func (s *Set) Counter(name, help string, read func() float64) {
	s.Add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(c chan<- *prometheus.Desc) {
	for _, one := range s.all {
		one.Describe(c)
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(c chan<- prometheus.Metric) {
	for _, one := range s.all {
		one.Collect(c)
	}
}

// Register adds all metrics to a registry, or none if one of them fails: AlreadyExists.
func (s *Set) Register(r prometheus.Registerer) error {
	for i, c := range s.all {
		if err := r.Register(c); err != nil {
			for _, added := range s.all[:i] {
				r.Unregister(added)
			}
			return status.Errorf(status.AlreadyExists, "metrics: another server or client of this program has the same Registerer; give each its own, or one that adds a label (prometheus.WrapRegistererWith): %w", err)
		}
	}
	s.registered = true
	return nil
}

// Unregister takes them out of the registry.
func (s *Set) Unregister(r prometheus.Registerer) {
	if !s.registered {
		return // another server of this program has registered these names
	}
	for _, c := range s.all {
		r.Unregister(c)
	}
}

// OtherPeers is the label of peers that are not in the cluster.
const OtherPeers = "other"

// Label makes s a label. Labels must be UTF-8, and must not show queue pair numbers, because all
// users of the metrics see them. The number of a generation is left out: each text is a series.
func Label(s string) string {
	return strings.ToValidUTF8(generations.ReplaceAllString(status.WithoutQPNs(s), "generation N"), "\uFFFD")
}

var generations = regexp.MustCompile(`generation [0-9]+`)
