package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeLoad(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "loadavg")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestLoadAverage(t *testing.T) {
	for text, want := range map[string]float64{
		"0.42 1.10 2.00 1/300 4711\n": 0.42,
		"12.00 8 4 1/1 1":             12,
		"":                            unknownLoad,
		"quiet":                       unknownLoad,
	} {
		if got := loadAverage(writeLoad(t, text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := loadAverage(filepath.Join(t.TempDir(), "none")); got != unknownLoad {
		t.Errorf("without the file: %v, want %v", got, unknownLoad)
	}
}

// TestRunReportsTheLoad: in its progress, in each row and below the table, with a
// warning where the machine is not quiet.
func TestRunReportsTheLoad(t *testing.T) {
	for _, c := range []struct {
		text  string
		load  float64
		said  string // the first line of the progress
		warns bool
	}{
		{"0.50 0 0", 0.5, "load average at the start 0.50", false},
		{"0.51 0 0", 0.51, "warning: load average at the start 0.51, above 0.50: ", true},
		{"", unknownLoad, "1 benchmark will take ", false},
	} {
		o := smoke(t, "local-match")
		o.loadFile = writeLoad(t, c.text)
		var said []string
		o.Progress = func(text string) { said = append(said, text) }
		rows, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(said) == 0 || !strings.HasPrefix(said[0], c.said) || strings.Contains(said[0], "warning") != c.warns {
			t.Errorf("%q: progress %q, want %q, a warning: %v", c.text, said, c.said, c.warns)
		}
		for _, r := range rows {
			if r.Load != c.load {
				t.Errorf("%q: load %v in row %s, want %v", c.text, r.Load, r.Name, c.load)
			}
		}
		var table strings.Builder
		if err := WriteTable(&table, rows); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(table.String(), "\nload average at the start ") != (c.load != unknownLoad) {
			t.Errorf("%q: table\n%s", c.text, &table)
		}
	}
}
