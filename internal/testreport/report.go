package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; the fields are those of "go doc test2json" and "go help buildjson".
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds; of a test or package that has ended
}

// outcome is the result of a test. A test that did not end, because the process exited, panicked or timed out, stays unfinished
// and counts as failed.
type outcome string

const (
	unfinished outcome = ""
	passed     outcome = "pass"
	failed     outcome = "fail"
	skipped    outcome = "skip"
)

// report collects the events of a go test run, and writes the report of each package when it ends.
type report struct {
	out         io.Writer
	allowed     []allowedSkip
	refuseSkips bool
	budget      time.Duration // of a package; 0: none
	loadFile    string        // see [load]

	packages map[string]*pkg // those that have not ended
	count    struct{ passed, failed, skipped int }
	broken   int      // packages that failed without a failed test: build, TestMain, leak check, timeout
	refused  int      // skips that no line of allowed permits
	slow     []string // packages over the budget
	started  string   // the load when the run began
}

// pkg has the events of a package that has not ended.
type pkg struct {
	output []string // printed by the package itself, outside all tests
	tests  map[string]*test
}

type test struct {
	outcome outcome
	output  []string
}

// newReport begins a report. loadFile is /proc/loadavg, except in tests.
func newReport(out io.Writer, loadFile string) *report {
	return &report{out: out, loadFile: loadFile, started: load(loadFile), packages: map[string]*pkg{}}
}

// line takes one line of the stream.
func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		_, _ = r.out.Write(line)
		return
	}
	if e.Action == "build-output" {
		_, _ = io.WriteString(r.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	if e.Action == "output" && failLine.MatchString(e.Output) {
		e.Output = strings.TrimSuffix(e.Output, "\n") + r.besideFail() + "\n"
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			p.output = append(p.output, e.Output)
		case "pass", "fail", "skip":
			if took := time.Duration(e.Elapsed * float64(time.Second)); r.budget > 0 && took > r.budget {
				r.slow = append(r.slow, fmt.Sprintf("%s took %.0f s", e.Package, took.Seconds()))
			}
			r.end(e.Package, p, outcome(e.Action))
		}
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.outcome = outcome(e.Action)
		if t.outcome == passed {
			t.output = nil // Only failed tests show their output.
		}
	}
}

// end counts, prints and removes a package.
func (r *report) end(name string, p *pkg, result outcome) {
	delete(r.packages, name)
	failures := 0
	for _, testName := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[testName]
		switch {
		case t.outcome == skipped:
			r.skip(name, testName, t)
		case p.hasSubtests(testName) && (t.outcome == passed || p.subtestFailed(testName)):
			// Its subtests are counted; its own output is still shown with a failure.
			if t.outcome != passed {
				r.print(t.output)
			}
		case t.outcome == passed:
			r.count.passed++
		default:
			failures++
			r.print(t.output)
			if t.outcome == unfinished {
				fmt.Fprintf(r.out, "--- FAIL: %s did not finish%s\n", testName, r.besideFail())
			}
		}
	}
	r.count.failed += failures
	if result != failed {
		// Only the line of the go tool; other output of a passing package is dropped.
		r.print(slices.DeleteFunc(p.output, func(s string) bool { return !strings.HasPrefix(s, "ok ") }))
		return
	}
	if failures == 0 {
		r.broken++
	}
	r.print(p.output)
}

// skip counts and prints a skipped test.
func (r *report) skip(pkgName, testName string, t *test) {
	r.count.skipped++
	s := allowedSkip{pkg: pkgName, test: testName, reason: skipReason(t.output)}
	word := "skip"
	if r.refuseSkips && !slices.ContainsFunc(r.allowed, s.allowedBy) {
		r.refused++
		word = "SKIP NOT ALLOWED:"
	}
	fmt.Fprintln(r.out, word, s)
}

// close prints the last lines and reports whether the whole run passed. It counts packages without an end event (go test was
// interrupted) with the events that they have.
func (r *report) close() bool {
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		r.end(name, r.packages[name], failed)
	}
	for _, s := range r.slow {
		fmt.Fprintf(r.out, "longer than %v: %s\n", r.budget, s)
	}
	if r.broken > 0 {
		fmt.Fprintf(r.out, "packages that failed outside their tests: %d\n", r.broken)
	}
	if r.refused > 0 {
		fmt.Fprintf(r.out, "tests skipped that must run here: %d\n", r.refused)
	}
	if ended := load(r.loadFile); r.started != "" && ended != "" {
		fmt.Fprintf(r.out, "load average: %s at the start, %s at the end; processors: %d\n", r.started, ended, runtime.NumCPU())
	}
	ran := r.count.passed + r.count.failed
	if ran == 0 {
		fmt.Fprintln(r.out, "no test ran")
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.count.passed, r.count.failed, r.count.skipped)
	return ran > 0 && r.count.failed == 0 && r.broken == 0 && r.refused == 0
}

func (r *report) print(lines []string) {
	for _, s := range lines {
		_, _ = io.WriteString(r.out, s)
	}
}

func (p *pkg) hasSubtests(name string) bool {
	for other := range p.tests {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

func (p *pkg) subtestFailed(name string) bool {
	for other, t := range p.tests {
		if strings.HasPrefix(other, name+"/") && (t.outcome == failed || t.outcome == unfinished) {
			return true
		}
	}
	return false
}

// logLine is the first line of what a test logs, as package testing writes it: file.go:12: text.
var logLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// skipReason is the last thing that a skipped test logged, in one line: the argument of t.Skip.
func skipReason(output []string) string {
	var reason []string
	for _, s := range output {
		if m := logLine.FindStringSubmatch(s); m != nil {
			reason = []string{m[1]}
		} else if len(reason) > 0 && strings.HasPrefix(s, "        ") {
			reason = append(reason, strings.TrimSpace(s))
		}
	}
	return cmp.Or(strings.Join(reason, " "), "no reason given")
}
