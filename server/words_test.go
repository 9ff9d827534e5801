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
	x := float(t, 1)
	defer x.Release()
	err = a.Send(1, "/job:worker/task:9", "x", x, false)
	if got := status.From(err).Message(); status.CodeOf(err) != status.NotFound || !strings.HasPrefix(got, `Send of edge "x" from /job:worker/replica:0/task:0 to /job:worker/replica:0/task:9: `) {
		t.Errorf("Send: %v", err)
	}
	own := a.Task().String() + "/device:GPU:0"
	err = wait(t, a.recv(1, own, "x"), "RecvAsync").err
	if got := status.From(err).Message(); status.CodeOf(err) != status.NotFound || !strings.HasPrefix(got, `RecvAsync of edge "x" from `+own+" to ") {
		t.Errorf("RecvAsync from a device of this task: %v", err)
	}
}
