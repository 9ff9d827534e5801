package cluster_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestParseTFConfig(t *testing.T) {
	for _, c := range []struct {
		text, spec, task, environment string
	}{
		{"", "", "", ""},
		{" \n", "", "", ""},
		{"{}", "", "", ""},
		{
			`{"cluster": {"worker": ["localhost:12345", "localhost:23456"]}, "task": {"type": "worker", "index": 0}}`,
			"worker=localhost:12345,localhost:23456", "/job:worker/replica:0/task:0", "",
		},
		{
			`{"cluster": {"worker": {"0": "a:1", "5": "b:2"}, "ps": ["c:3"]}, "task": {"type": "worker", "index": 5}}`,
			"worker=a:1,5@b:2;ps=c:3", "/job:worker/replica:0/task:5", "",
		},
		{
			`{"cluster": {"chief": ["a:1"], "evaluator": ["b:2"]}, "task": {"type": "evaluator", "index": 0}}`,
			"chief=a:1;evaluator=b:2", "/job:evaluator/replica:0/task:0", "",
		},
		{ // An evaluator need not be in the cluster.
			`{"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}`,
			"chief=a:1", "/job:evaluator/replica:0/task:0", "",
		},
		{ // Unknown keys are ignored, whatever the type of their value.
			`{"cluster": {"worker": ["a:1"]}, "environment": "cloud", "rpc_layer": "grpc", "session_master": 7, "job": {"x": [1]},
			  "task": {"type": "worker", "index": 0, "trial": "1", "cloud": null}}`,
			"worker=a:1", "/job:worker/replica:0/task:0", "cloud",
		},
		{`{"task": {"type": "worker", "index": 3}}`, "", "/job:worker/replica:0/task:3", ""},
		{`{"task": {"type": "worker", "index": "3"}}`, "", "/job:worker/replica:0/task:3", ""},
		{`{"task": {}}`, "", "", ""},
		{`{"cluster": {}}`, "", "", ""},
		{`{"cluster": {"worker": [], "ps": ["a:1"]}}`, "ps=a:1", "", ""},
		{`{"environment": "x", "environment": "y"}`, "", "", "y"},
		{"\t{\n\"cluster\" : {\"worker\" : [ \"a:1\" ] } }\n", "worker=a:1", "", ""},
	} {
		got, err := cluster.ParseTFConfig(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if !got.Spec.Equal(mustSpec(t, c.spec)) || got.Environment != c.environment || got.HasTask != (c.task != "") {
			t.Errorf("%s: got %+v with spec %v, want spec %q, task %q and environment %q", c.text, got, got.Spec, c.spec, c.task, c.environment)
		}
		if got.HasTask && got.Task.String() != c.task || !got.HasTask && got.Task != (cluster.Task{}) {
			t.Errorf("%s: task %v, want %v", c.text, got.Task, c.task)
		}
	}
}

func TestParseTFConfigRefuses(t *testing.T) {
	for text, why := range map[string]string{
		`{`:          "TF_CONFIG: after 1 bytes: unexpected end",
		`worker=h:1`: "TF_CONFIG: after 1 bytes: invalid character 'w'",
		`{} x`:       "TF_CONFIG: after 4 bytes: invalid character 'x'",
		`[]`:         "TF_CONFIG: want an object, got a list",
		`null`:       "TF_CONFIG: want an object, got null",
		`7`:          "TF_CONFIG: want an object, got a number",

		`{"cluster": null}`:                                  "TF_CONFIG: cluster: want an object, got null",
		`{"cluster": ["a:1"]}`:                               "TF_CONFIG: cluster: want an object, got a list",
		`{"cluster": {"worker": "a:1"}}`:                     "TF_CONFIG: cluster.worker: want a list or an object of addresses, got a string",
		`{"cluster": {"worker": null}}`:                      "TF_CONFIG: cluster.worker: want a list or an object of addresses, got null",
		`{"cluster": {"worker": ["a:1", 7]}}`:                "TF_CONFIG: cluster.worker[1]: want a string, got a number",
		`{"cluster": {"worker": ["a:1", null]}}`:             "TF_CONFIG: cluster.worker[1]: want a string, got null",
		`{"cluster": {"worker": {"3": true}}}`:               "TF_CONFIG: cluster.worker[3]: want a string, got a boolean",
		`{"cluster": {"worker": ["a:1", "b"]}}`:              `TF_CONFIG: cluster.worker[1]: address "b": missing port`,
		`{"cluster": {"worker": {"x": "a:1"}}}`:              `TF_CONFIG: cluster.worker: key "x": want a task number`,
		`{"cluster": {"worker": {"-1": "a:1"}}}`:             `TF_CONFIG: cluster.worker: key "-1": want a task number`,
		`{"cluster": {"worker": {"2147483648": "a:1"}}}`:     `TF_CONFIG: cluster.worker: key "2147483648": want a task number`,
		`{"cluster": {"worker": {"5": "a:1", "05": "b:1"}}}`: "TF_CONFIG: cluster.worker[5]: task 5 was given before",
		`{"cluster": {"a b": ["a:1"]}}`:                      `TF_CONFIG: cluster: job "a b": want a job name`,

		`{"task": []}`:                                "TF_CONFIG: task: want an object, got a list",
		`{"task": {"type": "worker"}}`:                "TF_CONFIG: task.index: it is missing",
		`{"task": {"index": 0}}`:                      "TF_CONFIG: task.type: it is missing",
		`{"task": {"type": 1, "index": 0}}`:           "TF_CONFIG: task.type: want a string, got a number",
		`{"task": {"type": "a/b", "index": 0}}`:       `TF_CONFIG: task.type: "a/b": want a job name`,
		`{"task": {"type": "worker", "index": -1}}`:   "TF_CONFIG: task.index: want a number of 0 to 2147483647",
		`{"task": {"type": "worker", "index": 1.5}}`:  "TF_CONFIG: task.index: want a number",
		`{"task": {"type": "worker", "index": "x"}}`:  "TF_CONFIG: task.index: want a number",
		`{"task": {"type": "worker", "index": null}}`: "TF_CONFIG: task.index: want a number",
		`{"task": {"type": "worker", "index": [0]}}`:  "TF_CONFIG: task.index: want a number",
		`{"environment": 1}`:                          "TF_CONFIG: environment: want a string, got a number",

		`{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}`:       "TF_CONFIG: task: /job:worker/replica:0/task:1 is not in the cluster",
		`{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}`:        "TF_CONFIG: task: /job:chief/replica:0/task:0 is not in the cluster",
		`{"cluster": {"evaluator": ["a:1"]}, "task": {"type": "evaluator", "index": 1}}`: "TF_CONFIG: task: /job:evaluator/replica:0/task:1 is not in the cluster",
	} {
		_, err := cluster.ParseTFConfig(text)
		wantError(t, err, status.InvalidArgument, why)
	}
}

func FuzzParseTFConfig(f *testing.F) {
	for _, s := range []string{
		"", "{}", `{"cluster":{"worker":["h:1","[::1]:2"]},"task":{"type":"worker","index":1}}`,
		`{"cluster":{"worker":{"0":"h:1","5":"h:2"}},"task":{"type":"worker","index":"5"},"environment":"cloud","rpc_layer":"grpc"}`,
		`{"cluster":{"chief":["a:1"]},"task":{"type":"evaluator","index":0}}`, `{"cluster":null}`, `{"task":{"index":-1}}`,
		`[{}]`, `{"cluster":{"w":["\ud800:1"]}}`, `{"cluster":{"w":{"99999999999":"a:1"}}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		config, err := cluster.ParseTFConfig(s)
		if err != nil {
			wantError(t, err, status.InvalidArgument, "TF_CONFIG")
			return
		}
		checkSpec(t, config.Spec)
		if config.HasTask {
			if again, err := cluster.ParseTask(config.Task.String()); err != nil || again != config.Task {
				t.Fatalf("ParseTask(%v) = %v, %v; want the same", config.Task, again, err)
			}
		}
	})
}
