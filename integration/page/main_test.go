//go:build page

package page

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeVariable); text != "" {
		index, err := strconv.Atoi(text)
		if err == nil {
			err = runNode(index, strings.Split(os.Getenv(clusterVariable), ","), os.Getenv(metricsVariable))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}
