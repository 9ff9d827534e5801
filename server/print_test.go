package server

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// TestNodesPrintToTheLog, as many lines in a minute as the limit allows.
func TestNodesPrintToTheLog(t *testing.T) {
	var log syncBuffer
	s := start(t, settings(), Options{Kernels: ops.New(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	session := openSession(t, s, master.Options{})
	g := session.NewGraph()
	text, err := tensor.FromStrings(tensor.Shape{}, []string{"loss:\n1.5"})
	if err != nil {
		t.Fatal(err)
	}
	in := g.Const("text", text)
	for i := range printedLines + 50 {
		g.Add(fmt.Sprint("print", i), "PrintV2", nil, in)
	}
	g.Fetch("y", in, tensor.String)
	out, err := registerGraph(t, session, g).Run(t.Context(), master.NewStep(), nil)
	if err != nil {
		t.Fatal(err)
	}
	out["y"].Release()
	lines := strings.Count(log.String(), "a node of a graph prints")
	if lines != printedLines || !strings.Contains(log.String(), `text="loss:\n1.5" node=print`) {
		t.Errorf("%d lines, want %d:\n%.400s", lines, printedLines, log.String())
	}
}
