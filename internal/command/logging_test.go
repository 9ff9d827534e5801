package command

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
)

// A setting that has one of the names of TensorFlow's verbs is used, and the log says
// which.
func TestLogTellsTheVariableOfTensorFlowThatWasUsed(t *testing.T) {
	c, err := sources.Load(sources.Options{Environ: []string{"TRYST_TRANSPORT=verbs", "RDMA_QP_MTU=1024"}, Use: config.ForServer})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	logVariables(slog.New(slog.NewTextHandler(&out, nil)), c)
	if given, _ := c.Given(config.ForServer); given.RDMA.MTU != 1024 || !strings.Contains(out.String(), "setting=rdma.mtu value=1024 variable=RDMA_QP_MTU") {
		t.Errorf("MTU %d, and the log is\n%s", given.RDMA.MTU, out.String())
	}
}
