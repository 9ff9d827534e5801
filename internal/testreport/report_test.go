package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each case is a package as a user could write it: run for real, so that the test also shows that the events of this Go
// version are understood.
func TestRun(t *testing.T) {
	const head = "package p\n\nimport (\n\"os\"\n\"testing\"\n\"time\"\n)\n\nvar _ = os.Exit\nvar _ time.Duration\n\n"
	tests := []struct {
		name   string
		source string
		allow  []string // a file each
		budget time.Duration
		ok     bool
		want   []string
		not    []string
	}{{
		name:   "passes",
		source: "func TestA(t *testing.T) { t.Log(\"quiet\") }\nfunc TestB(t *testing.T) { t.Run(\"x\", func(*testing.T) {}); t.Run(\"y\", func(*testing.T) {}) }",
		ok:     true,
		want:   []string{"ok  \tp\t", "3 passed, 0 failed, 0 skipped\n"},
		not:    []string{"quiet"},
	}, {
		name:   "fails in a subtest",
		source: "func TestA(t *testing.T) { t.Log(\"from the parent\"); t.Run(\"x\", func(t *testing.T) { t.Error(\"from the subtest\") }) }",
		want:   []string{"from the parent", "from the subtest", "FAIL\tp\t", "0 passed, 1 failed, 0 skipped\n"},
	}, {
		name:   "fails after good subtests",
		source: "func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) {}); t.Error(\"late\") }",
		want:   []string{"late", "1 passed, 1 failed, 0 skipped\n"},
	}, {
		name:   "exits under a test",
		source: "func TestA(*testing.T) { os.Exit(3) }",
		want:   []string{"TestA did not finish", "0 passed, 1 failed, 0 skipped\n"},
	}, {
		name:   "exits with 0 under a test",
		source: "func TestA(*testing.T) { os.Exit(0) }",
		want:   []string{"0 passed, 1 failed, 0 skipped\n"},
	}, {
		name:   "panics in a goroutine",
		source: "func TestA(*testing.T) { go func() { panic(\"on purpose\") }(); select {} }",
		want:   []string{"panic: on purpose", "0 passed, 1 failed, 0 skipped\n"},
	}, {
		name:   "runs out of time",
		source: "func TestA(*testing.T) { time.Sleep(time.Hour) }",
		want:   []string{"test timed out after", "0 passed, 1 failed, 0 skipped\n"},
	}, {
		name:   "fails in TestMain",
		source: "func TestMain(m *testing.M) { m.Run(); println(\"leaked\"); os.Exit(1) }\nfunc TestA(*testing.T) {}",
		want:   []string{"leaked", "failed outside their tests: 1\n", "1 passed, 0 failed, 0 skipped\n"},
	}, {
		name:   "does not build",
		source: "func TestA(*testing.T) { nothing() }",
		want:   []string{"undefined: nothing", "[build failed]", "no test ran", "0 passed, 0 failed, 0 skipped\n"},
	}, {
		name: "has no test",
		want: []string{"no test ran", "0 passed, 0 failed, 0 skipped\n"},
	}, {
		name:   "skips",
		source: "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Log(\"before\"); t.Skip(\"no device\\nof this kind\") }",
		ok:     true,
		want:   []string{"skip p TestB: no device of this kind\n", "1 passed, 0 failed, 1 skipped\n"},
	}, {
		name:   "skips without a reason",
		source: "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.SkipNow() }",
		ok:     true,
		want:   []string{"skip p TestB: no reason given\n"},
	}, {
		name:   "skips everything",
		source: "func TestA(t *testing.T) { t.Skip(\"no device\") }",
		want:   []string{"no test ran", "0 passed, 0 failed, 1 skipped\n"},
	}, {
		name:   "skips what is allowed",
		source: "func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) {}); t.Run(\"y\", func(t *testing.T) { t.Skip(\"no device mlx5_0\") }) }",
		allow:  []string{"p TestA/z: no device\n", "# No RDMA hardware here.\np TestA/y: no device\n"},
		ok:     true,
		want:   []string{"skip p TestA/y: no device mlx5_0\n", "1 passed, 0 failed, 1 skipped\n"},
	}, {
		name:   "skips what is not allowed",
		source: "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Skip(\"too slow\") }",
		allow:  []string{"p TestA: too slow\np TestB: no device\nq TestB: too slow\n"},
		want:   []string{"SKIP NOT ALLOWED: p TestB: too slow\n", "skipped that must run here: 1\n", "1 passed, 0 failed, 1 skipped\n"},
	}, {
		name:   "takes longer than its budget",
		source: "func TestA(*testing.T) { time.Sleep(20 * time.Millisecond) }",
		budget: 10 * time.Millisecond,
		ok:     true,
		want:   []string{"longer than 10ms: p took ", "1 passed, 0 failed, 0 skipped\n"},
	}, {
		name:   "keeps to its budget",
		source: "func TestA(*testing.T) {}",
		budget: time.Hour,
		ok:     true,
		not:    []string{"longer"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module p\n\ngo 1.26\n")
			write(t, filepath.Join(dir, "p.go"), "package p\n")
			write(t, filepath.Join(dir, "p_test.go"), head+tt.source)
			o := options{budget: tt.budget}
			for i, text := range tt.allow {
				file := filepath.Join(dir, fmt.Sprint("allowed", i))
				write(t, file, text)
				o.allowSkips = append(o.allowSkips, file)
			}
			timeout := "-timeout=2m"
			if tt.name == "runs out of time" {
				timeout = "-timeout=3s"
			}
			var out strings.Builder
			ok, err := run(t.Context(), o, []string{"go", "test", "-C", dir, "-json", "-vet=off", "-count=1", timeout, "./..."}, &out, &out)
			if err != nil {
				t.Fatal(err)
			}
			if ok != tt.ok {
				t.Errorf("ok = %v, want %v", ok, tt.ok)
			}
			for _, s := range tt.want {
				if !strings.Contains(out.String(), s) {
					t.Errorf("report lacks %q", s)
				}
			}
			for _, s := range tt.not {
				if strings.Contains(out.String(), s) {
					t.Errorf("report holds %q", s)
				}
			}
			if t.Failed() {
				t.Logf("report:\n%s", &out)
			}
		})
	}
}

