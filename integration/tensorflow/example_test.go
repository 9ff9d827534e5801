//go:build interop

package tensorflow_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/transporttest"
)

// TestExample runs the commands of the README of examples/tensorflow-ps, with the TensorFlow of the
// test in place of the one that they install.
func TestExample(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "examples/tensorflow-ps/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README has no commands")
	}
	lines := strings.Split(strings.TrimSpace(string(block[1])), "\n")
	if most := 10; len(lines) > most {
		t.Errorf("the README has %d commands, want at most %d", len(lines), most)
	}
	installs := regexp.MustCompile(`^python3 -m venv |^build/venv/bin/pip install `)
	var script []string
	for _, line := range lines {
		if !installs.MatchString(line) {
			script = append(script, line)
		}
	}
	text := strings.NewReplacer(
		"build/venv/bin/python", "'"+os.Getenv("TENSORFLOW_PYTHON")+"'",
		"build/tensorflow-ps", "'"+filepath.Join(t.TempDir(), "tensorflow-ps")+"'",
		"127.0.0.1:2222", transporttest.FreeAddresses(t, 1)[0], "127.0.0.1:2223", transporttest.FreeAddresses(t, 1)[0],
	).Replace(strings.Join(script, "\n"))
	command := exec.CommandContext(t.Context(), "bash", "-euc", text)
	command.Dir = root
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	for _, want := range []string{"the parameter server listens on 127.0.0.1:", "w0 is on /job:ps/task:0\n", "step 500: loss 0.0", "% of the points are in the ring"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the commands printed\n%s\nwant %q in it", out, want)
		}
	}
}
