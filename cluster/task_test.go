package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestParseTask(t *testing.T) {
	for s, want := range map[string]cluster.Task{
		"/job:worker/replica:0/task:3":              {Job: "worker", Index: 3},
		"/job:worker/task:3":                        {Job: "worker", Index: 3},
		"/task:3/job:worker":                        {Job: "worker", Index: 3},
		"/job:x_1/replica:2/task:03":                {Job: "x_1", Replica: 2, Index: 3},
		"/job:W/task:2147483647":                    {Job: "W", Index: 2147483647},
		"/job:w/task:00000000000000000000000000001": {Job: "w", Index: 1},
	} {
		got, err := cluster.ParseTask(s)
		if err != nil || got != want {
			t.Errorf("ParseTask(%q) = %v, %v; want %v", s, got, err, want)
			continue
		}
		if again, err := cluster.ParseTask(got.String()); err != nil || again != got {
			t.Errorf("ParseTask(%q) = %v, %v; want %v", got, again, err, got)
		}
	}
}

func TestParseTaskRefuses(t *testing.T) {
	for s, why := range map[string]string{
		"":                                      "no job",
		"/":                                     "no job",
		"/job:worker":                           "no task",
		"/job:worker/replica:0":                 "no task",
		"/job:*/task:1":                         "a wildcard",
		"/job:w/task:*":                         "a wildcard",
		"/job:w/replica:*/task:1":               "a wildcard",
		"/job:w/task:1/device:*":                "a wildcard",
		"/job:w/task:1/cpu:0":                   "names a device",
		"/job:w/task:1/device:*:0":              "names a device",
		"worker/3":                              "at byte 0",
		"/job:w/task:1 ":                        "at byte 13",
		"/job:w/task:2147483648":                "at byte 12: the number is above",
		"/job:w/task:18446744073709551617":      "at byte 12: the number is above",
		"/job:w/task:1/task:1":                  "at byte 13: this part was given before",
		"/job:" + strings.Repeat("a", 1<<20):    `aaa"...: no task`,
		"/job:\n/task:1":                        "at byte 5",
		"/job:w/replica:+0/task:1":              "at byte 15: want a number",
		"/job:w/replica:0x1/task:1":             "at byte 16",
		"/job:w\u0661/task:1":                   "at byte 6",
		"/job:w/task:\u0661":                    "at byte 12",
		"/job:w-1/task:1":                       "at byte 6",
		"/job:_w/task:1":                        "at byte 5: want a job name",
		"\xff\xfe":                              "at byte 0",
		"/job:w/replica:4294967296/task:1":      "at byte 15: the number is above",
		"/job:w/task:1/job:*":                   "at byte 13: this part was given before",
		"/job:w/task:99999999999999999999999/x": "at byte 12: the number is above",
	} {
		_, err := cluster.ParseTask(s)
		wantError(t, err, status.InvalidArgument, "task name", why)
		if len(err.Error()) > 1000 {
			t.Errorf("the error has %d bytes, want at most 1000", len(err.Error()))
		}
	}
}

func TestTaskWithALongerIndexIsAnotherTask(t *testing.T) {
	one, _ := cluster.ParseTask("/job:w/task:1")
	ten, _ := cluster.ParseTask("/job:w/task:10")
	if !strings.HasPrefix(ten.String(), one.String()) {
		t.Fatalf("%v is no prefix of %v: choose other tasks for this test", one, ten)
	}
	if one == ten || cluster.SameAddressSpace(one.String(), ten.String()) {
		t.Error("task:1 equals task:10, or shares its address space")
	}
}

func TestTaskCompare(t *testing.T) {
	want := []cluster.Task{{Job: "ps", Index: 9}, {Job: "ps", Index: 10}, {Job: "ps", Replica: 1}, {Job: "worker"}}
	got := []cluster.Task{want[3], want[1], want[2], want[0]}
	slices.SortFunc(got, cluster.Task.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzParseTask(f *testing.F) {
	for _, s := range []string{
		"/job:worker/replica:0/task:3", "/job:x/task:10", "/task:2147483647/job:a_B9", "/job:w/task:2147483648",
		"/job:w/replica:*/task:1", "/job:w/task:1/cpu:0", "/", "", "/job:", "/job:w/task:1/task:1", "/job:w/task:-1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		task, err := cluster.ParseTask(s)
		if err != nil {
			wantError(t, err, status.InvalidArgument)
			return
		}
		if again, err := cluster.ParseTask(task.String()); err != nil || again != task {
			t.Fatalf("ParseTask(%q) = %v, which parses to %v, %v", s, task, again, err)
		}
		if !cluster.SameAddressSpace(task.String(), task.String()+"/cpu:0") {
			t.Fatalf("%v and its device cpu:0 are in different address spaces", task)
		}
	})
}
