package main

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestListeningBeyondLoopback: without mutual TLS serve starts beyond loopback only when a flag says that
// everybody may run graphs.
func TestListeningBeyondLoopback(t *testing.T) {
	for _, tt := range []struct {
		ip                string
		mutualTLS, anyone bool
		ok                bool
	}{
		{"127.0.0.1", false, false, true},
		{"::1", false, false, true},
		{"0.0.0.0", false, false, false},
		{"::", false, false, false},
		{"10.0.0.1", false, false, false},
		{"0.0.0.0", true, false, true},
		{"0.0.0.0", false, true, true},
	} {
		f := flags{anyone: tt.anyone}
		err := f.listening(&net.TCPAddr{IP: net.ParseIP(tt.ip), Port: 2222}, tt.mutualTLS)
		switch {
		case tt.ok && err != nil:
			t.Errorf("%+v: %v", tt, err)
		case !tt.ok && (status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "--allow-anyone-to-run-graphs") || !strings.Contains(err.Error(), "tls.require-client-cert")):
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestFilesAreAllowedInOneWay: directories and all files together are a mistake.
func TestFilesAreAllowedInOneWay(t *testing.T) {
	f := flags{allFiles: true}
	_, _, err := f.kernels(slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)), []string{t.TempDir()})
	if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "--tensorflow-all-files") {
		t.Error(err)
	}
}
