package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each bound in docs/security.md names a test, and each test that it names exists in the directory that it names.
func TestSecurityNamesTests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool) // "directory Test"
	for _, s := range tree(t) {
		if !s.isTest() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				tests[s.dir()+" "+f.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`([a-z/]+ Test[A-Za-z0-9]+)`")
	rows := 0
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| resource |") {
			continue
		}
		rows++
		found := named.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("this row names no test: %s", line)
		}
		for _, m := range found {
			if !tests[m[1]] {
				t.Errorf("there is no test %q", m[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows; was the format of the table changed?", rows)
	}
}
