package cluster_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Full and legacy forms, from TensorFlow's device_name_utils_test.
func TestX7FullAndLegacyDeviceNames(t *testing.T) {
	foo := cluster.Task{Job: "foo", Replica: 1, Index: 2}
	for s, want := range map[string]cluster.Device{
		"/job:foo/replica:1/task:2/gpu:3":        {Task: foo, Type: "GPU", Index: 3},
		"/job:foo/replica:1/task:2/GPU:3":        {Task: foo, Type: "GPU", Index: 3},
		"/job:foo/replica:1/task:2/cpu:0":        {Task: foo, Type: "CPU"},
		"/job:foo/replica:1/task:2/CPU:0":        {Task: foo, Type: "CPU"},
		"/job:foo/replica:1/task:2/device:GPU:3": {Task: foo, Type: "GPU", Index: 3},
		// After "device:" the case of the type is kept.
		"/job:foo/replica:1/task:2/device:gpu:3":  {Task: foo, Type: "gpu", Index: 3},
		"/job:foo/replica:1/task:2/device:abc:73": {Task: foo, Type: "abc", Index: 73},
		// Any order.
		"/job:foo/cpu:1/task:2/replica:1": {Task: foo, Type: "CPU", Index: 1},
		"/job:foo_bar/replica:1/task:2/device:XLA_CPU_JIT:0": {
			Task: cluster.Task{Job: "foo_bar", Replica: 1, Index: 2}, Type: "XLA_CPU_JIT",
		},
		"/job:mnist/replica:1/task:2/CPU:0": {Task: cluster.Task{Job: "mnist", Replica: 1, Index: 2}, Type: "CPU"},
	} {
		got, err := cluster.ParseDevice(s)
		if err != nil || got != want {
			t.Errorf("ParseDevice(%q) = %v, %v; want %v", s, got, err, want)
			continue
		}
		if again, err := cluster.ParseDevice(got.String()); err != nil || again != got {
			t.Errorf("ParseDevice(%q) = %v, %v; want %v", got, again, err, got)
		}
	}
	d := cluster.Device{Task: cluster.Task{Job: "hello", Replica: 1, Index: 2}, Type: "CPU", Index: 3}
	if want := "/job:hello/replica:1/task:2/device:CPU:3"; d.String() != want {
		t.Errorf("got %v, want %v", d, want)
	}
}

func TestX7IncompleteDeviceNames(t *testing.T) {
	for s, why := range map[string]string{
		"":                                       "no job",
		"/":                                      "no job",
		"foobar":                                 "at byte 0: want /job:",
		"CPU:0":                                  "at byte 0: want /job:",
		"/job:foo/task:2/cpu:0":                  "no replica",
		"/job:foo/replica:1/cpu:0":               "no task",
		"/job:foo/replica:1/task:2":              "no device type",
		"/job:foo/replica:1/task:2/device:CPU":   "no device number",
		"/job:foo/replica:1/task:2/device:CPU:*": "no device number",
		"/job:foo/replica:1/task:2/device:*:0":   "no device type",
		"/job:*/replica:1/task:2/cpu:0":          "no job",
		"/job:123/replica:1/task:2/gpu:3":        "at byte 5: want a job name",
		"/job:/replica:1/task:2/gpu:3":           "at byte 5: want a job name",
		"/job:foo/replica:1/task:2/gpu:":         "at byte 30: want a number",
		"/job:foo/replica:1/task:2/device:gpu:":  "at byte 37: want a number",
		"/job:foo/replica:1/task:2/device::3":    "at byte 33: want a device type",
		"/job:foo/replica:-1/task:2/gpu:3":       "at byte 17: want a number",
		"/job:foo/replica:1/task:-2/gpu:3":       "at byte 24: want a number",
		"/job:foo/replica:1/task:2/bar:3":        "at byte 25: want /job:",
		"/job:foo/replica:1/task:2/Cpu:3":        "at byte 25: want /job:",
		"/job:foo/replica:1/task:2/gpu:3/extra":  "at byte 31: want /job:",
		"/job:foo/replica:1/task:2/gpu:3;":       "at byte 31: want /job:",
		"/job:foo/replica:1/task:2/gpu:3/cpu:0":  "at byte 31: this part was given before",
		"/job:foo/replica:1/task:2/gpu:*/gpu:0":  "at byte 31: this part was given before",
		"/job:foo/replica:1/task:2147483648/c":   "at byte 24: the number is above",
		"/job:foo/replica:1/task:2/gpu:\x003":    "at byte 30: want a number",
	} {
		_, err := cluster.ParseDevice(s)
		wantError(t, err, status.InvalidArgument, "device name", why)
	}
}

