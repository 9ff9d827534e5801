package cluster_test

import (
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func mustTask(t *testing.T, s string) cluster.Task {
	t.Helper()
	task, err := cluster.ParseTask(s)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func TestH2HostPorts(t *testing.T) {
	spec, err := cluster.SpecFromLists(map[string][]string{"mnist": {"a:1", "b:2", "c:3", "d:4", "e:5", "f:6"}})
	if err != nil {
		t.Fatal(err)
	}
	for task, want := range map[string]string{
		"/job:mnist/replica:0/task:0": "a:1",
		"/job:mnist/replica:0/task:3": "d:4",
		"/job:mnist/replica:0/task:5": "f:6",
		"/job:other/replica:0/task:0": "",
		"/job:mnis/replica:0/task:0":  "",
		"/job:mnist/replica:0/task:6": "",
		"/job:mnist/replica:1/task:0": "",
	} {
		if got, ok := spec.Address(mustTask(t, task)); got != want || ok != (want != "") {
			t.Errorf("Address(%s) = %q, %v; want %q", task, got, ok, want)
		}
	}
	tasks := spec.Tasks()
	if len(tasks) != 6 || spec.Len() != 6 {
		t.Fatalf("Len() = %d and Tasks() = %v, want 6 tasks", spec.Len(), tasks)
	}
	for i, task := range tasks {
		if task != (cluster.Task{Job: "mnist", Index: i}) {
			t.Errorf("task %d is %v, want index %d of job mnist", i, task, i)
		}
	}
}

func TestH4SparseTaskIndexes(t *testing.T) {
	spec, err := cluster.NewSpec(map[string]map[int]string{"mnist": {4: "e:5", 0: "a:1", 10: "k:11", 3: "d:4"}, "ps": {11: "p:7"}, "none": {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []int{1, 2, 5, 7} {
		if got, ok := spec.Address(cluster.Task{Job: "mnist", Index: index}); ok {
			t.Errorf("task %d has address %q, want none", index, got)
		}
	}
	want := []cluster.Task{{Job: "mnist"}, {Job: "mnist", Index: 3}, {Job: "mnist", Index: 4}, {Job: "mnist", Index: 10}, {Job: "ps", Index: 11}}
	if got := spec.Tasks(); !slices.Equal(got, want) {
		t.Errorf("Tasks() = %v, want %v", got, want)
	}
	if got := spec.Jobs(); !slices.Equal(got, []string{"mnist", "ps"}) {
		t.Errorf("Jobs() = %v, want mnist and ps", got)
	}
	if want := "mnist=a:1,3@d:4,e:5,10@k:11;ps=11@p:7"; spec.String() != want {
		t.Errorf("got %q, want %q", spec, want)
	}
}

func TestNewSpecRefuses(t *testing.T) {
	for _, c := range []struct {
		jobs map[string]map[int]string
		why  []string
	}{
		{map[string]map[int]string{"": {0: "a:1"}}, []string{`cluster job ""`, "want a job name"}},
		{map[string]map[int]string{"a-b": {0: "a:1"}}, []string{`cluster job "a-b"`, "want a job name"}},
		{map[string]map[int]string{"1a": {}}, []string{`cluster job "1a"`, "want a job name"}},
		{map[string]map[int]string{"w": {-1: "a:1"}}, []string{`cluster job "w"`, "task number -1"}},
		{map[string]map[int]string{"w": {1 << 31: "a:1"}}, []string{`cluster job "w"`, "task number 2147483648"}},
		{map[string]map[int]string{"w": {0: "a:1", 3: "b"}}, []string{`cluster job "w"`, "task 3", `address "b"`, "missing port"}},
	} {
		_, err := cluster.NewSpec(c.jobs)
		wantError(t, err, status.InvalidArgument, c.why...)
	}
	_, err := cluster.SpecFromLists(map[string][]string{"w": {"a:1", ""}})
	wantError(t, err, status.InvalidArgument, `cluster job "w"`, "task 1", `address ""`)
}

func TestSpecIsImmutable(t *testing.T) {
	jobs := map[string]map[int]string{"w": {0: "a:1"}}
	spec, err := cluster.NewSpec(jobs)
	if err != nil {
		t.Fatal(err)
	}
	jobs["w"][0] = "b:2"
	spec.Tasks()[0].Job = "x"
	if got, ok := spec.Address(cluster.Task{Job: "w"}); !ok || got != "a:1" || spec.Tasks()[0].Job != "w" {
		t.Errorf("the spec changed with the caller's map or slice: %v", spec)
	}
}

func TestEmptySpec(t *testing.T) {
	made, err := cluster.NewSpec(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]*cluster.Spec{"nil": nil, "zero": new(cluster.Spec), "made": made} {
		if _, ok := spec.Address(cluster.Task{Job: "w"}); ok || spec.Len() != 0 || spec.Tasks() != nil || spec.Jobs() != nil || spec.String() != "" {
			t.Errorf("%s: got %v, want an empty spec", name, spec)
		}
		if !spec.Equal(nil) || !spec.Equal(made) || !made.Equal(spec) {
			t.Errorf("%s: Equal of two empty specs is false", name)
		}
	}
}

func TestSpecEqual(t *testing.T) {
	a, b, c := mustSpec(t, "w=h:1,h:2"), mustSpec(t, "w=1@h:2,0@h:1"), mustSpec(t, "w=h:1,h:3")
	if !a.Equal(b) || a.Equal(c) || a.Equal(nil) || a.Equal(mustSpec(t, "w=h:1,2@h:2")) {
		t.Error("Equal does not compare tasks and addresses, and nothing else")
	}
}

func TestResolveTarget(t *testing.T) {
	spec := mustSpec(t, "worker=h1:2222,5@h2:2222")
	for s, want := range map[string]struct {
		address string
		task    cluster.Task
		isTask  bool
	}{
		"h9:1":                          {"h9:1", cluster.Task{}, false},
		"/bns/example":                  {"/bns/example", cluster.Task{}, false},
		"host":                          {"host:2222", cluster.Task{}, false},
		"worker-0.example.com.":         {"worker-0.example.com.:2222", cluster.Task{}, false},
		"10.0.0.1":                      {"10.0.0.1:2222", cluster.Task{}, false},
		"::1":                           {"[::1]:2222", cluster.Task{}, false},
		"[::1]":                         {"[::1]:2222", cluster.Task{}, false},
		"fe80::1%eth0":                  {"[fe80::1%eth0]:2222", cluster.Task{}, false},
		"[fe80::1%eth0]":                {"[fe80::1%eth0]:2222", cluster.Task{}, false},
		"/job:worker/task:5":            {"h2:2222", cluster.Task{Job: "worker", Index: 5}, true},
		"/job:worker/replica:0/task:0":  {"h1:2222", cluster.Task{Job: "worker"}, true},
		"/task:5/job:worker/replica:00": {"h2:2222", cluster.Task{Job: "worker", Index: 5}, true},
	} {
		address, task, isTask, err := cluster.ResolveTarget(spec, s)
		if err != nil || address != want.address || task != want.task || isTask != want.isTask {
			t.Errorf("ResolveTarget(%q) = %q, %v, %v, %v; want %+v", s, address, task, isTask, err, want)
		}
	}
	for s, why := range map[string]string{
		"":                         "want HOST:PORT",
		"2222":                     "the host is missing",
		"ho st":                    "a character that no host name has",
		"host:":                    "the port is no number",
		"[::1":                     "want HOST:PORT",
		"10.0.0.1/x":               "want HOST:PORT",
		"/job:worker":              "no task",
		"/job:worker/task:5/cpu:0": "names a device",
	} {
		address, _, _, err := cluster.ResolveTarget(spec, s)
		wantError(t, err, status.InvalidArgument, why)
		if address != "" {
			t.Errorf("ResolveTarget(%q) fails and returns address %q, want none", s, address)
		}
	}
	_, _, _, err := cluster.ResolveTarget(spec, "/job:worker/task:1")
	wantError(t, err, status.NotFound, `"/job:worker/task:1"`, `"worker=h1:2222,5@h2:2222"`)
	_, _, _, err = cluster.ResolveTarget(nil, "/job:worker/task:1")
	wantError(t, err, status.NotFound, `"/job:worker/task:1"`, "no cluster spec is configured")
}
