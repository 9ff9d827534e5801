//go:build !race

package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A step of .ci/run that tests: "step storm 5 make storm STORM_TIME=60s".
var suiteStep = regexp.MustCompile(`(?m)^step .* make (test\S*|check-capture|storm|interop)(?: |$)`)

// TestAllRunsEverySuite: make test-all, its help and CONTRIBUTING.md name every suite that .ci/run runs.
func TestAllRunsEverySuite(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, recipe, found := strings.Cut(read("Makefile"), "\ntest-all:")
	if !found {
		t.Fatal("the Makefile has no test-all")
	}
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	help, recipe, _ := strings.Cut(recipe, "\n")
	words := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,;\t\n", r) })
	}
	steps := suiteStep.FindAllStringSubmatch(read(".ci/run"), -1)
	if len(steps) < 6 {
		t.Fatalf("%d suites in .ci/run; was the format of its steps changed?", len(steps))
	}
	for _, m := range steps {
		suite := m[1]
		if !slices.Contains(words(recipe), suite) {
			t.Errorf("make test-all does not run %s", suite)
		}
		if !slices.Contains(words(help), suite) {
			t.Errorf("the help of make test-all does not name %s", suite)
		}
		if !strings.Contains(read("CONTRIBUTING.md"), "`make "+suite+"`") {
			t.Errorf("CONTRIBUTING.md does not name make %s", suite)
		}
	}
}
