package config

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of settings into docs/settings.md")

// TestSettingsTable compares the table with the block between the markers in
// docs/settings.md. With -update it writes the block.
func TestSettingsTable(t *testing.T) {
	const (
		path  = "../../docs/settings.md"
		begin = "<!-- settings:begin -->\n"
		end   = "<!-- settings:end -->\n"
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
	if err := WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if block == table.String() {
		return
	}
	if !*update {
		t.Fatalf("the table of settings in %s is not that of the code; write it with go test ./internal/config -run TestSettingsTable -update", path)
	}
	if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestWriteTable has a row for each setting, with as many cells as the heading.
func TestWriteTable(t *testing.T) {
	var table bytes.Buffer
	if err := WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(table.String()), "\n")
	if len(rows) != len(settings)+2 {
		t.Fatalf("got %d rows for %d settings", len(rows), len(settings))
	}
	for _, row := range rows {
		if got, want := strings.Count(row, "|"), strings.Count(rows[0], "|"); got != want {
			t.Errorf("got %d bars, want %d: %s", got, want, row)
		}
	}
	const want = "| `log.level` | `--log-level` | `TRYST_LOG_LEVEL` | `info` | level (debug, info, warn, error) | server, client | lowest level that is logged; the default of pull and keys is warn |"
	if !strings.Contains(table.String(), want+"\n") {
		t.Errorf("no row %q in\n%s", want, table.String())
	}
}
