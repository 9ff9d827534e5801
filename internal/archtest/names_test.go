//go:build !race

package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// packageNames are the packages that are not named as their directories. Two directories have the name of what they connect to, which
// importers use in the same file; one has the name of the mechanism.
var packageNames = map[string]string{
	".":               "tryst",
	"transport/grpc":  "grpctransport",
	"transport/verbs": "verbstransport",
	"verbs/cgo":       "libibverbs",
}

// checkNames returns one line for each directory whose package has another name. Commands (package main) are skipped.
func checkNames(files []goFile, exceptions map[string]string) (complaints []string) {
	for _, s := range files {
		name := s.file.Name.Name
		if s.isTest() {
			name = strings.TrimSuffix(name, "_test")
		}
		want, ok := exceptions[s.dir()]
		if !ok {
			want = path.Base(s.dir())
		}
		if name != want && name != "main" {
			complaints = append(complaints, fmt.Sprintf("%s is package %s, want %s as its directory", s.path, name, want))
		}
	}
	slices.Sort(complaints)
	return complaints
}

func TestDirectoriesAreNamedAsTheirPackages(t *testing.T) {
	for _, c := range checkNames(tree(t), packageNames) {
		t.Error(c)
	}
}

func TestCheckNames(t *testing.T) {
	same(t, checkNames(made(t,
		"x.go", "package m\n",
		"a/x.go", "package a\n",
		"a/x_test.go", "package a_test\n",
		"a/y.go", "package b\n",
		"c/grpc/x.go", "package grpcc\n",
		"c/grpc/y.go", "package grpc\n",
		"cmd/d/x.go", "package main\n",
	), map[string]string{".": "m", "c/grpc": "grpcc"}),
		"a/y.go is package b, want a as its directory",
		"c/grpc/y.go is package grpc, want grpcc as its directory",
	)
}
