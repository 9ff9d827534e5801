//go:build linux

package shm

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childVariable names the role of this binary when a test starts it again.
const childVariable = "TRYST_SHM_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childVariable); role != "" {
		os.Exit(runChild(role))
	}
	goleak.VerifyTestMain(m)
}
