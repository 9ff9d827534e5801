//go:build linux && cgo

package libibverbs_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// The package is built again, and its tests of unavailability pass and say what is the matter.
func TestBuildsWithoutCgoAndWithoutHeaders(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command to build with: ", err)
	}
	for _, c := range []struct{ name, env, words string }{
		{"no cgo", "CGO_ENABLED=0", "this program was built without cgo (build it with"},
		{"no headers", "CGO_CPPFLAGS=-DSHIM_NO_HEADERS", withoutHeader},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run=^TestUnavailable", ".")
			cmd.Env = append(os.Environ(), c.env)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.words) || !strings.Contains(string(out), "--- PASS: TestUnavailableIsAnAnswer") {
				t.Errorf("%v, and the output has not %q:\n%s", err, c.words, out)
			}
		})
	}
}

// A build that demands the header does not do without it.
func TestHeaderIsDemanded(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command to build with: ", err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", ".")
	cmd.Env = append(os.Environ(), "CGO_CPPFLAGS=-DSHIM_NO_HEADERS -DSHIM_HEADERS")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is no infiniband/verbs.h: install libibverbs-dev") {
		t.Errorf("%v, and the output is:\n%s", err, out)
	}
}

// withoutHeader is the reason of a build that found no header: then no library is looked for.
const withoutHeader = "this program was built without the header infiniband/verbs.h (install libibverbs-dev"

func TestUnavailableNamesWhatToInstall(t *testing.T) {
	type reason struct{ library, words string }
	reasons := []reason{
		{"/nonexistent/libibverbs.so.1", "cannot be opened: /nonexistent/libibverbs.so.1"},
		{"/nonexistent/libibverbs.so.1", "install libibverbs1 and ibverbs-providers"},
		{"libc.so.6", "has no function ibv_get_device_list@IBVERBS_1.1 (install a current rdma-core)"},
	}
	if !libibverbs.HasHeader() {
		reasons = []reason{{"/nonexistent/libibverbs.so.1", withoutHeader}}
	}
	for _, c := range reasons {
		_, err := libibverbs.New(libibverbs.Options{Library: c.library}).Devices()
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("with %s: %v, which lacks %q", c.library, err, c.words)
		}
	}
}
