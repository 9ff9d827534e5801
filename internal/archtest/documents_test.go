//go:build !race

package archtest

import (
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// plannedPaths are named in documents and do not exist yet.
var plannedPaths = []string{}

// repository is what documents may name: files, directories and functions of tests.
type repository struct {
	paths map[string]bool            // files and directories, relative to the root, with slashes
	tails map[string]bool            // the ends of these paths, each beginning with the name of a file or directory
	tests map[string]map[string]bool // names of functions, with the directories that have them
}

func newRepository(paths []string, files []goFile) *repository {
	r := &repository{map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}}
	for _, p := range paths {
		r.paths[p] = true
		for tail := p; ; {
			r.tails[tail] = true
			var found bool
			if _, tail, found = strings.Cut(tail, "/"); !found {
				break
			}
		}
	}
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !s.isTest() || testName.FindString(f.Name.Name) != f.Name.Name {
				continue
			}
			if r.tests[f.Name.Name] == nil {
				r.tests[f.Name.Name] = map[string]bool{}
			}
			r.tests[f.Name.Name][s.dir()] = true
		}
	}
	return r
}

var (
	// testName matches the name of a function that go test runs.
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z0-9]\w*`)
	// testIn matches a directory and the name of a function in it, in backticks.
	testIn = regexp.MustCompile("`([a-z0-9][a-z0-9/_-]*) ((?:Test|Fuzz|Benchmark|Example)[A-Z0-9]\\w*)`")
	// pathName matches what may be a path: with a slash, or with the extension of a source file.
	pathName = regexp.MustCompile(`[\w.*@:/-]+/[\w.*/-]*|[\w*][\w.*-]*\.(?:go|md|proto|sh|yml|yaml|py|mod)\b`)
	// sourceFile matches the names of files that are sources.
	sourceFile = regexp.MustCompile(`\.(?:go|md|proto|sh|yml|yaml|py|mod)$`)
	// link matches the target of a Markdown link.
	link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
)

// checkDocument returns one line for each test, file and directory that a document names and that does not exist. A path may
// lack its first directories (delivery/requests.go). A path whose first directory is none of the repository's is not ours, unless
// it has the extension of a source file.
func (r *repository) checkDocument(name, text string) (complaints []string) {
	number, code := 0, false
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		missing := map[string]bool{}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if code { // there it is Go: tensor.Values[float32](t)
				break
			}
			if target := path.Join(path.Dir(name), m[1]); !strings.Contains(m[1], "://") && !r.paths[target] {
				missing["file "+target] = true
			}
		}
		for _, m := range testIn.FindAllStringSubmatch(line, -1) {
			if !r.tests[m[2]][m[1]] {
				missing["test "+m[1]+" "+m[2]] = true
			}
		}
		for _, at := range testName.FindAllStringIndex(line, -1) {
			// "TestRxe..." stands for all names that begin so.
			if test := line[at[0]:at[1]]; r.tests[test] == nil && !strings.HasPrefix(line[at[1]:], "...") {
				missing["test "+test] = true
			}
		}
		for _, at := range pathName.FindAllStringIndex(line, -1) {
			if p := strings.Trim(strings.TrimPrefix(line[at[0]:at[1]], module+"/"), "/."); r.isMissing(line[at[0]:at[1]], p) {
				missing["file "+p] = true
			}
		}
		for _, what := range slices.Sorted(maps.Keys(missing)) {
			complaints = append(complaints, fmt.Sprintf("%s:%d names the %s, which does not exist", name, number, what))
		}
	}
	return complaints
}

// isMissing reports whether p, which a document has as text, is a path of the repository that does not exist.
func (r *repository) isMissing(text, p string) bool {
	first, _, nested := strings.Cut(p, "/")
	switch {
	case strings.HasPrefix(text, "/"), strings.ContainsAny(text, ":@"): // not relative, or a URL, or a version of a module
		return false
	case strings.HasPrefix(p, "_"), slices.Contains(plannedPaths, p): // the end of a name, as in _unsafe.go
		return false
	case strings.HasPrefix(text, "./"): // a pattern of the go tool
		return !r.paths[p]
	case !sourceFile.MatchString(p) && (!nested || !r.paths[first]):
		return false
	case strings.Contains(p, "*"):
		for tail := range r.tails {
			if ok, _ := path.Match(p, tail); ok {
				return false
			}
		}
		return true
	}
	return !r.tails[p]
}

// all lists the files and directories of the repository but for those that git ignores. It also returns the documents.
func all(t *testing.T) (paths []string, documents map[string]string) {
	t.Helper()
	top := root(t)
	documents = map[string]string{}
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if rel == ".git" || rel == "build" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil // in a worktree .git is a file
		}
		paths = append(paths, rel)
		if !strings.HasSuffix(rel, ".md") {
			return nil
		}
		text, err := os.ReadFile(name)
		documents[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths, documents
}

func TestDocumentsNameWhatExists(t *testing.T) {
	paths, documents := all(t)
	r := newRepository(paths, tree(t))
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, c := range r.checkDocument(name, documents[name]) {
			t.Error(c)
		}
	}
	if len(documents) < 10 {
		t.Errorf("%d documents", len(documents))
	}
}

func TestCheckDocument(t *testing.T) {
	r := newRepository([]string{".", "README.md", "docs", "docs/a.md", "docs/b.md", "verbs", "verbs/cgo", "verbs/cgo/qp.go", "verbs/cgo/mr_unsafe.go"},
		made(t, "verbs/cgo/qp_test.go", "package cgo\n\nfunc TestQP(t *testing.T) {}\n\nfunc FuzzQP(f *testing.F) {}\n",
			"verbs/cgo/test.go", "package cgo\n\nfunc TestNot() {}\n"))
	const good = "# A\n`verbs/cgo/qp.go`, cgo/qp.go and qp.go; `verbs/cgo TestQP`, TestQP and `-fuzz FuzzQP`. TestRxe... begin so.\n" +
		"[b](b.md), [r](../README.md#top) and [x](https://example.com/no.md). Files that end in `_unsafe.go`, or `*_unsafe.go`.\n" +
		"Not ours: /dev/uverbs0, build/tryst, google.golang.org/grpc/x, and/or, `tensorflow/ops`.\n" +
		"```\ngo install " + module + "/verbs/cgo\nv := x[0](y)\n```\n"
	same(t, r.checkDocument("docs/a.md", good))
	same(t, r.checkDocument("docs/a.md", "x\n`verbs/cgo/cq.go` and cq.go. [c](c/none)\n`verbs TestQP`; TestNot, FuzzNone\n`verbs/go`, *_safe.go; go test ./cgo, ./verbs/...\n"),
		"docs/a.md:2 names the file cq.go, which does not exist",
		"docs/a.md:2 names the file docs/c/none, which does not exist",
		"docs/a.md:2 names the file verbs/cgo/cq.go, which does not exist",
		"docs/a.md:3 names the test FuzzNone, which does not exist",
		"docs/a.md:3 names the test TestNot, which does not exist",
		"docs/a.md:3 names the test verbs TestQP, which does not exist",
		"docs/a.md:4 names the file *_safe.go, which does not exist",
		"docs/a.md:4 names the file cgo, which does not exist",
		"docs/a.md:4 names the file verbs/go, which does not exist",
	)
}

// section matches a reference to sections of a document: "ARCHITECTURE.md section 6c", "PROTOCOL.md, sections 8.2".
var section = regexp.MustCompile(`\b(ARCHITECTURE|PROTOCOL)\.md,?\s+(?:// |# )?sections?\s+(\d+(?:\.\d+)?[a-z]?)`)

// checkSections returns one line for each section that a text refers to and that the document does not have. "3.6" may be a
// heading, or item 6 of the list in section 3.
func checkSections(name, text string, documents map[string]string) (complaints []string) {
	for _, m := range section.FindAllStringSubmatch(text, -1) {
		if doc := m[1] + ".md"; !hasSection(documents[doc], m[2]) {
			complaints = append(complaints, fmt.Sprintf("%s refers to section %s of %s, which does not exist", name, m[2], doc))
		}
	}
	return complaints
}

func hasSection(text, section string) bool {
	heading := func(number string) int {
		at := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(number) + `\.? `).FindStringIndex(text)
		if at == nil {
			return -1
		}
		return at[1]
	}
	if heading(section) >= 0 {
		return true
	}
	number, item, ok := strings.Cut(section, ".")
	start := heading(number)
	if !ok || start < 0 {
		return false
	}
	body, _, _ := strings.Cut(text[start:], "\n## ")
	return regexp.MustCompile(`(?m)^ *` + item + `\. `).MatchString(body)
}