// TestReportsTheLoad: beside each failure, and at the start and the end of the run.
func TestReportsTheLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "loadavg")
	write(t, file, "1.50 1.00 0.50 1/300 4711\n")
	write(t, filepath.Join(dir, "go.mod"), "module p\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "p_test.go"), fmt.Sprintf(`package p

import (
	"os"
	"testing"
)

func TestA(t *testing.T) {
	if err := os.WriteFile(%q, []byte("9.25 1.00 0.50 1/300 4711\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Run("x", func(t *testing.T) { t.Error("on purpose") })
}

func TestB(*testing.T) { os.Exit(1) }
`, file))
	command := []string{"go", "test", "-C", dir, "-json", "-vet=off", "-count=1", "./..."}
	var out strings.Builder
	if _, err := run(t.Context(), options{loadFile: file}, command, &out, &out); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`--- FAIL: TestA/x \([0-9.]+s\) \(load average 9\.25\)\n`).MatchString(out.String()) {
		t.Error("report lacks the load beside the failure of TestA/x")
	}
	for _, want := range []string{
		"--- FAIL: TestB did not finish (load average 9.25)\n",
		"s (load average 9.25)\n", // FAIL, the package and its time
		"load average: 1.50 at the start, 9.25 at the end; processors: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q", want)
		}
	}
	if n := strings.Count(out.String(), "9.25"); n != 5 { // TestA, too
		t.Errorf("the load is reported %d times", n)
	}
	if t.Failed() {
		t.Logf("report:\n%s", &out)
	}

	out.Reset()
	if _, err := run(t.Context(), options{loadFile: filepath.Join(dir, "none")}, command, &out, &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "load average") {
		t.Errorf("a system without a load average reports one:\n%s", &out)
	}
}

// An interrupted run ends, is no success, and leaves no test binary behind.
func TestInterrupt(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module p\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "p_test.go"), fmt.Sprintf(`package p

import (
	"net"
	"testing"
)

func TestA(t *testing.T) {
	c, err := net.Dial("tcp", %q)
	if err != nil {
		t.Fatal(err)
	}
	c.Read(make([]byte, 1)) // for ever
}
`, listener.Addr()))

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out strings.Builder
	type result struct {
		ok  bool
		err error
	}
	ended := make(chan result, 1)
	go func() {
		ok, err := run(ctx, options{}, []string{"go", "test", "-C", dir, "-json", "-vet=off", "-count=1", "./..."}, &out, &out)
		listener.Close() // It may have ended before it reached the test.
		ended <- result{ok, err}
	}()

	inTest, err := listener.Accept()
	if err != nil {
		t.Fatalf("%v: the test did not start:\n%s", err, &out)
	}
	defer inTest.Close()
	interrupt()
	if r := <-ended; r.ok {
		t.Errorf("an interrupted run is ok, %v", r.err)
	}
	// The connection ends with the test binary.
	if err := inTest.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := inTest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the test binary still runs: %v", err)
	}
	if want := "0 passed, 1 failed, 0 skipped\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("report does not end with %q:\n%s", want, &out)
	}
}

func TestAllowFileErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "allowed")
	var out strings.Builder
	if _, err := run(t.Context(), options{allowSkips: []string{file}}, []string{"go", "version"}, &out, &out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, line := range []string{"p TestA", "p: no test", "p TestA:  "} {
		write(t, file, "# comment\n"+line+"\n")
		if _, err := run(t.Context(), options{allowSkips: []string{file}}, []string{"go", "version"}, &out, &out); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v, want an error that names line 2", line, err)
		}
	}
	if out.Len() > 0 {
		t.Errorf("tests ran: %s", &out)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
