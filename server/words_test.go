package server

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestErrorOfAnUnknownPeerNamesTheCallAndTheEdge: the receive fails before there is a key, and says
// all the same what was called, and for which value.
func TestErrorOfAnUnknownPeerNamesTheCallAndTheEdge(t *testing.T) {
	a, _ := twoTasks(t)
	const edge = ` of edge "x" from /job:worker/replica:0/task:9 to /job:worker/replica:0/task:0: `
	_, err := a.Recv(t.Context(), 1, "/job:worker/task:9", "x")
	if got := status.From(err).Message(); status.CodeOf(err) != status.NotFound || !strings.HasPrefix(got, "Recv"+edge) {
		t.Errorf("Recv: %v", err)
	}
	err = wait(t, a.recv(1, "/job:worker/task:9", "x"), "RecvAsync").err
	if got := status.From(err).Message(); status.CodeOf(err) != status.NotFound || !strings.HasPrefix(got, "RecvAsync"+edge) {
		t.Errorf("RecvAsync: %v", err)
	}
}
