//go:build rxe && linux

package verbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// asNode is the variable that makes this binary a node, with its settings. A node
// starts no process, and what starts one sets it.
const asNode = "TRYST_INTEGRATION_NODE"

// TestMain runs the tests, or is one of the processes between which they are.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(asNode); ok {
		beNode(text)
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

// program is a copy of this binary. It lies in the memory of the VM: the original
// is read through the host at each start, all of it, which takes seconds.
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
