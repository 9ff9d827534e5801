package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/worker"
)

// addGraphs adds the metrics of the sessions and graphs of TensorFlow masters.
func (m *metrics) addGraphs(stats func() worker.Stats) {
	m.gauge("tryst_sessions", "Sessions of TensorFlow masters.", func() float64 { return float64(stats().Sessions) })
	m.gauge("tryst_graphs", "Graphs that are registered in these sessions.", func() float64 { return float64(stats().Graphs) })
	m.gauge("tryst_running_steps", "Steps of these graphs that run.", func() float64 { return float64(stats().RunningSteps) })
	m.counter("tryst_steps_run_total", "Steps of graphs that have run.", func() float64 { return float64(stats().Steps) })
	m.counter("tryst_step_seconds_total", "Time that these steps took, in seconds, with their waits for other tasks.", func() float64 { return stats().StepTime.Seconds() })
}

// counter adds a counter whose value is read when metrics are collected.
func (m *metrics) counter(name, help string, read func() float64) {
	m.all = append(m.all, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}
