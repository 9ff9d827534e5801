package command

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or, for a test that wants a process of its own, the
// command itself.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		limitFiles(os.Getenv(fileLimit))
		os.Exit(Main(Options{}))
	}
	goleak.VerifyTestMain(m)
}

// Variables that tell this binary to be the command, and how large the files
// that it writes may be.
const (
	asCommand = "TRYST_TEST_MAIN"
	fileLimit = "TRYST_TEST_FILE_LIMIT"
)
