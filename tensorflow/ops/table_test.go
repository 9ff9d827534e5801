package ops

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/doctest"
)

var update = flag.Bool("update", false, "write the table of ops into docs/ops.md")

// TestOpsTable compares the table with the block between the markers in docs/ops.md. With -update it
// writes the block.
func TestOpsTable(t *testing.T) {
	var table bytes.Buffer
	if err := New().WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	doctest.Block(t, "../../docs/ops.md", "ops", table.String(), *update, "go test ./tensorflow/ops -run TestOpsTable -update")
}

// TestTheTableSaysWhichTypesAKernelSupports has the types that NewKernel refuses left out.
func TestTheTableSaysWhichTypesAKernelSupports(t *testing.T) {
	var table bytes.Buffer
	if err := New().WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `NoOp` | – | `()` |\n",
		"| `ApplyAdam` | float, double, bfloat16, half |",
		"| `SparseApplyRMSProp` | float, double, half |",
		"| `Identity` | all |",
		"| `ConcatV2` | float, double, int32, uint8, int16, int8, string, complex64, int64, bool,",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q", want)
		}
	}
}
