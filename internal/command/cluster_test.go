package command

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
)

// TestServeListensWhereTFConfigHasItsTask starts the two tasks of a cluster as TensorFlow's
// launchers do, with nothing but TF_CONFIG.
func TestServeListensWhereTFConfigHasItsTask(t *testing.T) {
	model := generate(t)
	addresses := []string{closedPort(t), closedPort(t)}
	for i, want := range addresses {
		tf := fmt.Sprintf(`TF_CONFIG={"cluster":{"worker":[%q,%q]},"task":{"type":"worker","index":%d}}`, addresses[0], addresses[1], i)
		p := start(t, []string{tf}, "serve", model)
		if got := p.err.until(t, serving); got != want {
			t.Errorf("task %d listens at %s, want %s", i, got, want)
		}
		out := filepath.Join(t.TempDir(), "x.safetensors")
		did(t, tryst(t, "pull", "--cluster", "worker="+want, "--from", "/job:worker/task:0", "--out", out))
		p = start(t, []string{tf}, "serve", "--listen", "127.0.0.1:0", model)
		if got := p.err.until(t, serving); got == want {
			t.Errorf("task %d listens at %s, although --listen says otherwise", i, got)
		}
	}
	tf := fmt.Sprintf(`TF_CONFIG={"cluster":{"worker":[%q]},"task":{"type":"worker","index":0}}`, addresses[0])
	want := regexp.MustCompile(`(?m)^listen +` + regexp.QuoteMeta(addresses[0]) + ` +TF_CONFIG$`)
	if got := did(t, trystEnv(t, []string{tf}, "config")); !want.MatchString(got) {
		t.Errorf("no %v in:\n%s", want, got)
	}
}
