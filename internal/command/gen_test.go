package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestGen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	text := did(t, tryst(t, "gen", "--model", "tiny", "--out", path))
	if !regexp.MustCompile(`(?s)^MODEL +SEED +TENSORS +BYTES +TIME\ntiny +0 +\d+ +\d+ +\d+\.\d{3} s\nwrote ` + regexp.QuoteMeta(path) + `\n$`).MatchString(text) {
		t.Error(text)
	}
	same(t, path, generate(t))
	if other := generate(t, "--seed", "1"); func() bool {
		a, _ := os.ReadFile(path)
		b, _ := os.ReadFile(other)
		return string(a) == string(b)
	}() {
		t.Error("another seed, the same content")
	}
}

func TestGenShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	var made struct {
		Model          string
		Seed           uint64
		Tensors, Bytes int64
		Files          []string
	}
	if err := json.Unmarshal([]byte(did(t, tryst(t, "gen", "--model", "tiny", "--shards", "2", "--seed", "5", "--json", "--out", dir))), &made); err != nil {
		t.Fatal(err)
	}
	if made.Model != "tiny" || made.Seed != 5 || made.Tensors == 0 || made.Bytes == 0 || len(made.Files) != 3 {
		t.Errorf("%+v", made)
	}
	for _, f := range made.Files {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
}

func TestGenExisting(t *testing.T) {
	path := generate(t)
	failed(t, tryst(t, "gen", "--model", "tiny", "--out", path), exitFailed, path, "exists", "force")
	did(t, tryst(t, "gen", "--model", "tiny", "--out", path, "--force"))
}

func TestGenNowhere(t *testing.T) {
	failed(t, tryst(t, "gen", "--model", "tiny", "--out", "/does/not/exist/x.safetensors"), exitFailed, "/does/not/exist", "no such file")
	failed(t, tryst(t, "gen", "--model", "tiny", "--shards", "1000000", "--out", t.TempDir()), exitUsage, "1000000 shards")
}

func TestGenLineOfProgress(t *testing.T) {
	r := tryst(t, "gen", "--model", "tiny", "--out", filepath.Join(t.TempDir(), "x.safetensors"))
	if !regexp.MustCompile(`^gen: [\d.]+ kB of [\d.]+ kB \(100%\), [\d.]+ .?B/s\n$`).MatchString(r.err) || strings.Contains(r.err, "\r") {
		t.Errorf("%q", r.err)
	}
}
