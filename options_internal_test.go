package tryst

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// The default logger is slog.Default at WARN; one that the program gives decides for itself.
func TestLogsWarningsByDefault(t *testing.T) {
	o, err := newOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := o.Logger.Handler().(warnings)
	if !ok || w.Handler != slog.Default().Handler() {
		t.Fatalf("the default handler is %v", o.Logger.Handler())
	}
	var text bytes.Buffer
	debug := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})
	log := slog.New(warnings{debug}).With("a", 1).WithGroup("g")
	log.Debug("low")
	log.Info("low")
	log.Warn("high", "b", 2)
	log.Error("high")
	if got := text.String(); strings.Contains(got, "low") || strings.Count(got, "msg=high") != 2 || !strings.Contains(got, "a=1 g.b=2") {
		t.Errorf("logged %q, want two lines from WARN", got)
	}
	given := slog.New(debug)
	if o, err = newOptions([]Option{WithLogger(given)}); err != nil || o.Logger != given {
		t.Errorf("got the logger %v, %v", o.Logger, err)
	}
}