func TestReferencesToSections(t *testing.T) {
	paths, documents := all(t)
	for _, p := range paths {
		if !strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, ".md") && !strings.HasSuffix(p, ".proto") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), p))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range checkSections(p, string(text), documents) {
			if p != "internal/archtest/documents_test.go" {
				t.Error(c)
			}
		}
	}
}

func TestCheckSections(t *testing.T) {
	documents := map[string]string{
		"ARCHITECTURE.md": "# A\n\n## 3. B\n 1. x\n 2. y\n\n## 6c. C\n 7. z\n",
		"PROTOCOL.md":     "# P\n\n## 8. Q\n\n### 8.1 R\n",
	}
	same(t, checkSections("x.go", "(ARCHITECTURE.md section 3, ARCHITECTURE.md sections 3.2 and 4; ARCHITECTURE.md section 6c; PROTOCOL.md,\n// section 8.1)", documents))
	same(t, checkSections("x.go", "ARCHITECTURE.md section 3.7, ARCHITECTURE.md section 6d, PROTOCOL.md section 9", documents),
		"x.go refers to section 3.7 of ARCHITECTURE.md, which does not exist",
		"x.go refers to section 6d of ARCHITECTURE.md, which does not exist",
		"x.go refers to section 9 of PROTOCOL.md, which does not exist",
	)
}
