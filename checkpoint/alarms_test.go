package checkpoint_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/status"
)

// TestRefusedPullsAreOneWarning: that a published file was changed is one fact, however many pullers
// come.
func TestRefusedPullsAreOneWarning(t *testing.T) {
	said := newEvents()
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.Logger = slog.New(said) })
	h.publish("m", path)
	must(t, os.Truncate(path, 100))
	for range 3 {
		_, err := h.dial().tryPull(t, checkpoint.PullRequest{})
		mustBe(t, err, status.FailedPrecondition, "publish it again")
	}
	if n := said.count("WARN pulls of a publication are refused; publish its files again"); n != 1 || said.count("WARN") != 1 {
		t.Errorf("logged %d times: %q", n, said.all)
	}
}
