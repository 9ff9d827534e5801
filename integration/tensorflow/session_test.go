//go:build interop

package tensorflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestTensorFlowMaster: TensorFlow's client opens a session at TensorFlow's master, which finds our
// server by GetStatus. A session of the whole cluster ends with an error that says that our server
// runs no graphs. A session without our server works.
func TestTensorFlowMaster(t *testing.T) {
	bed := start(t, options{})
	t.Run("with Tryst", func(t *testing.T) {
		got := session(t, bed.tfAddress)
		if status.Code(got.Code) != status.Unimplemented || !strings.Contains(got.Message, "\nCreateWorkerSession: this worker moves tensors and runs no graphs\n") {
			t.Errorf("the client got %+v, want Unimplemented with the reason", got)
		}
	})
	t.Run("without", func(t *testing.T) {
		if got := session(t, bed.tfAddress, "--only-task-0"); got.Code != 0 || got.Value != 6 {
			t.Errorf("the client got %+v, want the value 6", got)
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
		s, _ := p.stdout.ReadString('\n') // "" if it ended without output
		line <- s
	}()
	if s := await(t, line, "session.py"); json.Unmarshal([]byte(s), &r) != nil {
		t.Fatalf("session.py printed %q, want JSON", s)
	}
	return r
}
