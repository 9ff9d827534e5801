//go:build !race

package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testModules are the modules that test support packages may import beyond those of their entry in the table.
var testModules = []string{"go.uber.org/goleak", "github.com/google/go-cmp"}

// checkImports compares the imports of all files but tests with the table. It returns one line for each forbidden import.
func checkImports(entries map[string]*entry, files []goFile) []string {
	var complaints []string
	for _, s := range files {
		if s.isTest() {
			continue
		}
		e := entryOf(entries, s.dir())
		if e == nil {
			complaints = append(complaints, fmt.Sprintf("%s: package %s is not in the table of ARCHITECTURE.md section 2", s.path, s.dir()))
			continue
		}
		for _, p := range s.imports() {
			if why := e.forbids(entries, s.dir(), p); why != "" {
				complaints = append(complaints, fmt.Sprintf("%s imports %s: %s", s.path, p, why))
			}
		}
	}
	slices.Sort(complaints)
	return complaints
}

// entryOf finds the entry of a directory: its own, or that of the nearest directory above it. The entry "." covers the root
// package alone.
func entryOf(entries map[string]*entry, dir string) *entry {
	for ; ; dir = path.Dir(dir) {
		if e := entries[dir]; e != nil {
			return e
		}
		if dir == "." || path.Dir(dir) == "." {
			return nil
		}
	}
}

// forbids returns why the package in dir, which e covers, must not import p, or "" if it may.
func (e *entry) forbids(entries map[string]*entry, dir, p string) string {
	first, _, _ := strings.Cut(p, "/")
	if !strings.Contains(first, ".") {
		return "" // The standard library is always allowed. checkUnsafe covers "C" and unsafe.
	}
	if p != module && !strings.HasPrefix(p, module+"/") {
		allowed := e.modules
		if isTestSupport(dir) {
			allowed = slices.Concat(allowed, testModules)
		}
		for _, prefix := range allowed {
			if p == prefix || strings.HasPrefix(p, prefix+"/") {
				return ""
			}
		}
		return fmt.Sprintf("package %s may not import this module (ARCHITECTURE.md section 2)", e.path)
	}
	target := path.Clean("./" + strings.TrimPrefix(strings.TrimPrefix(p, module), "/"))
	other := entryOf(entries, target)
	switch {
	case other == nil:
		return "it is not in the table of ARCHITECTURE.md section 2"
	case isTestSupport(target) && !isTestSupport(dir):
		return "only tests may import test support"
	case !e.packages[other.path]:
		return fmt.Sprintf("package %s may not import package %s (ARCHITECTURE.md section 2)", e.path, other.path)
	}
	return ""
}

// isTestSupport reports whether a directory holds code for tests alone: packages whose names end in test (internal/archtest,
// internal/protocoltest, verbs/verbstest), the report of make test, and the tests across processes. Everything else below internal/
// is product code.
func isTestSupport(dir string) bool {
	return dir == "integration" || strings.HasPrefix(dir, "integration/") || dir == "internal/testreport" || strings.HasSuffix(dir, "test")
}

func TestIsTestSupport(t *testing.T) {
	for dir, want := range map[string]bool{
		"internal/archtest": true, "internal/protocoltest": true, "internal/testreport": true, "verbs/verbstest": true,
		"integration": true, "integration/internal/peer": true,
		"internal/config": false, "internal/doctor": false, "internal/bench": false, "internal/bench/cmd/tryst-bench": false,
		"server": false, ".": false,
	} {
		if got := isTestSupport(dir); got != want {
			t.Errorf("isTestSupport(%q) = %v, want %v", dir, got, want)
		}
	}
}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := parseTable(string(doc))
	if err != nil {
		t.Fatalf("ARCHITECTURE.md: %v", err)
	}
	for _, c := range checkImports(entries, tree(t)) {
		t.Error(c)
	}
}

// document is a small ARCHITECTURE.md with each kind of line that the real one has.
const document = `# A design

## 2. Packages and imports
Words before the table, with a | in them.

| package | contents | may import |
| --- | --- | --- |
| ` + "`.` (package tryst)" + ` | the front door | server, status |
| ` + "`status/`" + ` | errors | – |
| ` + "`proto/tensorflow`, `proto/tryst`" + ` | messages only | ; protobuf |
| ` + "`proto/tensorflowgrpc`, `proto/trystgrpc`" + ` | services | proto; grpc |
| ` + "`tensor/`" + ` | tensors. ` + "`tensor/tensortest`" + `: their tests | status |
| ` + "`tensor/tensorproto`, `tensor/npy`" + ` | files | tensor, status (tensorproto: proto) |
| ` + "`server/`" + ` | the server | all above but ` + "`.`" + `; grpc, otel |
| ` + "`bench/`" + ` | benchmarks | server and below |
| ` + "`cmd/tryst/`" + ` | the binary | ` + "`.`" + `, server; cobra |

## 3. Other tables
| package | contents | may import |
| ` + "`nowhere/`" + ` | nothing | – |
`

