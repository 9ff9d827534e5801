package tier

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Tag is the build tag of the tests that need the devices: without it they are not even compiled, so they are no skips elsewhere.
const Tag = "rxe"

// Entry is one package of the list.
type Entry struct {
	Package string   // as go test takes it: ./verbs/cgo
	Pattern string   // of test names, as go test -run takes it
	Args    []string // further arguments of the test binary
}

// ParseList reads the list, an entry a line:
//
//	# why this package
//	./package Pattern [-test.flag=value ...]
//
// Empty lines and those that begin with # are left out.
func ParseList(r io.Reader) ([]Entry, error) {
	var entries []Entry
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "./") || strings.HasPrefix(fields[1], "-") {
			return nil, fmt.Errorf("line %d: %q: a package that begins with ./ and a pattern of test names are needed", n, lines.Text())
		}
		entries = append(entries, Entry{Package: fields[0], Pattern: fields[1], Args: fields[2:]})
	}
	return entries, lines.Err()
}

// testArgs turns arguments of go test (-run X --count=5 -test.v) into those of a test binary.
func testArgs(args []string) []string {
	var out []string
	for _, a := range args {
		if name, ok := strings.CutPrefix(a, "-"); ok {
			a = "-test." + strings.TrimPrefix(strings.TrimPrefix(name, "-"), "test.")
		}
		out = append(out, a)
	}
	return out
}

// chooses says whether arguments of a test binary choose among the tests: then a package of which none is left is no mistake.
func chooses(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-test.run" || name == "-test.skip"
	})
}
