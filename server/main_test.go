package server

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// receiver makes this binary a process of TestAnswersOfAHostileServerAreBounded.
var receiver = flag.String("receiver", "", "used by a test that starts processes of its own")

func TestMain(m *testing.M) {
	flag.Parse()
	if *receiver != "" {
		os.Exit(runReceiver(*receiver, flag.Arg(0)))
	}
	goleak.VerifyTestMain(m)
}
