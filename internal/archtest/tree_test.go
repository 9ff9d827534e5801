//go:build !race

package archtest

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// module is the path in go.mod.
const module = "github.com/tryst-rdma/tryst"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// goFile is one Go file of the module. Its path is relative to the module's root, with slashes.
type goFile struct {
	path string
	file *ast.File
	set  *token.FileSet
}

// dir is the package's path below the module, "." for its root.
func (f goFile) dir() string { return path.Dir(f.path) }

func (f goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f goFile) isGenerated() bool { return ast.IsGenerated(f.file) }

// lines returns how many line breaks of the file are between two positions.
func (f goFile) lines(from, to token.Pos) int {
	return f.set.Position(to).Line - f.set.Position(from).Line
}

// imports lists the import paths of the file, unquoted.
func (f goFile) imports() []string {
	var paths []string
	for _, spec := range f.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // The parser has checked it.
		paths = append(paths, p)
	}
	return paths
}

// root is the module's directory: two above this package.
func root(t *testing.T) string {
	t.Helper()
	dir, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func findRoot() (string, error) {
	dir, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	if !bytes.HasPrefix(mod, []byte("module "+module+"\n")) {
		return "", fmt.Errorf("%s/go.mod is not that of %s", dir, module)
	}
	return dir, nil
}

// tree returns all Go files of the module, parsed. No test changes them.
func tree(t *testing.T) []goFile {
	t.Helper()
	files, err := parsedTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file found")
	}
	return files
}

// parsedTree is parseTree, once for all tests.
var parsedTree = sync.OnceValues(parseTree)

// parseTree parses all Go files of the module. It skips nested modules, testdata, build/, the directories that the go tool ignores,
// and files with the build constraint "ignore".
func parseTree() (files []goFile, err error) {
	top, err := findRoot()
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == "." {
				return nil
			}
			if base := d.Name(); base[0] == '.' || base[0] == '_' || base == "testdata" || rel == "build" {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if base := d.Name(); !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_' {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if ignored(text) {
			return nil
		}
		s, err := parse(filepath.ToSlash(rel), text)
		if err != nil {
			return err
		}
		files = append(files, s)
		return nil
	})
	return files, err
}

// parse parses one file.
func parse(name string, text []byte) (goFile, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return goFile{name, f, set}, err
}

// ignored reports whether the file's build constraint is "ignore".
func ignored(text []byte) bool {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if constraint.IsGoBuild(line) {
			x, err := constraint.Parse(line)
			return err == nil && x.String() == "ignore"
		}
		if strings.HasPrefix(line, "package ") {
			break
		}
	}
	return false
}

// made parses files that a test of a check made up, given as path and text in turn.
func made(t *testing.T, pathsAndTexts ...string) []goFile {
	t.Helper()
	var files []goFile
	for i := 0; i < len(pathsAndTexts); i += 2 {
		s, err := parse(pathsAndTexts[i], []byte(pathsAndTexts[i+1]))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, s)
	}
	return files
}

// same fails the test unless the complaints are exactly the wanted ones, in that order.
func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("complaints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i, w := range want {
		if got[i] != w {
			t.Errorf("complaint %d:\n%s\nwant:\n%s", i, got[i], w)
		}
	}
}
