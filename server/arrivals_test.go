package server

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport"
)

// A receive is counted where Prometheus' own histogram with these bounds would count it.
func TestArrivalsAreCountedAsByAHistogram(t *testing.T) {
	bounds := prometheus.ExponentialBuckets(firstBucket.Seconds(), bucketFactor, timeBuckets)
	for _, d := range []time.Duration{-time.Hour, 0, 1, time.Hour, 1<<63 - 1} {
		if got, want := bucketOf(d), bucketAmong(bounds, d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	for i, bound := 0, firstBucket; i < timeBuckets; i, bound = i+1, bound*bucketFactor {
		for _, d := range []time.Duration{bound - 1, bound, bound + 1, 2 * bound} {
			if got, want := bucketOf(d), bucketAmong(bounds, d); got != want {
				t.Errorf("%v is in bucket %d, want %d", d, got, want)
			}
		}
	}

	m := newArrivals()
	from := func(task int) cluster.Device {
		return cluster.Device{Task: cluster.Task{Job: "ps", Index: task}}
	}
	start := time.Unix(1, 0)
	for _, took := range []time.Duration{5 * time.Microsecond, 40 * time.Microsecond, 41 * time.Microsecond, time.Minute} {
		m.observe(transport.Transfer{Transport: "verbs", Source: from(0), Bytes: 8, Attempt: 1, Start: start, End: start.Add(took)})
	}
	m.observe(transport.Transfer{Transport: "grpc", Source: from(1), Bytes: 100, Attempt: 3, Start: start, End: start.Add(time.Second)})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName() + " " + metric.GetLabel()[1].GetValue()
			if h := metric.GetHistogram(); h == nil {
				got[name] = metric.GetCounter().GetValue()
				continue
			} else if h.GetSampleCount() == 1 { // of grpc
				continue
			} else if sum, want := h.GetSampleSum(), (60*time.Second + 86*time.Microsecond).Seconds(); sum != want {
				t.Errorf("they took %v s, want %v", sum, want)
			}
			var within []uint64
			for _, b := range metric.GetHistogram().GetBucket() {
				within = append(within, b.GetCumulativeCount())
			}
			if want := []uint64{1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}; !slices.Equal(within, want) {
				t.Errorf("within the buckets are %d, want %d", within, want)
			}
		}
	}
	if want := map[string]float64{
		"tryst_received_tensors_total verbs": 4, "tryst_received_tensors_total grpc": 1,
		"tryst_received_bytes_total verbs": 32, "tryst_received_bytes_total grpc": 100,
		"tryst_receive_retries_total verbs": 0, "tryst_receive_retries_total grpc": 2,
	}; !maps.Equal(got, want) {
		t.Errorf("the counters are %v, want %v", got, want)
	}
}

// bucketAmong is the first bound that d does not exceed.
func bucketAmong(bounds []float64, d time.Duration) int {
	i, _ := slices.BinarySearch(bounds, d.Seconds())
	return i
}
