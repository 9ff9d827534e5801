package grpctransport

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// child makes this binary one process of TestMemoryOfOneGibibyte.
var child = flag.String("child", "", "used by a test that starts processes of its own")

func TestMain(m *testing.M) {
	flag.Parse()
	if *child != "" {
		os.Exit(runChild(*child, flag.Args()))
	}
	goleak.VerifyTestMain(m)
}
