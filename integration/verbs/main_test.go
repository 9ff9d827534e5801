//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// asNode is the environment variable that makes this binary a node. Its value is the settings.
const asNode = "TRYST_INTEGRATION_NODE"

// TestMain runs the tests, or a node.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(asNode); ok {
		runNode(text)
		return
	}
	if err := copyProgram(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(filepath.Dir(program))
		os.Exit(status)
	}))
}

// program is the path of a copy of this binary in the memory of the VM. Each start of the original
// would read all of it from the host, which takes seconds.
var program string

func copyProgram() error {
	dir, err := os.MkdirTemp("", "nodes")
	if err != nil {
		return err
	}
	program = filepath.Join(dir, "node")
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(program, b, 0o700)
}
