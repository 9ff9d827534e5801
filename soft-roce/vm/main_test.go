package vm

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also plays the other programs of these tests: see the functions that it calls.
func TestMain(m *testing.M) {
	if played() {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
