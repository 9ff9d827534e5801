package sources

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestFileOfACluster: as a text, and as jobs with lists or numbers.
func TestFileOfACluster(t *testing.T) {
	for text, want := range map[string]string{
		"worker=h1:2222,h2:2222\n":                    "worker=h1:2222,h2:2222",
		"# of today\nworker=h1:1,2@h2:1;ps=[::1]:2\n": "ps=[::1]:2;worker=h1:1,2@h2:1",
		"worker:\n- h1:1\n- h2:1\n":                   "worker=h1:1,h2:1",
		"worker: {0: h1:1, 7: h2:1}\nps: [h3:1]\n":    "ps=h3:1;worker=h1:1,7@h2:1",
	} {
		path := filepath.Join(t.TempDir(), "cluster")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if spec, err := ReadCluster(path); err != nil || spec.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, spec, err, want)
		}
	}
}

// TestFileOfNoCluster: the error is one line for each fault, and names the file.
func TestFileOfNoCluster(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "it is empty",
		" \n\n":                      "it is empty",
		"worker=h1:2222,h2:2":        "half written",
		"worker:\n- h1:1\n- ":        "half written",
		"worker:\n- h1:1\n-\n":       "want one address",
		"# nothing\n":                "no tasks",
		"{}\n":                       "no tasks",
		"worker=h1\n":                "h1",
		"- h1:1\n":                   "want a cluster",
		"worker: [h1:1\n":            "cluster",
		"a: &a [*a]\n":               "cluster",
		strings.Repeat("#\n", 1<<18): "larger than",
	} {
		spec, err := clusterIn("the/cluster", func(string) ([]byte, error) { return []byte(text), nil })
		if status.CodeOf(err) != status.InvalidArgument && err == nil {
			t.Errorf("%.40q is the cluster %v", text, spec)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.Contains(line, "the/cluster") {
				t.Errorf("%.40q: %q does not name the file", text, line)
			}
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q in it", text, err, want)
		}
	}
	if _, err := ReadCluster(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// FuzzCluster: a file is refused with an error, or is a cluster that is written and read again as the same.
func FuzzCluster(f *testing.F) {
	for _, text := range []string{"worker=h1:1,h2:1\n", "worker:\n- h1:1\n", "worker: {7: h1:1}\n", "a: &a [*a]\n", "---\n---\n", "%\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(data []byte) func(string) ([]byte, error) {
			return func(string) ([]byte, error) { return data, nil }
		}
		spec, err := clusterIn("f", read(data))
		if err != nil {
			return
		}
		again, err := clusterIn("f", read([]byte(spec.String()+"\n")))
		if err != nil || !again.Equal(spec) {
			t.Errorf("%v is read as %v, %v", spec, again, err)
		}
	})
}
