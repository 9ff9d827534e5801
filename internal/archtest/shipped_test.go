//go:build !race

package archtest

import (
	"slices"
	"strings"
	"testing"
)

// reaches lists the packages of the module that a package imports, directly or through others. Test files do not count.
func reaches(files []goFile, dir string) []string {
	imports := map[string][]string{}
	for _, s := range files {
		if s.isTest() {
			continue
		}
		for _, p := range s.imports() {
			if p == module {
				imports[s.dir()] = append(imports[s.dir()], ".")
			} else if target, ours := strings.CutPrefix(p, module+"/"); ours {
				imports[s.dir()] = append(imports[s.dir()], target)
			}
		}
	}
	seen := map[string]bool{dir: true}
	found := []string{}
	for queue := []string{dir}; len(queue) > 0; queue = queue[1:] {
		for _, next := range imports[queue[0]] {
			if !seen[next] {
				seen[next] = true
				queue, found = append(queue, next), append(found, next)
			}
		}
	}
	slices.Sort(found)
	return found
}

// The binary and the root package contain no benchmarks and no baselines.
func TestShippedPackagesHaveNoBenchmarks(t *testing.T) {
	files := tree(t)
	for _, shipped := range []string{"cmd/tryst", "."} {
		all := reaches(files, shipped)
		if !slices.Contains(all, "server") {
			t.Errorf("%s imports %q, without server", shipped, all)
		}
		for _, dir := range all {
			if dir == "internal/bench" || strings.HasPrefix(dir, "internal/bench/") {
				t.Errorf("%s imports %s", shipped, dir)
			}
		}
	}
}

func TestReaches(t *testing.T) {
	files := made(t,
		"a/x.go", "package a\n\nimport _ \""+module+"/b\"\nimport _ \"fmt\"\n",
		"a/x_test.go", "package a\n\nimport _ \""+module+"/d\"\n",
		"b/x.go", "package b\n\nimport _ \""+module+"\"\n",
		"x.go", "package m\n\nimport _ \""+module+"/c\"\nimport _ \""+module+"/a\"\n",
		"c/x.go", "package c\n")
	if got, want := reaches(files, "a"), []string{".", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("a reaches %q, want %q", got, want)
	}
}
