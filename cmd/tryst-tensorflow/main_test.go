package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFilesAreAllowedInOneWay: directories and all files together are a mistake.
func TestFilesAreAllowedInOneWay(t *testing.T) {
	f := flags{allFiles: true}
	_, _, err := f.kernels(slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)), []string{t.TempDir()})
	if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "--tensorflow-all-files") {
		t.Error(err)
	}
}
