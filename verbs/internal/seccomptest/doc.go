// Package seccomptest runs tests under the seccomp filter that container engines install, as a
// container without capabilities has it. The filter is made from the default profile of
// containers-common; Docker's has the same form.
//
// A package calls Enter first in its TestMain. A test of it starts its own binary again with
// Variable set to the path of a profile (Environment). Enter then installs the filter and executes the
// binary once more, so that all of it runs under the filter from the start, Go's runtime too.
package seccomptest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Variable names the profile under which a process shall run. Its value is a path.
const Variable = "TRYST_TEST_SECCOMP"

// entered is Variable's other value: the filter is on.
const entered = "entered"

// Profile returns the path of the default profile of container engines: the installed one, or the
// one that scripts/seccomp-profile.sh put into build/. It skips the test where there is none.
func Profile(t testing.TB) string {
	t.Helper()
	paths := []string{"/usr/share/containers/seccomp.json"}
	if root, err := moduleRoot(); err == nil {
		paths = append(paths, filepath.Join(root, "build", "containers-common", "usr", "share", "containers", "seccomp.json"))
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("no seccomp profile of containers is installed: run scripts/seccomp-profile.sh")
	return ""
}

// Environment returns the environment of a process that shall run under a profile.
func Environment(profile string) []string {
	return append(os.Environ(), Variable+"="+profile) //nolint:forbidigo // the environment of a test
}

// moduleRoot returns the directory of go.mod above the working directory, which is the directory of
// the package in a test.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fs.ErrNotExist
		}
		dir = up
	}
}
