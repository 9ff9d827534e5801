package vm

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or one of the programs that the tests start: see runProgram.
func TestMain(m *testing.M) {
	if runProgram() {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
