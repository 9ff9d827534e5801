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

// testModules are what packages of test support (their names end in test) may import beyond their room's modules.
var testModules = []string{"go.uber.org/goleak", "github.com/google/go-cmp"}

// checkArrows compares the imports of all files but tests with the table, and returns one line for each that it forbids.
func checkArrows(rooms map[string]*room, files []source) []string {
	var complaints []string
	for _, s := range files {
		if s.isTest() {
			continue
		}
		r := roomOf(rooms, s.dir())
		if r == nil {
			complaints = append(complaints, fmt.Sprintf("%s: package %s is in no room of ARCHITECTURE.md section 2", s.path, s.dir()))
			continue
		}
		for _, p := range s.imports() {
			if why := r.forbids(rooms, s.dir(), p); why != "" {
				complaints = append(complaints, fmt.Sprintf("%s imports %s: %s", s.path, p, why))
			}
		}
	}
	slices.Sort(complaints)
	return complaints
}

// roomOf finds the room of a directory: itself or the nearest one above it that is in the table. Nothing but the root package
// itself is in the room ".".
func roomOf(rooms map[string]*room, dir string) *room {
	for ; ; dir = path.Dir(dir) {
		if r := rooms[dir]; r != nil {
			return r
		}
		if dir == "." || path.Dir(dir) == "." {
			return nil
		}
	}
}

// forbids says why a package of the room, in dir, must not import p, or "".
func (r *room) forbids(rooms map[string]*room, dir, p string) string {
	first, _, _ := strings.Cut(p, "/")
	if !strings.Contains(first, ".") {
		return "" // The standard library, always. Of "C" and unsafe the fence tests speak.
	}
	if p != module && !strings.HasPrefix(p, module+"/") {
		allowed := r.modules
		if isTestSupport(dir) {
			allowed = slices.Concat(allowed, testModules)
		}
		for _, prefix := range allowed {
			if p == prefix || strings.HasPrefix(p, prefix+"/") {
				return ""
			}
		}
		return fmt.Sprintf("room %s may not import this module (ARCHITECTURE.md section 2)", r.path)
	}
	target := path.Clean("./" + strings.TrimPrefix(strings.TrimPrefix(p, module), "/"))
	other := roomOf(rooms, target)
	switch {
	case other == nil:
		return "it is in no room of ARCHITECTURE.md section 2"
	case isTestSupport(target) && !isTestSupport(dir):
		return "test support is for tests"
	case !r.rooms[other.path]:
		return fmt.Sprintf("room %s may not import room %s (ARCHITECTURE.md section 2)", r.path, other.path)
	}
	return ""
}

func isTestSupport(dir string) bool {
	if dir == "internal/bench" || strings.HasPrefix(dir, "internal/bench/") {
		return false
	}
	return dir == "integration" || strings.HasPrefix(dir, "internal/") || strings.HasSuffix(dir, "test")
}

func TestRoomsImportOnlyWhatTheTableAllows(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	rooms, err := parseTable(string(doc))
	if err != nil {
		t.Fatalf("ARCHITECTURE.md: %v", err)
	}
	for _, c := range checkArrows(rooms, tree(t)) {
		t.Error(c)
	}
}

// document is a small ARCHITECTURE.md with each kind of line that the real one has.
const document = `# A design

## 2. Rooms and arrows
Words before the table, with a | in them.

| room | what lives there | may import |
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
| room | what lives there | may import |
| ` + "`nowhere/`" + ` | nothing | – |
`

func TestCheckArrows(t *testing.T) {
	rooms, err := parseTable(document)
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
		{"status", "google.golang.org/grpc/codes", "room status may not import this module (ARCHITECTURE.md section 2)"},
		{"status", ours + "tensor", "room status may not import room tensor (ARCHITECTURE.md section 2)"},
		{"status", module, "room status may not import room . (ARCHITECTURE.md section 2)"},
		{"status/internal/text", ours + "status", ""},
		{"status/internal/text", ours + "tensor", "room status may not import room tensor (ARCHITECTURE.md section 2)"},
		{"tensor", ours + "status", ""},
		{"tensor", ours + "nowhere", "it is in no room of ARCHITECTURE.md section 2"},
		{"tensor", ours + "tensor/tensortest", "test support is for tests"},
		{"tensor/tensortest", ours + "tensor", ""},
		{"tensor/tensortest", "go.uber.org/goleak", ""},
		{"tensor", "go.uber.org/goleak", "room tensor may not import this module (ARCHITECTURE.md section 2)"},
		{"tensor", ours + "tensor/npy", "room tensor may not import room tensor/npy (ARCHITECTURE.md section 2)"},
		{"tensor/tensorproto", ours + "proto/tensorflow", ""},
		{"tensor/tensorproto", ours + "proto/tensorflowgrpc", "room tensor/tensorproto may not import room proto/tensorflowgrpc (ARCHITECTURE.md section 2)"},
		{"tensor/npy", ours + "proto/tensorflow", "room tensor/npy may not import room proto/tensorflow (ARCHITECTURE.md section 2)"},
		{"proto/tryst", ours + "proto/tensorflow", ""},
		{"proto/tryst", "google.golang.org/protobuf/proto", ""},
		{"proto/tryst", "google.golang.org/protobufs", "room proto/tryst may not import this module (ARCHITECTURE.md section 2)"},
		{"proto/trystgrpc", ours + "proto/tryst", ""},
		{"proto/trystgrpc", "google.golang.org/protobuf/runtime/protoimpl", ""},
		{"server", ours + "tensor/npy", ""},
		{"server", "go.opentelemetry.io/otel/trace", ""},
		{"server", module, "room server may not import room . (ARCHITECTURE.md section 2)"},
		{"server", ours + "bench", "room server may not import room bench (ARCHITECTURE.md section 2)"},
		{"bench", ours + "server", ""},
		{"bench", ours + "status", ""},
		{"bench", "google.golang.org/grpc", "room bench may not import this module (ARCHITECTURE.md section 2)"},
		{"cmd/tryst", module, ""},
		{"cmd/tryst", ours + "status", "room cmd/tryst may not import room status (ARCHITECTURE.md section 2)"},
		{".", ours + "server", ""},
		{".", ours + "tensor", "room . may not import room tensor (ARCHITECTURE.md section 2)"},
	}
	for _, tt := range tests {
		t.Run(tt.dir+" imports "+tt.imports, func(t *testing.T) {
			file := path.Join(tt.dir, "x.go")
			got := checkArrows(rooms, made(t, file, "package x\n\nimport _ \""+tt.imports+"\"\n"))
			if tt.want == "" {
				same(t, got)
				return
			}
			same(t, got, file+" imports "+tt.imports+": "+tt.want)
		})
	}
	t.Run("tests apart", func(t *testing.T) {
		same(t, checkArrows(rooms, made(t, "status/x_test.go", "package x\n\nimport _ \""+ours+"server\"\n")))
	})
	t.Run("no room", func(t *testing.T) {
		same(t, checkArrows(rooms, made(t, "proto/x.go", "package x\n")), "proto/x.go: package proto is in no room of ARCHITECTURE.md section 2")
	})
}

func TestParseTableErrors(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"no section", "## 2. Rooms and arrows", "## 2. Rooms", `no section "## 2. Rooms and arrows"`},
		{"room twice", "`bench/`", "`server/`", "room server stands twice"},
		{"unknown room", "| server, status |", "| servers, status |", `. may import: there is no room "servers"`},
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
