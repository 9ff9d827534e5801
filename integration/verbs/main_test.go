//go:build rxe && linux

package verbs_test

import (
	"os"
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
	goleak.VerifyTestMain(m)
}
