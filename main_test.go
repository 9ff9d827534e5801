package tryst_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(pullFrom); at != "" {
		pullForEver(at, os.Getenv(pullOver))
	}

	if os.Getenv("TRYST_EXAMPLE_PRODUCER") != "" { // the second process of Example_twoProcesses
		produce()
		return
	}
	goleak.VerifyTestMain(m)
}
