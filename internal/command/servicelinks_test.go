package command

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestServiceLinksAreLoggedAtDebugOnly runs commands in a pod of a namespace with Services named
// tryst and tryst-rdma.
func TestServiceLinksAreLoggedAtDebugOnly(t *testing.T) {
	address := serve(t, generate(t))
	env := []string{"TRYST_SERVICE_HOST=10.0.0.1", "TRYST_PORT=tcp://10.0.0.1:2222", "TRYST_RDMA_PORT=udp://10.0.0.2:4791"}
	for level, want := range map[string]int{"debug": 3, "info": 0} {
		r := trystEnv(t, env, "pull", "--from", address, "--out", filepath.Join(t.TempDir(), "x.safetensors"), "--log-level", level)
		did(t, r)
		if got := strings.Count(r.err, "level=DEBUG msg=\"a variable describes a Service of Kubernetes and is not a setting\" variable=TRYST_"); got != want {
			t.Errorf("%s: %d lines, want %d:\n%s", level, got, want, r.err)
		}
	}
	if r := trystEnv(t, env, "config"); r.code != exitDone || strings.Contains(r.out, "10.0.0.") || r.err != "" {
		t.Errorf("exit status %d\n%s%s", r.code, r.out, r.err)
	}
	r := trystEnv(t, append(env, "TRYST_PROT=tcp://10.0.0.1:2222"), "config")
	failed(t, r, exitUsage, `variable "TRYST_PROT"`, "the nearest is TRYST_")
}
