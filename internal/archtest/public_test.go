package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// publicPackages are the packages that other modules may import. Adding one is a promise to keep its API, so it needs a line here.
var publicPackages = []string{
	".",
	"checkpoint",
	"cluster",
	"collective",
	"envconfig",
	// proto/ is public since the methods of transport.Worker have its messages.
	"proto",
	"proto/registry",
	"proto/tensorflow",
	"proto/tensorflowgrpc",
	"proto/tryst",
	"proto/trystgrpc",
	"rendezvous",
	"server",
	"soft-roce",
	"soft-roce/tier",
	"soft-roce/vm",
	"soft-roce/vm/guest",
	"status",
	"tensor",
	"tensor/npy",
	"tensor/safetensors",
	"tensor/tensorproto",
	"tensor/tensortest",
	"tensorflow/collectives",
	"tensorflow/graph",
	"tensorflow/library",
	"tensorflow/master",
	"tensorflow/ops",
	"tensorflow/worker",
	"transport",
	"transport/grpc",
	"transport/identity",
	"transport/transporttest",
	"transport/verbs",
	"transport/verbs/bootstrap",
	"transport/verbs/bootstrap/bootstraptest",
	"transport/verbs/hostiletest",
	"verbs",
	"verbs/cgo",
	"verbs/discovery",
	"verbs/discovery/discoverytest",
	"verbs/roce",
	"verbs/roce/rocetest",
	"verbs/shm",
	"verbs/tcp",
	"verbs/verbstest",
}

// checkPublic compares the packages that other modules can import with those that may be: the two lists must be equal. The tests
// in integration/ are not for importers.
func checkPublic(files []source, want []string) (complaints []string) {
	found := map[string]bool{}
	for _, s := range files {
		dir := s.dir()
		switch {
		case s.isTest(), s.file.Name.Name == "main", isInternal(dir), dir == "integration", strings.HasPrefix(dir, "integration/"):
		default:
			found[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(want, dir) {
			complaints = append(complaints, fmt.Sprintf("package %s is public: put it below internal/, or add it to publicPackages", dir))
		}
	}
	for _, dir := range want {
		if !found[dir] {
			complaints = append(complaints, fmt.Sprintf("publicPackages lists %s, which is not a public package", dir))
		}
	}
	return complaints
}

// isInternal reports whether the go tool keeps other modules from importing the directory.
func isInternal(dir string) bool { return slices.Contains(strings.Split(dir, "/"), "internal") }

func TestPublicPackages(t *testing.T) {
	for _, c := range checkPublic(tree(t), publicPackages) {
		t.Error(c)
	}
}

func TestCheckPublic(t *testing.T) {
	same(t, checkPublic(made(t,
		"x.go", "package m\n",
		"a/x.go", "package a\n",
		"a/internal/b/x.go", "package b\n",
		"internal/c/x.go", "package c\n",
		"cmd/d/x.go", "package main\n",
		"e/x_test.go", "package e\n",
		"f/x.go", "package f\n",
		"g/x.go", "package g\n",
		"integration/h/x.go", "package h\n",
	), []string{".", "a", "f", "gone"}),
		"package g is public: put it below internal/, or add it to publicPackages",
		"publicPackages lists gone, which is not a public package",
	)
}
