package tcp

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/verbs/internal/seccomptest"
)

func TestMain(m *testing.M) {
	if err := seccomptest.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	goleak.VerifyTestMain(m)
}
