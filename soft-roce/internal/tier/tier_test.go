package tier

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDecide(t *testing.T) {
	impossible := errors.New("no QEMU")
	for _, tt := range []struct {
		value string
		vm    error
		want  Decision
		err   string
		tried bool // whether prepareVM is called
	}{
		{"", nil, Decision{Where: InVM}, "", true},
		{"auto", nil, Decision{Where: InVM}, "", true},
		{"auto", impossible, Decision{Nowhere, "no QEMU"}, "", true},
		{"vm", nil, Decision{Where: InVM}, "", true},
		{"vm", impossible, Decision{}, "TRYST_TEST_RXE=vm: no QEMU", true},
		{"native", impossible, Decision{Where: Here}, "", false},
		{"off", nil, Decision{Nowhere, "TRYST_TEST_RXE=off"}, "", false},
	} {
		mode, err := ParseMode(tt.value)
		if err != nil {
			t.Fatal(err)
		}
		tried := false
		got, err := Decide(t.Context(), mode, func() error { tried = true; return tt.vm })
		if got != tt.want || tried != tt.tried || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("mode %q, VM error %v: got %v, error %v, prepareVM called %v; want %v, %q, %v", tt.value, tt.vm, got, err, tried, tt.want, tt.err, tt.tried)
		}
	}
	if _, err := ParseMode("docker"); err == nil || err.Error() != "TRYST_TEST_RXE=docker: must be auto, vm, native or off" {
		t.Errorf("docker: error %v, want that it is no mode", err)
	}
}

// When the context ends while the VM is prepared, Decide returns an error. The tests must not
// count as skipped then.
func TestDecideDoesNotSkipWhenInterrupted(t *testing.T) {
	for _, mode := range []Mode{Auto, VM} {
		ctx, cancel := context.WithCancelCause(t.Context())
		d, err := Decide(ctx, mode, func() error {
			cancel(errors.New("killed after 30m0s"))
			return errors.New("apt-get update: signal: killed")
		})
		if d != (Decision{}) || err == nil || err.Error() != "prepare the VM: killed after 30m0s" {
			t.Errorf("mode %q: got %v, error %v, want no decision and the cause of the context", mode, d, err)
		}
	}
}

func TestParseList(t *testing.T) {
	got, err := ParseList(strings.NewReader("# why\n\n./verbs/cgo ^TestRxe\n  ./transport/verbs\tTestRxe|TestBoth -test.timeout=5m -x\n"))
	want := []Entry{{"./verbs/cgo", "^TestRxe", []string{}}, {"./transport/verbs", "TestRxe|TestBoth", []string{"-test.timeout=5m", "-x"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, error %v, want %v", got, err, want)
	}
	for _, wrong := range []string{"./verbs/cgo", "verbs/cgo TestRxe", "./verbs/cgo -test.v"} {
		if _, err := ParseList(strings.NewReader("# first\n" + wrong + "\n")); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%q: error %v, want one for line 2", wrong, err)
		}
	}
}

func TestTestArgs(t *testing.T) {
	got := testArgs([]string{"-run", "TestRxeX", "--count=3", "-test.v", "--test.short", "-shuffle=on"})
	if want := []string{"-test.run", "TestRxeX", "-test.count=3", "-test.v", "-test.short", "-test.shuffle=on"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSelectsTests(t *testing.T) {
	for _, arg := range []string{"-run", "-run=X", "--run", "--run=X", "-test.run=X", "--test.run", "-skip=X", "--skip", "-test.skip"} {
		if !selectsTests(testArgs([]string{"-count=1", arg, "X"})) {
			t.Errorf("%s: got false, want true", arg)
		}
	}
	for _, arg := range []string{"-count=1", "-runs=X", "run"} {
		if selectsTests(testArgs([]string{arg})) {
			t.Errorf("%s: got true, want false", arg)
		}
	}
}

// TestEveryPackageWithTagRxeIsListed: tests with the build tag rxe run only if the list has their
// package.
func TestEveryPackageWithTagRxeIsListed(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	f, err := os.Open(filepath.Join(root, "soft-roce", "rxe-tests"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries, err := ParseList(f)
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, e := range entries {
		listed[e.Package] = true
	}
	found := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		first, _, _ := strings.Cut(string(b), "\n")
		if err != nil || !slices.Contains(strings.Fields(first), Tag) || !strings.HasPrefix(first, "//go:build") {
			return err
		}
		found++
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if pkg := "./" + filepath.ToSlash(dir); err == nil && !listed[pkg] {
			t.Errorf("%s has the build tag %s, and soft-roce/rxe-tests has no line for %s", path, Tag, pkg)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("found %d files with the build tag %s, error %v", found, Tag, err)
	}
}
