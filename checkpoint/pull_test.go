package checkpoint_test

import (
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/checkpoint"
)

func TestPullFromAFile(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	pub := h.publish("", writeSafetensors(t, filepath.Join(t.TempDir(), "tiny.safetensors"), map[string]string{"format": "pt"}, tensors...))
	if pub.Name != "tiny" || pub.Tensors != len(tensors) {
		t.Errorf("published %+v", pub)
	}
	var sum checkpoint.Summary
	got := h.dial().pull(t, checkpoint.PullRequest{Summary: &sum})
	requireSame(t, tensors, got)
	if sum.Tensors != len(tensors) || sum.Bytes != pub.Bytes || !sum.Verified || sum.Transfer <= 0 || sum.Total < sum.Transfer {
		t.Errorf("summary %+v", sum)
	}
	m, err := h.catalog.Describe("tiny", "")
	if err != nil {
		t.Fatal(err)
	}
	if sum.Digest != m.Digest() {
		t.Errorf("digest %s, the manifest's %s", sum.Digest, m.Digest())
	}
}

func TestPullFromMemory(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	if _, err := h.catalog.PublishTensors("mem", tensors...); err != nil {
		t.Fatal(err)
	}
	requireSame(t, tensors, h.dial().pull(t, checkpoint.PullRequest{Publication: "mem"}))
}
