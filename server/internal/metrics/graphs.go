package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
)

// Graphs adds the metrics of the sessions and graphs of TensorFlow masters.
func (m *Set) Graphs(w *worker.Worker) {
	m.Gauge("tryst_sessions", "Sessions of TensorFlow masters.", func() float64 { return float64(w.Stats().Sessions) })
	m.Gauge("tryst_graphs", "Graphs that are registered in these sessions.", func() float64 { return float64(w.Stats().Graphs) })
	m.Gauge("tryst_running_steps", "Steps of these graphs that run.", func() float64 { return float64(w.Stats().RunningSteps) })
	m.Counter("tryst_steps_run_total", "Steps of graphs that have run.", func() float64 { return float64(w.Stats().Steps) })
	m.Counter("tryst_step_seconds_total", "Time that these steps took, in seconds, with their waits for other tasks.", func() float64 { return w.Stats().StepTime.Seconds() })
	m.Add(&opMetrics{
		worker:  w,
		kernels: prometheus.NewDesc("tryst_sampled_kernels_total", "Kernels that have run in the steps that are sampled: one in 64.", []string{"op"}, nil),
		seconds: prometheus.NewDesc("tryst_sampled_kernel_seconds_total", "Time that these kernels took, in seconds. Those that receive include the wait for the value.", []string{"op"}, nil),
	})
}

// opMetrics has the times of kernels by op. The ops are those of the kernel set; all calls of functions
// by their names are one.
type opMetrics struct {
	worker           *worker.Worker
	kernels, seconds *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m *opMetrics) Describe(c chan<- *prometheus.Desc) {
	c <- m.kernels
	c <- m.seconds
}

// Collect implements prometheus.Collector.
func (m *opMetrics) Collect(c chan<- prometheus.Metric) {
	m.worker.OpTimes(func(op string, t worker.OpTime) {
		c <- prometheus.MustNewConstMetric(m.kernels, prometheus.CounterValue, float64(t.Runs), op)
		c <- prometheus.MustNewConstMetric(m.seconds, prometheus.CounterValue, t.Time.Seconds(), op)
	})
}
