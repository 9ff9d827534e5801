package config

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/doctest"
)

var update = flag.Bool("update", false, "write the table of settings into docs/settings.md")

// TestSettingsTable compares the table with the block between the markers in
// docs/settings.md. With -update it writes the block.
func TestSettingsTable(t *testing.T) {
	var table bytes.Buffer
	if err := WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	doctest.Block(t, "../../docs/settings.md", "settings", table.String(), *update, "go test ./internal/config -run TestSettingsTable -update")
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
