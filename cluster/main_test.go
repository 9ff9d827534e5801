package cluster_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantError checks that err has the code, contains all texts, and is one line.
func wantError(t *testing.T, err error, code status.Code, texts ...string) {
	t.Helper()
	if got := status.CodeOf(err); got != code {
		t.Errorf("got %v (%v), want %v", got, err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has several lines, want one", err)
	}
}
