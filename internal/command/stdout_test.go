package command

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// With --out - stdout has the file and nothing else.
func TestPullToStdout(t *testing.T) {
	model := generate(t)
	address := serve(t, "tiny="+model)
	t.Chdir(t.TempDir())
	for _, json := range []string{"--json=false", "--json"} {
		r := tryst(t, "pull", "--from", address, "--out", "-", json)
		want, err := os.ReadFile(model)
		if err != nil {
			t.Fatal(err)
		}
		if did(t, r) != string(want) {
			t.Errorf("stdout is not the file: %d bytes, want %d", len(r.out), len(want))
		}
		if !strings.Contains(r.err, "100%") || !strings.Contains(r.err, "tiny") || !strings.Contains(r.err, "xxh64:") {
			t.Errorf("no progress and result on stderr: %q", r.err)
		}
	}
	nothingLeft(t, ".")
}

func TestPullSeveralFilesToStdout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	did(t, tryst(t, "gen", "--model", "tiny", "--shards", "2", "--out", dir))
	address := serve(t, dir)
	failed(t, tryst(t, "pull", "--from", address, "--out", "-"), exitFailed, "in 2 files", "into a directory")
}

// A type that tensors lack has its name and shape of the file in the list.
func TestKeysOfPackedTypes(t *testing.T) {
	const header = `{"w":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}`
	path := filepath.Join(t.TempDir(), "p.safetensors")
	content := string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + "abc"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	address := serve(t, path)
	if text := did(t, tryst(t, "keys", "--from", address, "--tensors")); !regexp.MustCompile(`(?m)^w +F4 +\[2,3\] +3 `).MatchString(text) {
		t.Error(text)
	}
	if text := did(t, tryst(t, "keys", "--from", address, "--tensors", "--json")); !strings.Contains(text, `"dtype":"F4","shape":[2,3],"bytes":3`) {
		t.Error(text)
	}
}
