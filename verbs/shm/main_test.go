//go:build linux

package shm

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/verbs/internal/seccomptest"
)

// childVariable names the role of this binary when a test starts it again.
const childVariable = "TRYST_SHM_TEST_CHILD"

func TestMain(m *testing.M) {
	if err := seccomptest.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if role := os.Getenv(childVariable); role != "" {
		os.Exit(runChild(role))
	}
	goleak.VerifyTestMain(m)
}
