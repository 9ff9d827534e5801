//go:build interop

package tensorflow_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/tensorflow/library"
)

func TestMain(m *testing.M) {
	if len(os.Args) >= 3 && os.Args[1] == kernelProcess {
		if err := library.ServeProcess(os.Args[2], os.Args[3:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(serverVariable) != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}
