package server

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/tryst-rdma/tryst/internal/buildinfo"
)

// TestMetricsHaveTheBuild: with the version that the program has passed.
func TestMetricsHaveTheBuild(t *testing.T) {
	s := start(t, settings(), Options{Version: "v1.2.3"})
	b := buildinfo.Read("v1.2.3")
	name := fmt.Sprintf(`tryst_build_info{commit=%q,goversion=%q,modified="%t",version="v1.2.3"}`, b.Commit, runtime.Version(), b.Modified)
	if text := metricsText(s.gatherer); metric(t, text, name) != 1 {
		t.Errorf("there is no %s in\n%s", name, text)
	}
}
