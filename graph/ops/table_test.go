package ops

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of ops into docs/ops.md")

// TestOpsTable compares the table with the block between the markers in docs/ops.md. With -update it
// writes the block.
func TestOpsTable(t *testing.T) {
	const (
		path  = "../../docs/ops.md"
		begin = "<!-- ops:begin -->\n"
		end   = "<!-- ops:end -->\n"
	)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	block, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no block between %q and %q, each on a line of its own", path, begin, end)
	}
	var table bytes.Buffer
	if err := New().WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if block == table.String() {
		return
	}
	if !*update {
		t.Fatalf("the table of ops in %s is not that of the code; write it with go test ./graph/ops -run TestOpsTable -update", path)
	}
	if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTheTableSaysWhichTypesAKernelSupports has the types that NewKernel refuses left out.
func TestTheTableSaysWhichTypesAKernelSupports(t *testing.T) {
	var table bytes.Buffer
	if err := New().WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `NoOp` | – | `()` |\n",
		"| `ApplyAdam` | float, double |",
		"| `Identity` | all |",
		"| `ConcatV2` | float, double, int32, uint8, int16, int8, string, complex64, int64, bool,",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q", want)
		}
	}
}
