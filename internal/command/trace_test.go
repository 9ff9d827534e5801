package command

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TestTraceOfAFile: step stats that a TensorFlow client wrote become a trace of Chrome.
func TestTraceOfAFile(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "m.pb"), filepath.Join(dir, "trace.json")
	b, err := proto.Marshal(&tfpb.StepStats{DevStats: []*tfpb.DeviceStepStats{{Device: "/job:ps", NodeStats: []*tfpb.NodeExecStats{
		{NodeName: "n", TimelineLabel: "n = MatMul(x, y)", AllStartMicros: 5, AllEndRelMicros: 2},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in, b, 0o600); err != nil {
		t.Fatal(err)
	}
	text := did(t, tryst(t, "trace", in))
	if !json.Valid([]byte(text)) || !strings.Contains(text, `"MatMul"`) {
		t.Error(text)
	}
	did(t, tryst(t, "trace", in, "--out", out))
	if got, err := os.ReadFile(out); err != nil || string(got) != text {
		t.Errorf("%v: %s", err, got)
	}
	if err := os.WriteFile(in, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed(t, tryst(t, "trace", in), exitFailed, "m.pb", "RunMetadata")
	failed(t, tryst(t, "trace", filepath.Join(dir, "none")), exitFailed, "none")
}

// TestTraceOfAServer: the command asks a server for a recording, and shows what the server answers
// otherwise.
func TestTraceOfAServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/trace" || r.URL.Query().Get("seconds") != "0.25" {
			http.Error(w, "asked for "+r.URL.String(), http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(`{"traceEvents":[]}`))
	}))
	defer s.Close()
	at := strings.TrimPrefix(s.URL, "http://")
	if text := did(t, tryst(t, "trace", "--from", at, "--time", "250ms")); text != `{"traceEvents":[]}` {
		t.Error(text)
	}
	failed(t, tryst(t, "trace", "--from", at), exitFailed, "400 Bad Request", "asked for /trace?seconds=1")
	s.Close()
	failed(t, tryst(t, "trace", "--from", at), exitFailed, at, "metrics-address")
	for _, args := range [][]string{{}, {"a", "b"}, {"--from", at, "a"}, {"--from", at, "--time", "2m"}, {"--from", at, "--time", "0s"}} {
		failed(t, tryst(t, append([]string{"trace"}, args...)...), exitUsage)
	}
}
