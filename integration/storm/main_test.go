//go:build linux

package storm_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asNode is the environment variable that makes this binary a process of a storm. Its value is the
// settings.
const asNode = "TRYST_STORM_NODE"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(asNode); ok {
		runNode(text)
		return
	}
	goleak.VerifyTestMain(m)
}
