//go:build !race

package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// providers are the providers that Tryst opens, each with the directory of its package and its constant for settings. All that
// distinguishes them is in the table.
var providers = map[string]struct{ dir, constant string }{
	"libibverbs": {"verbs/cgo", "ProviderLibibverbs"},
	"roce":       {"verbs/roce", "ProviderRoCE"},
	"tcp":        {"verbs/tcp", "ProviderTCP"},
	"shm":        {"verbs/shm", "ProviderSHM"},
}

// providerTable is the package with the table.
const providerTable = "internal/providers"

// namesProviders are the files, and the directories with all below them, that name a provider outside of the table, each with its
// reason.
var namesProviders = map[string]string{
	"config.go":                                "constants for programs that set Provider",
	"server/config.go":                         "likewise",
	"internal/bench":                           "benchmarks compare providers with each other, and each with what is next to it",
	"internal/config/names.go":                 "constants for programs that set Provider; the setting shm",
	"internal/config/sources/servicelinks.go":  "a protocol of Kubernetes",
	"internal/discovery/device.go":             "the driver of a device in an inventory",
	"internal/doctor/check_kernel.go":          "the checks of the library itself",
	"internal/doctor/check_software.go":        "the checks of the sockets of roce",
	"internal/doctor/software.go":              "likewise",
	"internal/loss/judge.go":                   "losses of TCP itself, whoever uses it",
	"transport/verbs/internal/route/route.go":  "words of the protocol: peers, logs and metrics have them",
	"transport/verbs/internal/route/reason.go": "what a user may name in the setting provider, of the devices that a peer shows",
}

// networkCalls are the functions to which "tcp" is a network of package net.
var networkCalls = []string{"Listen", "Dial", "DialContext"}

// checkProviders returns one line for each place outside of the table and the providers that imports a provider, uses its constant,
// or has a text that is its name alone. Tests may.
func checkProviders(files []goFile, exceptions map[string]string) (complaints []string) {
	used := map[string]bool{}
	for _, s := range files {
		if s.isTest() || s.isGenerated() || s.dir() == providerTable || isProvider(s.dir()) {
			continue
		}
		found := namedProviders(s)
		if key := exceptionOf(s.path, exceptions); len(found) > 0 && key != "" {
			used[key] = true
			continue
		}
		for _, what := range found {
			complaints = append(complaints, fmt.Sprintf("%s %s: what distinguishes providers is a column of the table in %s", s.path, what, providerTable))
		}
	}
	for key := range exceptions {
		if !used[key] {
			complaints = append(complaints, fmt.Sprintf("namesProviders lists %s, which names no provider", key))
		}
	}
	slices.Sort(complaints)
	return complaints
}

// isProvider reports whether a directory is that of a provider, or below it.
func isProvider(dir string) bool {
	for _, p := range providers {
		if dir == p.dir || strings.HasPrefix(dir, p.dir+"/") {
			return true
		}
	}
	return false
}

// exceptionOf returns the key of the exceptions that has a file; "" for none.
func exceptionOf(path string, exceptions map[string]string) string {
	for key := range maps.Keys(exceptions) {
		if path == key || strings.HasPrefix(path, key+"/") {
			return key
		}
	}
	return ""
}

// namedProviders describes how a file names providers.
func namedProviders(s goFile) (found []string) {
	for name, p := range providers {
		if slices.Contains(s.imports(), module+"/"+p.dir) {
			found = append(found, "imports "+p.dir)
		}
		for n := range ast.Preorder(s.file) {
			if id, ok := n.(*ast.Ident); ok && strings.EqualFold(id.Name, p.constant) {
				found = append(found, "uses "+p.constant)
			}
		}
		for lit := range texts(s.file) {
			if text, err := strconv.Unquote(lit.Value); err == nil && text == name {
				found = append(found, fmt.Sprintf("names %q", name))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// texts yields the string literals of a file, but for networks of package net.
func texts(f *ast.File) func(yield func(*ast.BasicLit) bool) {
	networks := map[ast.Expr]bool{}
	return func(yield func(*ast.BasicLit) bool) {
		for n := range ast.Preorder(f) {
			switch n := n.(type) {
			case *ast.CallExpr:
				if x, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(networkCalls, x.Sel.Name) {
					for _, arg := range n.Args {
						networks[arg] = true
					}
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING && !networks[n] && !yield(n) {
					return
				}
			}
		}
	}
}

func TestProvidersAreNamedInTheTable(t *testing.T) {
	for _, c := range checkProviders(tree(t), namesProviders) {
		t.Error(c)
	}
}

func TestCheckProviders(t *testing.T) {
	const by = ": what distinguishes providers is a column of the table in " + providerTable
	same(t, checkProviders(made(t,
		providerTable+"/table.go", "package providers\n\nimport _ \""+module+"/verbs/shm\"\n\nconst x = \"shm\"\n",
		"verbs/shm/x.go", "package shm\n\nconst Name = \"shm\"\n",
		"verbs/tcp/internal/frame/x.go", "package frame\n\nconst x = \"tcp\"\n",
		"server/a.go", "package server\n\nimport _ \""+module+"/verbs/roce\"\n",
		"server/a_test.go", "package server\n\nimport _ \""+module+"/verbs/roce\"\n",
		"server/b.go", "package server\n\nfunc f(name string) bool { return name == `shm` || name == \"over shm\" }\n",
		"server/c.go", "package server\n\nfunc f(name string) bool { return name == config.ProviderTCP }\n",
		"server/d.go", "package server\n\nvar _, _ = net.Listen(\"tcp\", \"x\")\n",
		"server/e.go", "package server\n\nvar _, _ = net.Resolve(\"tcp\", \"x\")\n",
		"bench/x/f.go", "package bench\n\nconst x = \"libibverbs\"\n",
		"benches/g.go", "package benches\n\nconst x = \"libibverbs\"\n",
	), map[string]string{"bench": "compares", "gone.go": "x"}),
		`benches/g.go names "libibverbs"`+by,
		"namesProviders lists gone.go, which names no provider",
		"server/a.go imports verbs/roce"+by,
		`server/b.go names "shm"`+by,
		"server/c.go uses ProviderTCP"+by,
		`server/e.go names "tcp"`+by,
	)
}
