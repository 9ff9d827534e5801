package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/library/internal/capi"
)

// Find returns the directory of the TensorFlow library of the Python on PATH. Nothing is imported:
// Python only says where its packages are, without running those that are installed for its start.
func Find() (string, error) {
	var tried []string
	for _, python := range []string{"python3", "python"} {
		path, err := exec.LookPath(python)
		if err != nil {
			continue
		}
		for _, packages := range packagesOf(path) {
			dir := filepath.Join(packages, "tensorflow")
			if check(dir) == nil {
				return dir, nil
			}
			if !slices.Contains(tried, dir) {
				tried = append(tried, dir)
			}
		}
	}
	if len(tried) == 0 {
		return "", status.New(status.FailedPrecondition, "no TensorFlow library: no python3 on PATH says where it would be; name the directory of "+
			capi.RuntimeFile+" with --tensorflow-library, or install it: pip install tensorflow-cpu")
	}
	return "", status.Errorf(status.FailedPrecondition, "no TensorFlow library in %q; name the directory of %s with --tensorflow-library, or install it: pip install tensorflow-cpu",
		tried, capi.RuntimeFile)
}

// packagesOf returns the package directories of a python: those of a virtual environment, which -S
// leaves out, are beside it.
func packagesOf(python string) (dirs []string) {
	out, err := exec.Command(python, "-I", "-S", "-c", `import sys, sysconfig; print(sys.executable); print(sysconfig.get_path("platlib"))`).Output()
	if err != nil {
		return nil
	}
	executable, packages, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	for _, path := range []string{python, executable} {
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "..", "lib", "python3.*", "site-packages"))
		dirs = append(dirs, beside...)
	}
	return append(dirs, packages)
}

// oldest is the oldest TensorFlow that is tested.
var oldest = [2]int{2, 13}

// distribution matches the directory that pip writes beside a package.
var distribution = regexp.MustCompile(`^tensorflow(?:_cpu)?-(\d+)\.(\d+)\.`)

// check says why a directory cannot have the library, without opening it. Where pip has installed
// it, the version is known too.
func check(dir string) error {
	if runtime.GOOS != "linux" {
		return status.Errorf(status.FailedPrecondition, "the kernel set tensorflow needs Linux; this is %s", runtime.GOOS)
	}
	for _, name := range []string{capi.FrameworkFile, capi.RuntimeFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return status.Errorf(status.FailedPrecondition, "no TensorFlow library in %s: %v; --tensorflow-library is the directory with %s and %s",
				dir, err, capi.RuntimeFile, capi.FrameworkFile)
		}
	}
	entries, _ := os.ReadDir(filepath.Dir(dir))
	for _, e := range entries {
		m := distribution.FindStringSubmatch(e.Name())
		if m == nil || filepath.Base(dir) != "tensorflow" {
			continue
		}
		if v := [2]int{number(m[1]), number(m[2])}; slices.Compare(v[:], oldest[:]) < 0 {
			return status.Errorf(status.FailedPrecondition, "TensorFlow in %s is %d.%d; the oldest that works is %d.%d", dir, v[0], v[1], oldest[0], oldest[1])
		}
	}
	return nil
}

// number reads digits.
func number(digits string) (n int) {
	for _, d := range digits {
		n = min(n*10+int(d-'0'), 1<<20)
	}
	return n
}
