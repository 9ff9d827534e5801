package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each bound in docs/security.md names a test. TestDocumentsNameWhatExists checks that it exists.
func TestSecurityNamesTests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(b)) {
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
