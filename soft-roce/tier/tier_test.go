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
		asked bool // for the VM
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
		asked := false
		got, err := Decide(t.Context(), mode, func() error { asked = true; return tt.vm })
		if got != tt.want || asked != tt.asked || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%q with %v: %v, error %v, asked %v; want %v, %q, %v", tt.value, tt.vm, got, err, asked, tt.want, tt.err, tt.asked)
		}
	}
	if _, err := ParseMode("docker"); err == nil || err.Error() != "TRYST_TEST_RXE=docker: must be auto, vm, native or off" {
		t.Errorf("docker: error %v", err)
	}
}

// That somebody has interrupted it, or that it took too long, is no reason to skip tests.
func TestAnInterruptIsNoSkip(t *testing.T) {
	for _, mode := range []Mode{Auto, VM} {
		ctx, cancel := context.WithCancelCause(t.Context())
		d, err := Decide(ctx, mode, func() error {
			cancel(errors.New("killed after 30m0s"))
			return errors.New("apt-get update: signal: killed")
		})
		if d != (Decision{}) || err == nil || err.Error() != "prepare the VM: killed after 30m0s" {
			t.Errorf("mode %q: %v, error %v", mode, d, err)
		}
	}
}

func TestParseList(t *testing.T) {
	got, err := ParseList(strings.NewReader("# why\n\n./verbs/cgo ^TestRxe\n  ./transport/verbs\tTestRxe|TestBoth -test.timeout=5m -x\n"))
	want := []Entry{{"./verbs/cgo", "^TestRxe", []string{}}, {"./transport/verbs", "TestRxe|TestBoth", []string{"-test.timeout=5m", "-x"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, error %v, want %v", got, err, want)
	}
	for _, wrong := range []string{"./verbs/cgo", "verbs/cgo TestRxe", "./verbs/cgo -test.v"} {
		if _, err := ParseList(strings.NewReader("# first\n" + wrong + "\n")); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%q: error %v", wrong, err)
		}
	}
}

func TestTestArgs(t *testing.T) {
	got := testArgs([]string{"-run", "TestRxeX", "--count=3", "-test.v", "--test.short", "-shuffle=on"})
	if want := []string{"-test.run", "TestRxeX", "-test.count=3", "-test.v", "-test.short", "-test.shuffle=on"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// However tests are chosen, that a package has none of them is no mistake in the list.
func TestChoiceOfTests(t *testing.T) {
	for _, arg := range []string{"-run", "-run=X", "--run", "--run=X", "-test.run=X", "--test.run", "-skip=X", "--skip", "-test.skip"} {
		if !chooses(testArgs([]string{"-count=1", arg, "X"})) {
			t.Errorf("%s chooses nothing", arg)
		}
	}
	for _, arg := range []string{"-count=1", "-runs=X", "run"} {
		if chooses(testArgs([]string{arg})) {
			t.Errorf("%s chooses", arg)
		}
	}
}

// TestEveryPackageOfTheTierIsListed: what is compiled for the tier alone and stands in no
// line of the list would never run.
func TestEveryPackageOfTheTierIsListed(t *testing.T) {
	root := filepath.Join("..", "..")
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
			t.Errorf("%s is of the tier, and soft-roce/rxe-tests has no line for %s", path, pkg)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d files of the tier, %v", found, err)
	}
}
