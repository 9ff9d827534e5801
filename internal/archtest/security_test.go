//go:build !race

package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each bound in docs/security.md names a test. TestDocumentsNameWhatExists checks that it exists. A table
// that a test writes is between markers, and the text before it names the test.
func TestSecurityNamesTests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	before, rest, _ := strings.Cut(text, "<!-- rights:begin -->")
	if _, after, ok := strings.Cut(rest, "<!-- rights:end -->"); ok && strings.Contains(before, "TestRightsTable") {
		text = before + after
	}
	rows := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| resource |") {
			continue
		}
		rows++
		if !testIn.MatchString(line) {
			t.Errorf("this row names no test: %s", line)
		}
	}
	if rows < 20 {
		t.Errorf("%d rows; was the format of the table changed?", rows)
	}
}
