package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The error for an unknown package in -pkg has the message of the go command.
func TestUnknownPackage(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.26\n", "tests": "./p TestRxe\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status, err := run(t.Context(), []string{"where", "-list", "tests", "-pkg", "./typo"})
	if status != failed || err == nil || !strings.Contains(err.Error(), "go list ./typo: exit status 1\n") || !strings.Contains(err.Error(), "directory not found") {
		t.Errorf("./typo: status %d, error %v, want %d and the error of go list", status, err, failed)
	}
}

// Invalid arguments are reported before anything is created.
func TestInvalidArguments(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("tests", []byte("nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want string
	}{
		{"", "no command given"},
		{"start", `unknown command "start": use vm, where, missing, test, up, down or list`},
		{"vm -accel hvf -- true", `accelerator "hvf": must be auto, kvm or tcg`},
		{"where -list none", "open none: no such file"},
		{"where -list tests", "tests, line 1: "},
		{"test -vms 0 -list tests", "-vms 0 (TRYST_VMS): must be 1 to 8"},
		{"up rxe0", `"rxe0": must be NAME=NETDEV`},
		{"up rxe0=a/b", `network interface "a/b"`},
	} {
		status, err := run(t.Context(), strings.Fields(tt.args))
		if status != failed || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("soft-roce %s: status %d, error %v, want %d and %q", tt.args, status, err, failed, tt.want)
		}
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v (%v), want only the file tests", left, err)
	}
}