func TestCheckImports(t *testing.T) {
	entries, err := parseTable(document)
	if err != nil {
		t.Fatal(err)
	}
	const ours = module + "/"
	tests := []struct {
		dir, imports string
		want         string // "" when allowed
	}{
		{"status", "errors", ""},
		{"status", "math/rand/v2", ""},
		{"status", "google.golang.org/grpc/codes", "package status may not import this module (ARCHITECTURE.md section 2)"},
		{"status", ours + "tensor", "package status may not import package tensor (ARCHITECTURE.md section 2)"},
		{"status", module, "package status may not import package . (ARCHITECTURE.md section 2)"},
		{"status/internal/text", ours + "status", ""},
		{"status/internal/text", ours + "tensor", "package status may not import package tensor (ARCHITECTURE.md section 2)"},
		{"tensor", ours + "status", ""},
		{"tensor", ours + "nowhere", "it is not in the table of ARCHITECTURE.md section 2"},
		{"tensor", ours + "tensor/tensortest", "only tests may import test support"},
		{"tensor/tensortest", ours + "tensor", ""},
		{"tensor/tensortest", "go.uber.org/goleak", ""},
		{"tensor", "go.uber.org/goleak", "package tensor may not import this module (ARCHITECTURE.md section 2)"},
		{"tensor", ours + "tensor/npy", "package tensor may not import package tensor/npy (ARCHITECTURE.md section 2)"},
		{"tensor/tensorproto", ours + "proto/tensorflow", ""},
		{"tensor/tensorproto", ours + "proto/tensorflowgrpc", "package tensor/tensorproto may not import package proto/tensorflowgrpc (ARCHITECTURE.md section 2)"},
		{"tensor/npy", ours + "proto/tensorflow", "package tensor/npy may not import package proto/tensorflow (ARCHITECTURE.md section 2)"},
		{"proto/tryst", ours + "proto/tensorflow", ""},
		{"proto/tryst", "google.golang.org/protobuf/proto", ""},
		{"proto/tryst", "google.golang.org/protobufs", "package proto/tryst may not import this module (ARCHITECTURE.md section 2)"},
		{"proto/trystgrpc", ours + "proto/tryst", ""},
		{"proto/trystgrpc", "google.golang.org/protobuf/runtime/protoimpl", ""},
		{"server", ours + "tensor/npy", ""},
		{"server", "go.opentelemetry.io/otel/trace", ""},
		{"server", module, "package server may not import package . (ARCHITECTURE.md section 2)"},
		{"server", ours + "bench", "package server may not import package bench (ARCHITECTURE.md section 2)"},
		{"bench", ours + "server", ""},
		{"bench", ours + "status", ""},
		{"bench", "google.golang.org/grpc", "package bench may not import this module (ARCHITECTURE.md section 2)"},
		{"cmd/tryst", module, ""},
		{"cmd/tryst", ours + "status", "package cmd/tryst may not import package status (ARCHITECTURE.md section 2)"},
		{".", ours + "server", ""},
		{".", ours + "tensor", "package . may not import package tensor (ARCHITECTURE.md section 2)"},
	}
	for _, tt := range tests {
		t.Run(tt.dir+" imports "+tt.imports, func(t *testing.T) {
			file := path.Join(tt.dir, "x.go")
			got := checkImports(entries, made(t, file, "package x\n\nimport _ \""+tt.imports+"\"\n"))
			if tt.want == "" {
				same(t, got)
				return
			}
			same(t, got, file+" imports "+tt.imports+": "+tt.want)
		})
	}
	t.Run("tests apart", func(t *testing.T) {
		same(t, checkImports(entries, made(t, "status/x_test.go", "package x\n\nimport _ \""+ours+"server\"\n")))
	})
	t.Run("not in the table", func(t *testing.T) {
		same(t, checkImports(entries, made(t, "proto/x.go", "package x\n")), "proto/x.go: package proto is not in the table of ARCHITECTURE.md section 2")
	})
}

func TestParseTableErrors(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"no section", "## 2. Packages and imports", "## 2. Rooms", `no section "## 2. Packages and imports"`},
		{"listed twice", "`bench/`", "`server/`", "package server is listed twice"},
		{"unknown package", "| server, status |", "| servers, status |", `. may import: package "servers" is not in the table`},
		{"unknown module", "; cobra", "; viper", `cmd/tryst may import: which module is "viper"? add it to modulesByWord`},
		{"no table", "|", "!", "no table in section 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseTable(strings.ReplaceAll(document, tt.old, tt.new))
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
