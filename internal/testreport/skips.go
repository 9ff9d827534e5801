package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// allowedSkip names a test that may be skipped, and the reason. Its string has the format of the report, so that a line of the
// report can be copied into the file.
type allowedSkip struct {
	pkg, test, reason string
}

func (s allowedSkip) String() string { return s.pkg + " " + s.test + ": " + s.reason }

// allowedBy reports whether the line a of the file permits the skip s: the package and the test are the same, and the reason has
// that of the line as its prefix. So a test that is skipped for another reason is refused.
func (s allowedSkip) allowedBy(a allowedSkip) bool {
	return s.pkg == a.pkg && s.test == a.test && strings.HasPrefix(s.reason, a.reason)
}

func readAllowedSkips(file string) ([]allowedSkip, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	allowed, err := parseAllowedSkips(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return allowed, nil
}

// parseAllowedSkips reads a list of permitted skips, one a line:
//
//	# why this is right on the machine that uses the list
//	example.org/module/package TestName/subtest: reason that the test gives
//
// Empty lines and lines that begin with # are ignored. A line without a reason is an error.
func parseAllowedSkips(r io.Reader) ([]allowedSkip, error) {
	var all []allowedSkip
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, _ := strings.Cut(line, ": ")
		pkg, test, _ := strings.Cut(name, " ")
		s := allowedSkip{pkg: pkg, test: strings.TrimSpace(test), reason: strings.TrimSpace(reason)}
		if s.test == "" || s.reason == "" {
			return nil, fmt.Errorf("line %d: want \"PACKAGE TEST: REASON\", have %q", n, line)
		}
		all = append(all, s)
	}
	return all, lines.Err()
}
