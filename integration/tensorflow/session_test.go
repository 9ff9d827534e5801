//go:build interop

package tensorflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestTensorFlowMaster: TensorFlow's own master, asked by its own client for a
// session, finds this server by GetStatus. A session of the whole cluster then
// ends with a clear error, not a hang, since this server runs no graphs; one
// that leaves it out works beside it.
func TestTensorFlowMaster(t *testing.T) {
	w := start(t, options{})
	t.Run("with Tryst", func(t *testing.T) {
		got := session(t, w.theirs)
		if status.Code(got.Code) != status.Unimplemented || !strings.Contains(got.Message, "\nCreateWorkerSession: this worker moves tensors and runs no graphs\n") {
			t.Errorf("the client got %+v", got)
		}
	})
	t.Run("without", func(t *testing.T) {
		if got := session(t, w.theirs, "--only-task-0"); got.Code != 0 || got.Value != 6 {
			t.Errorf("the client got %+v", got)
		}
	})
}

// sessionResult is what session.py prints.
type sessionResult struct {
	Code    int
	Message string
	Value   int
}

func session(t *testing.T, args ...string) (r sessionResult) {
	t.Helper()
	p := startPython(t, append([]string{"session.py"}, args...)...)
	line := make(chan string, 1)
	go func() {
		s, _ := p.stdout.ReadString('\n') // "" when it ended without a word
		line <- s
	}()
	if s := await(t, line, "session.py"); json.Unmarshal([]byte(s), &r) != nil {
		t.Fatalf("session.py printed %q", s)
	}
	return r
}
