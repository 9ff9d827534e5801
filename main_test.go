package tryst_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(pullFrom); at != "" {
		pullForEver(at, os.Getenv(pullRoute))
	}
	if all := os.Getenv(serveCluster); all != "" {
		serveForEver(all, os.Getenv(serveRoute))
	}
	if at := os.Getenv(readSlowlyFrom); at != "" {
		_ = readSlowly(at)
		os.Exit(1)
	}

	if os.Getenv("TRYST_EXAMPLE_PRODUCER") != "" { // the second process of Example_twoProcesses
		produce()
		return
	}
	goleak.VerifyTestMain(m)
}
