// Package doctest compares tables in documents with those that the code writes.
package doctest

import (
	"os"
	"strings"
	"testing"
)

// Block compares the lines between the markers "<!-- name:begin -->" and "<!-- name:end -->" of a document
// with want, which ends with a newline. With update it writes them. run is what writes them, such as "go
// test ./tensorflow/ops -run TestOpsTable -update", for the error.
func Block(t testing.TB, path, name, want string, update bool, run string) {
	t.Helper()
	begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	block, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no block between %q and %q, each on a line of its own", path, begin, end)
	case block == want:
	case !update:
		t.Fatalf("the table %q in %s is not that of the code; write it with %s", name, path, run)
	default:
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
