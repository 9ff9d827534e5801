//go:build linux && storm

package storm_test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// defaultTime is how long all storms take together, without what is repaired at the end.
const defaultTime = time.Minute

// TestStorm runs a storm in each world: over gRPC, over each provider, and with all of them.
// STORM_TIME is how long all take, STORM_SEED
// repeats the steps and faults of an earlier one, STORM_DIR keeps the logs.
func TestStorm(t *testing.T) {
	d, seed := defaultTime, uint64(time.Now().UnixNano())%1_000_000 //nolint:gosec // a number that is easy to type
	if text := os.Getenv("STORM_TIME"); text != "" {
		var err error
		if d, err = time.ParseDuration(text); err != nil {
			t.Fatalf("STORM_TIME: %v", err)
		}
	}
	if text := os.Getenv("STORM_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("STORM_SEED: %v", err)
		}
	}
	t.Logf("STORM_SEED=%d", seed)
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			dir := logDir(t, w.name)
			o := options{seed: seed, time: d / time.Duration(len(worlds)), world: w, fallback: "grpc", faults: true, churn: true}
			if w.name == "roce" && seed%4 == 3 {
				o.fallback = "none" // without gRPC for values
			}
			found := runStorm(t, dir, o)
			if t.Failed() || len(found) > 0 {
				t.Errorf("again: make storm STORM_SEED=%d STORM_TIME=%v STORM_TEST=%s", seed, d, w.name)
			}
		})
	}
}
