package tier

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Tag is the build tag of the tests that need the devices. Without it they are not compiled, so
// other runs do not report them as skipped.
const Tag = "rxe"

// Entry is one package of the list.
type Entry struct {
	Package string   // as for go test: ./verbs/cgo
	Pattern string   // of test names, as for go test -run
	Args    []string // further arguments of the test binary
}

// ParseList parses the list, one entry a line:
//
//	# why this package
//	./package Pattern [-test.flag=value ...]
//
// Empty lines and lines that begin with # are ignored.
func ParseList(r io.Reader) ([]Entry, error) {
	var entries []Entry
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "./") || strings.HasPrefix(fields[1], "-") {
			return nil, fmt.Errorf("line %d: %q: must have a package that begins with ./ and a pattern of test names", n, lines.Text())
		}
		entries = append(entries, Entry{Package: fields[0], Pattern: fields[1], Args: fields[2:]})
	}
	return entries, lines.Err()
}

// testArgs converts arguments of go test (-run X --count=5 -test.v) to those of a test binary.
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

// selectsTests reports whether arguments of a test binary select tests. Then a package without a
// selected test is no error.
func selectsTests(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-test.run" || name == "-test.skip"
	})
}