func TestH1SameAddressSpace(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/job:mnist/replica:10/task:10/cpu:0", "/job:mnist/replica:10/task:10/cpu:1", true},
		{"/job:mnist/replica:10/task:10/cpu:0", "/job:mnist/replica:10/task:10/device:GPU:2", true},
		{"/job:mnist/replica:10/task:10", "/job:mnist/replica:10/task:10/device:GPU:2", true},
		{"/job:mnist/replica:10/task:10/cpu:1", "/job:mnist/replica:10/task:10", true},

		{"/job:mnist/replica:10/task:9/cpu:0", "/job:mnist/replica:10/task:10/cpu:0", false},
		{"/job:mnist/replica:10/task:1/cpu:0", "/job:mnist/replica:10/task:10/cpu:0", false},
		{"/job:mnist/replica:9/task:10/cpu:0", "/job:mnist/replica:10/task:10/cpu:0", false},
		{"/job:MNIST/replica:10/task:10/cpu:0", "/job:mnist/replica:10/task:10/cpu:0", false},

		{"random_invalid_target", "random_invalid_target", false},
		{"/job:/replica:10/task:10/cpu:0", "/job:/replica:10/task:10/cpu:1", false},
		{"/job:mnist/replica:xx/task:10/cpu:0", "/job:mnist/replica:xx/task:10/cpu:1", false},
		{"/job:mnist/replica:10/task:yy/cpu:0", "/job:mnist/replica:10/task:yy/cpu:1", false},

		// An incomplete name is in no address space.
		{"", "", false},
		{"/job:mnist/task:10", "/job:mnist/task:10", false},
		{"/job:*/replica:10/task:10", "/job:*/replica:10/task:10", false},
		{"/job:mnist/replica:10/cpu:0", "/job:mnist/replica:10/cpu:0", false},
	} {
		if got := cluster.SameAddressSpace(c.a, c.b); got != c.want {
			t.Errorf("SameAddressSpace(%q, %q) = %v, want %v", c.a, c.b, got, c.want)
		}
		if got := cluster.SameAddressSpace(c.b, c.a); got != c.want {
			t.Errorf("SameAddressSpace(%q, %q) = %v, want %v", c.b, c.a, got, c.want)
		}
	}
}

// Each send and receive parses the two device names of its key.
func TestParseDeviceAllocations(t *testing.T) {
	for _, s := range []string{"/job:worker/replica:0/task:17/device:CPU:0", "/job:worker/replica:0/task:17/cpu:0"} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := cluster.ParseDevice(s); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("ParseDevice(%q) allocates %v times, want 0", s, n)
		}
	}
	d, _ := cluster.ParseDevice("/job:worker/replica:0/task:17/device:CPU:0")
	if n := testing.AllocsPerRun(100, func() { _ = d.String() }); n > 1 {
		t.Errorf("String allocates %v times, want 1 at most", n)
	}
}

func FuzzParseDevice(f *testing.F) {
	for _, s := range []string{
		"/job:worker/replica:0/task:3/device:CPU:0", "/job:mnist/replica:1/task:2/CPU:0", "/job:w/replica:0/task:0/gpu:1",
		"/device:XLA_GPU:7/task:1/replica:0/job:a_1", "/job:w/replica:0/task:0/device:CPU:*", "/job:w/replica:0/task:0/device:CPU",
		"/job:w/replica:0/task:2147483648/cpu:0", "/job:*/replica:*/task:*/device:*:*", "/", "", "CPU:0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		device, err := cluster.ParseDevice(s)
		if err != nil {
			wantError(t, err, status.InvalidArgument)
			return
		}
		if again, err := cluster.ParseDevice(device.String()); err != nil || again != device {
			t.Fatalf("ParseDevice(%q) = %v, which parses to %v, %v", s, device, again, err)
		}
		pattern, err := cluster.ParsePattern(s)
		if err != nil || !pattern.Matches(device) || pattern.String() != device.String() {
			t.Fatalf("ParsePattern(%q) = %v, %v; want the device %v", s, pattern, err, device)
		}
	})
}

func BenchmarkParseDevice(b *testing.B) {
	for b.Loop() {
		_, _ = cluster.ParseDevice("/job:worker/replica:0/task:17/device:CPU:0")
	}
}
