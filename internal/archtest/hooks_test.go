//go:build !race

package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// testHooks are methods in product files that are for tests of several packages. The comments of their packages say why.
var testHooks = []string{"SearchCopy", "AppendSearchState"}

// checkHooks returns one line for each file but tests that calls a hook.
func checkHooks(files []goFile) (complaints []string) {
	for _, s := range files {
		if s.isTest() || isTestSupport(s.dir()) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(testHooks, sel.Sel.Name) {
				complaints = append(complaints, fmt.Sprintf("%s refers to %s, which is for tests alone", s.path, sel.Sel.Name))
			}
			return true
		})
	}
	return complaints
}

func TestOnlyTestsCallTestHooks(t *testing.T) {
	for _, c := range checkHooks(tree(t)) {
		t.Error(c)
	}
}

func TestCheckHooks(t *testing.T) {
	const calls = "package x\n\nfunc f(c *channel) { c.SearchCopy() }\n"
	same(t, checkHooks(made(t,
		"a/a.go", calls,
		"a/b.go", "package x\n\nfunc (c *channel) SearchCopy() {}\n",
		"a/a_test.go", calls,
		"a/atest/a.go", calls,
	)), "a/a.go refers to SearchCopy, which is for tests alone")
}
