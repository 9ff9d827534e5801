package cluster_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func mustSpec(t *testing.T, s string) *cluster.Spec {
	t.Helper()
	spec, err := cluster.ParseSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestParseSpec(t *testing.T) {
	for s, want := range map[string]map[string]map[int]string{
		"":                                  nil,
		" \n":                               nil,
		"worker=h1:2222":                    {"worker": {0: "h1:2222"}},
		"worker=h1:1,h2:2;ps=0@h3:3,7@h4:4": {"worker": {0: "h1:1", 1: "h2:2"}, "ps": {0: "h3:3", 7: "h4:4"}},
		"ps=3@a:1,b:2,9@c:3,d:4":            {"ps": {3: "a:1", 4: "b:2", 9: "c:3", 10: "d:4"}},
		"ps=5@a:1,0@b:2,c:3":                {"ps": {5: "a:1", 0: "b:2", 1: "c:3"}},
		"w=[::1]:1,2@[2001:db8::1]:2":       {"w": {0: "[::1]:1", 2: "[2001:db8::1]:2"}},
		"w=/bns/a/b,1@/bns/c":               {"w": {0: "/bns/a/b", 1: "/bns/c"}},
		" w = a:1 , 4 @ b:2 ;\n ps = c:3 ":  {"w": {0: "a:1", 4: "b:2"}, "ps": {0: "c:3"}},
		"w=2147483647@a:1":                  {"w": {2147483647: "a:1"}},
	} {
		got, err := cluster.ParseSpec(s)
		if err != nil {
			t.Errorf("ParseSpec(%q): %v", s, err)
			continue
		}
		built, err := cluster.NewSpec(want)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equal(built) {
			t.Errorf("ParseSpec(%q) = %v, want %v", s, got, built)
		}
		if again := mustSpec(t, got.String()); !again.Equal(got) {
			t.Errorf("%q parses to %q, want the same", got, again)
		}
	}
}

func TestParseSpecRefuses(t *testing.T) {
	for s, why := range map[string]string{
		"worker":                   "at byte 6: want =",
		"h1:2222":                  "at byte 0: want a job name",
		"=h1:2222":                 "at byte 0: want a job name",
		"w=a:1;":                   "at byte 6: want a job name",
		"w=a:1;;ps=b:2":            "at byte 6: want a job name",
		"w=a:1; w=b:2":             "at byte 7: this job was given before",
		"w=":                       "at byte 2: missing port",
		"w=a:1,":                   "at byte 6: missing port",
		"w=a:1, b":                 "at byte 7: missing port",
		"w=a:1,b:2;ps=c:99999":     "at byte 13: the port is no number",
		"w=x@a:1":                  "at byte 2: want a task number",
		"w=@a:1":                   "at byte 2: want a task number",
		"w=-1@a:1":                 "at byte 2: want a task number",
		"w=1@2@a:1":                "at byte 4: the host holds",
		"w=2147483648@a:1":         "at byte 2: want a task number",
		"w=2147483647@a:1,b:2":     "at byte 17: the number is above",
		"w=1@a:1, 1@b:2":           "at byte 9: this task's number was given before",
		"w=1@a:1,0@b:2,c:3":        "at byte 14: this task's number was given before",
		"w=a:1,5 @ b/c:1":          "at byte 10: the host holds",
		"w=a:1=b":                  "at byte 2: the port is no number",
		"wor ker=a:1":              "at byte 0: want a job name",
		"w\x00=a:1":                "at byte 0: want a job name",
		`{"worker":["a:1","b:2"]}`: "at byte 0: want a job name",
	} {
		_, err := cluster.ParseSpec(s)
		wantError(t, err, status.InvalidArgument, "cluster spec", why)
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{
		"", "worker=h1:2222,h2:2222;ps=0@h3:2222,7@h4:2222", "ps=3@a:1,b:2,9@c:3,d:4", "w=[::1]:1,2@[2001:db8::1]:2",
		" w = a:1 , 4 @ b:2 ;\n ps = c:3 ", "w=/bns/a", "w=2147483647@a:1,b:2", "w=a:1;w=b:2", "w=:0", "=;,@",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := cluster.ParseSpec(s)
		if err != nil {
			wantError(t, err, status.InvalidArgument)
			return
		}
		checkSpec(t, spec)
	})
}

// checkSpec checks what holds for every spec: it prints as a spec that parses to an equal one, and
// each of its tasks resolves to a valid address.
func checkSpec(t *testing.T, spec *cluster.Spec) {
	t.Helper()
	again, err := cluster.ParseSpec(spec.String())
	if err != nil || !again.Equal(spec) {
		t.Fatalf("%q parses to %q, %v", spec, again, err)
	}
	for _, task := range spec.Tasks() {
		address, task2, isTask, err := cluster.ResolveTarget(spec, task.String())
		if err != nil || task2 != task || !isTask {
			t.Fatalf("task %v resolves to %v, %v", task, task2, err)
		}
		if err := cluster.ValidateHostPort(address); err != nil {
			t.Fatal(err)
		}
	}
}
