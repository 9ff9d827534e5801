package cluster_test

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestX7PartialDeviceNames(t *testing.T) {
	for s, want := range map[string]cluster.Pattern{
		"":                               {},
		"/":                              {},
		"/job:*":                         {},
		"/job:*/replica:4/gpu:*":         {HasReplica: true, Replica: 4, HasType: true, Type: "GPU"},
		"/job:*/replica:4/device:GPU:*":  {HasReplica: true, Replica: 4, HasType: true, Type: "GPU"},
		"/job:*/device:GPU/replica:4":    {HasReplica: true, Replica: 4, HasType: true, Type: "GPU"},
		"/gpu:*/job:*/replica:4":         {HasReplica: true, Replica: 4, HasType: true, Type: "GPU"},
		"/job:*/replica:4/gpu:5":         {HasReplica: true, Replica: 4, HasType: true, Type: "GPU", HasIndex: true, Index: 5},
		"/job:*/replica:4/device:my:13":  {HasReplica: true, Replica: 4, HasType: true, Type: "my", HasIndex: true, Index: 13},
		"/device:*:2":                    {HasIndex: true, Index: 2},
		"/job:ps":                        {HasJob: true, Job: "ps"},
		"/job:ps/task:0":                 {HasJob: true, Job: "ps", HasTask: true},
		"/job:ps/replica:*/task:*/cpu:*": {HasJob: true, Job: "ps", HasType: true, Type: "CPU"},
		"CPU:10":                         {HasType: true, Type: "CPU", HasIndex: true, Index: 10},
		"myDevice:3":                     {HasType: true, Type: "myDevice", HasIndex: true, Index: 3},
	} {
		got, err := cluster.ParsePattern(s)
		if err != nil || got != want {
			t.Errorf("ParsePattern(%q) = %+v, %v; want %+v", s, got, err, want)
			continue
		}
		if again, err := cluster.ParsePattern(got.String()); err != nil || again != got {
			t.Errorf("ParsePattern(%q) = %+v, %v; want %+v", got, again, err, got)
		}
	}
	for _, s := range []string{"foobar", "cpu:abc", "abc:", "abc", "CPU:*", "gpu:3/extra", "/bar:3", "//", "/job:a/", "/job:*a"} {
		_, err := cluster.ParsePattern(s)
		wantError(t, err, status.InvalidArgument, "device pattern", "at byte")
	}
}

// Every combination of parts, with every spelling of the device, prints as it was parsed.
func TestX7PartsRoundTrip(t *testing.T) {
	parts := []string{"/job:foo", "/replica:3", "/task:2"}
	for device, want := range map[string]string{
		"":                     "",
		"/CPU:3":               "/device:CPU:3",
		"/GPU:3":               "/device:GPU:3",
		"/cpu:3":               "/device:CPU:3",
		"/gpu:3":               "/device:GPU:3",
		"/device:CPU:3":        "/device:CPU:3",
		"/device:gpu:3":        "/device:gpu:3",
		"/device:someDevice:3": "/device:someDevice:3",
		"/device:CPU":          "/device:CPU:*",
		"/device:*":            "",
	} {
		for mask := range 1 << len(parts) {
			var name strings.Builder
			for i, part := range parts {
				if mask&(1<<i) != 0 {
					name.WriteString(part)
				}
			}
			p, err := cluster.ParsePattern(name.String() + device)
			if err != nil || p.String() != name.String()+want {
				t.Errorf("ParsePattern(%q) = %v, %v; want %s", name.String()+device, p, err, name.String()+want)
			}
		}
	}
}

func TestX7PatternMatches(t *testing.T) {
	const device = "/job:work/replica:1/task:2/gpu:3"
	d, err := cluster.ParseDevice(device)
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]bool{
		"": true, "/job:*": true, "/job:*/replica:*/task:*": true, "/gpu:*": true, "/gpu:3": true, "GPU:3": true,
		"/job:work/replica:1/task:2": true, "/device:*:3": true, device: true,
		"/job:worker": false, "/job:wor": false, "/job:Work": false, "/replica:0": false, "/task:20": false,
		"/cpu:*": false, "/gpu:2": false, "/device:gpu:3": false, "/device:*:2": false,
	} {
		p, err := cluster.ParsePattern(s)
		if err != nil || p.Matches(d) != want {
			t.Errorf("pattern %q (%v): Matches(%v) = %v, want %v", s, err, d, p.Matches(d), want)
		}
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"", "/", "/job:*/replica:4/gpu:*", "/device:*:2", "/device:GPU", "CPU:10", "/job:ps/task:0", "foobar", "abc:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := cluster.ParsePattern(s)
		if err != nil {
			wantError(t, err, status.InvalidArgument)
			return
		}
		if again, err := cluster.ParsePattern(p.String()); err != nil || again != p {
			t.Fatalf("ParsePattern(%q) = %+v, which parses to %+v, %v", s, p, again, err)
		}
	})
}
