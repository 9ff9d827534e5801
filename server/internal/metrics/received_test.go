package metrics

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport"
)

// TestReceivedTensorsAreCounted: by route, with each time in its bucket.
func TestReceivedTensorsAreCounted(t *testing.T) {
	m := newReceived()
	from := func(task int) cluster.Task {
		return cluster.Task{Job: "ps", Index: task}
	}
	start := time.Unix(1, 0)
	var sum float64
	for _, took := range []time.Duration{5 * time.Microsecond, 40 * time.Microsecond, 41 * time.Microsecond, time.Minute} {
		m.Observe(transport.Transfer{Transport: "verbs", Peer: from(0), Bytes: 8, Attempt: 1, Start: start, End: start.Add(took)})
		sum += took.Seconds()
	}
	m.Observe(transport.Transfer{Transport: "grpc", Peer: from(1), Bytes: 100, Attempt: 3, Start: start, End: start.Add(time.Second)})
	if got, want := m.ByTransport(), map[string]int{"verbs": 4, "grpc": 1}; !maps.Equal(got, want) {
		t.Errorf("by transport %v, want %v", got, want)
	}

	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m.collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName() + " " + metric.GetLabel()[1].GetValue() + " " + metric.GetLabel()[0].GetValue()
			h := metric.GetHistogram()
			if h == nil {
				got[name] = metric.GetCounter().GetValue()
				continue
			}
			var bounds []float64
			var within []uint64
			for _, b := range h.GetBucket() {
				bounds, within = append(bounds, b.GetUpperBound()), append(within, b.GetCumulativeCount())
			}
			wantWithin, wantSum := []uint64{1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, sum
			if h.GetSampleCount() == 1 { // of grpc
				wantWithin, wantSum = []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}, 1
			}
			if !slices.Equal(within, wantWithin) || h.GetSampleSum() != wantSum {
				t.Errorf("%s: %d within the buckets and %v s, want %d and %v", name, within, h.GetSampleSum(), wantWithin, wantSum)
			}
			if len(bounds) != 12 || bounds[0] != 10e-6 || bounds[1] != 40e-6 {
				t.Errorf("%s: bounds %v", name, bounds)
			}
		}
	}
	const ps0, ps1 = " verbs /job:ps/replica:0/task:0", " grpc /job:ps/replica:0/task:1"
	if want := map[string]float64{
		"tryst_received_tensors_total" + ps0: 4, "tryst_received_tensors_total" + ps1: 1,
		"tryst_received_bytes_total" + ps0: 32, "tryst_received_bytes_total" + ps1: 100,
		"tryst_receive_retries_total" + ps0: 0, "tryst_receive_retries_total" + ps1: 2,
	}; !maps.Equal(got, want) {
		t.Errorf("the counters are %v, want %v", got, want)
	}
}

// TestCountingAReceivedTensorAllocatesNothing, once its route is known.
func TestCountingAReceivedTensorAllocatesNothing(t *testing.T) {
	m := newReceived()
	x := transport.Transfer{Transport: "verbs", Peer: cluster.Task{Job: "ps"}, Bytes: 8, Attempt: 1, Start: time.Unix(1, 0), End: time.Unix(2, 0)}
	if n := testing.AllocsPerRun(100, func() { m.Observe(x) }); n != 0 {
		t.Errorf("%v allocations for each tensor", n)
	}
}

// TestTensorsAreCountedFromManyGoroutines, which all meet a new route at once.
func TestTensorsAreCountedFromManyGoroutines(t *testing.T) {
	m := newReceived()
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for i := range 100 {
				m.Observe(transport.Transfer{Transport: "verbs", Peer: cluster.Task{Job: "ps", Index: i}})
			}
		})
	}
	work.Wait()
	if got := m.ByTransport()["verbs"]; got != 800 {
		t.Errorf("%d tensors counted, want 800", got)
	}
}
