//go:build !race

package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A list of tests in the Makefile, with its continuation lines.
var testList = regexp.MustCompile(`(?m)^(?:searches|planted|raceless|long) := ((?:.*\\\n)*.*)`)

// TestListsOfTestsNameTests: each word of a list of tests in the Makefile is a test, so that no list goes on with a name that was changed.
func TestListsOfTestsNameTests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, f := range tree(t) {
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.isTest() {
				tests[fn.Name.Name] = true
			}
		}
	}
	words := 0
	for _, list := range testList.FindAllStringSubmatch(string(b), -1) {
		for word := range strings.FieldsSeq(list[1]) {
			if word == `\` || strings.HasPrefix(word, "$") { // the name of another list
				continue
			}
			words++
			if !tests["Test"+word] {
				t.Errorf("a list of tests in the Makefile has %s, and there is no Test%s", word, word)
			}
		}
	}
	if words < 50 {
		t.Errorf("%d words; was the format of the lists changed?", words)
	}
}
