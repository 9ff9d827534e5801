//go:build ignore

// Command count-code counts the lines of product code in commits of this repository:
//
//	go run scripts/count-code.go COMMIT...
//
// A line counts when it holds code: blank lines and lines of comments do not. Tests, test
// support (as internal/archtest defines it), generated code and nested modules are left
// out. With two commits or more it prints how each directory differs between the first and
// the last.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: go run scripts/count-code.go COMMIT..."))
	}
	var counts []map[string]int
	for _, commit := range os.Args[1:] {
		count, err := countCommit(commit)
		if err != nil {
			fail(fmt.Errorf("counting %s: %w", commit, err))
		}
		counts = append(counts, count)
		fmt.Printf("%8d  %s\n", total(count), commit)
	}
	if len(counts) > 1 {
		printDifference(counts[0], counts[len(counts)-1])
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func total(count map[string]int) (n int) {
	for _, lines := range count {
		n += lines
	}
	return n
}

func printDifference(from, to map[string]int) {
	dirs := make(map[string]bool)
	for _, count := range []map[string]int{from, to} {
		for dir := range count {
			dirs[dir] = true
		}
	}
	var names []string
	for dir := range dirs {
		if from[dir] != to[dir] {
			names = append(names, dir)
		}
	}
	slices.Sort(names)
	for _, dir := range names {
		fmt.Printf("%+8d  %s (%d, then %d)\n", to[dir]-from[dir], dir, from[dir], to[dir])
	}
	fmt.Printf("%+8d  all\n", total(to)-total(from))
}

// countCommit returns the lines of each directory.
func countCommit(commit string) (map[string]int, error) {
	archive, err := exec.Command("git", "archive", commit).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("git archive: %s", bytes.TrimSpace(exit.Stderr))
		}
		return nil, err
	}
	files := make(map[string][]byte)
	var modules []string // directories of nested modules
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if dir, base := path.Split(h.Name); base == "go.mod" && dir != "" {
			modules = append(modules, dir)
		}
		if strings.HasSuffix(h.Name, ".go") && !strings.HasSuffix(h.Name, "_test.go") {
			if files[h.Name], err = io.ReadAll(r); err != nil {
				return nil, err
			}
		}
	}
	count := make(map[string]int)
	for name, text := range files {
		nested := slices.ContainsFunc(modules, func(dir string) bool { return strings.HasPrefix(name, dir) })
		if dir := path.Dir(name); !nested && !isTestSupport(dir) && !isLeftOut(text) {
			count[dir] += countLines(text)
		}
	}
	return count, nil
}

// isTestSupport is that of internal/archtest.
func isTestSupport(dir string) bool {
	return dir == "integration" || strings.HasPrefix(dir, "integration/") || dir == "internal/testreport" || strings.HasSuffix(dir, "test")
}

// isLeftOut reports whether a file is generated, or only run by hand.
func isLeftOut(text []byte) bool {
	head, _, _ := bytes.Cut(text, []byte("\npackage "))
	return bytes.Contains(head, []byte("// Code generated ")) || bytes.Contains(head, []byte("//go:build ignore"))
}

// countLines counts the lines on which there is a token.
func countLines(text []byte) (n int) {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0) // comments are skipped
	last := 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the scanner's own
		}
		first := file.Line(pos)
		end := first + strings.Count(literal, "\n")
		n += end - max(first, last+1) + 1
		last = max(last, end)
	}
}
