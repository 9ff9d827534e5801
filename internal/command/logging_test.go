package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestLogHasTheSameFieldsInTextAndJSON: names and values, and one unit of time.
func TestLogHasTheSameFieldsInTextAndJSON(t *testing.T) {
	var text, jsonl bytes.Buffer
	log := func(l *slog.Logger) {
		l.Info("a line", "puller", cluster.Task{Job: "worker", Index: 3}, "address", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 2222},
			"queue_pair", verbs.QPN(0x17), "took", 1500*time.Millisecond, "reason", status.New(status.NotFound, "gone"), "sizes", [2]int{1, 2},
			"tensors", 7, "host", netip.MustParseAddr("10.0.0.8"), "nothing", nil)
	}
	log(newLogger(config.Log{}, &text))
	log(newLogger(config.Log{Format: "json"}, &jsonl))
	var fields map[string]any
	if err := json.Unmarshal(jsonl.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"puller": "/job:worker/replica:0/task:3", "address": "10.0.0.7:2222", "queue_pair": verbs.QPN(0x17).String(), "took": 1.5,
		"reason": status.New(status.NotFound, "gone").Error(), "sizes": "[1 2]", "tensors": 7.0, "host": "10.0.0.8",
	} {
		if fields[name] != want {
			t.Errorf("%s is %v in JSON, want %v", name, fields[name], want)
		}
		if s := fmt.Sprint(want); !strings.Contains(text.String(), name+"="+s) && !strings.Contains(text.String(), name+"="+strconv.Quote(s)) {
			t.Errorf("%s is not %v in text: %s", name, want, text.String())
		}
	}
}

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
