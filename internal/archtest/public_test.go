//go:build !race

package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// publicPackages are the packages that other modules may import, each with its reason. Adding one is a promise to keep its API.
// There are at most maxPublic.
var publicPackages = map[string]string{
	".":                  "what programs use: Serve, Dial, Publish, Pull",
	"envconfig":          "settings from the environment; apart from the root, whose importers need no reader of YAML",
	"tensor":             "values and their memory",
	"tensor/npy":         "a file format of tensors",
	"tensor/safetensors": "a file format of tensors",
	"tensor/tensorproto": "the wire format of tensors",
	"tensor/tensortest":  "tensors in the tests of importers",
	"status":             "errors",
	"cluster":            "names of tasks and devices",
	"rendezvous":         "keys and steps, for those who write a transport",
	"transport":          "the interfaces of a transport",
	"transport/grpc":     "the transport over gRPC",
	"transport/verbs":    "the transport over verbs",
	"verbs":              "the interfaces of a provider",
	"verbs/cgo":          "a provider: libibverbs",
	"verbs/roce":         "a provider: RoCEv2 in user space",
	"verbs/shm":          "a provider: shared memory",
	"verbs/tcp":          "a provider: TCP",
	"verbs/verbstest":    "the suite of providers",
	"server":             "what the root is made of, with its metrics",
	"tensorflow/graph":   "kernels: what an author implements",
	"tensorflow/ops":     "kernels in Go",
	"tensorflow/library": "kernels of TensorFlow's library",
	"proto/tensorflow":   "TensorFlow's messages, which the interfaces of a transport and of kernels have",
}

const maxPublic = 24

// checkPublic compares the packages that other modules can import with those that may be: the two lists must be equal. The tests
// in integration/ are not for importers.
func checkPublic(files []goFile, want map[string]string) (complaints []string) {
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
		if want[dir] == "" {
			complaints = append(complaints, fmt.Sprintf("package %s is public: put it below internal/, or add it to publicPackages with its reason", dir))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(want)) {
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
	if n := len(publicPackages); n > maxPublic {
		t.Errorf("%d packages are public, and at most %d may be", n, maxPublic)
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
	), map[string]string{".": "x", "a": "x", "f": "x", "gone": "x"}),
		"package g is public: put it below internal/, or add it to publicPackages with its reason",
		"publicPackages lists gone, which is not a public package",
	)
}
