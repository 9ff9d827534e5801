package library

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/library/internal/capi"
)

// TestWhatIsWrongWithADirectory: a library that is absent, of another version or not loadable is an
// error that says what to do.
func TestWhatIsWrongWithADirectory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux has the library; the error says so")
		if err := check(t.TempDir()); err == nil || !strings.Contains(err.Error(), "needs Linux") {
			t.Error(err)
		}
		return
	}
	install := func(version string) string {
		packages := t.TempDir()
		dir := filepath.Join(packages, "tensorflow")
		for _, d := range []string{dir, filepath.Join(packages, "tensorflow_cpu-"+version+".dist-info")} {
			if err := os.Mkdir(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []string{capi.FrameworkFile, capi.RuntimeFile} {
			if err := os.WriteFile(filepath.Join(dir, f), []byte("no library"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for _, tt := range []struct{ name, dir, want string }{
		{"absent", t.TempDir(), "--tensorflow-library is the directory with libtensorflow_cc.so.2"},
		{"too old", install("2.12.1"), "is 2.12; the oldest that works is 2.13"},
		{"not loadable", install("2.21.0"), "open TensorFlow: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(Options{Directory: tt.dir, Go: noKernels{}})
			if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestFind: the library is that beside the python3 on PATH, and python runs nothing that is installed.
func TestFind(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux has the library")
		return
	}
	env := t.TempDir()
	dir := filepath.Join(env, "lib", "python3.99", "site-packages", "tensorflow")
	bin := filepath.Join(env, "bin")
	for _, d := range []string{dir, bin} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	python := "#!/bin/sh\necho \"$@\" >" + filepath.Join(env, "args") + "\necho /nowhere/bin/python3\necho /nowhere\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/bin:/usr/bin")
	if _, err := Find(); err == nil || !strings.Contains(err.Error(), "pip install tensorflow-cpu") {
		t.Errorf("without a library: %v", err)
	}
	for _, f := range []string{capi.FrameworkFile, capi.RuntimeFile} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Find()
	if err != nil || got != filepath.Join(bin, "..", "lib", "python3.99", "site-packages", "tensorflow") {
		t.Errorf("%q, %v", got, err)
	}
	args, err := os.ReadFile(filepath.Join(env, "args"))
	if err != nil || !strings.HasPrefix(string(args), "-I -S -c ") {
		t.Errorf("python3 %s, %v", args, err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(); err == nil || !strings.Contains(err.Error(), "no python3 on PATH") {
		t.Errorf("without python: %v", err)
	}
}
