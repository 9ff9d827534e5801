package command

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager is systemd's end of the socket on which services report their state.
type manager struct{ conn *net.UnixConn }

// newManager listens at name, which is a path, or abstract with @ before it.
func newManager(t *testing.T, name string) manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return manager{conn}
}

// until returns the assignments of the first report that has the wanted one, and those before it.
func (m manager) until(t *testing.T, want string) (report, before []string) {
	t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 4096)
	for {
		n, err := m.conn.Read(b)
		if err != nil {
			t.Fatalf("no %s after %q: %v", want, before, err)
		}
		report = strings.Split(string(b[:n]), "\n")
		if slices.Contains(report, want) {
			return report, before
		}
		before = append(before, report...)
	}
}

// TestServeReportsToSystemd: READY=1 comes when everything is published and not before, STOPPING=1
// when the drain begins.
func TestServeReportsToSystemd(t *testing.T) {
	sockets := map[string]string{"path": filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" { // no other system has abstract names, nor systemd
		sockets["abstract"] = "@tryst-test-" + rand.Text()
	}
	for name, socket := range sockets {
		t.Run(name, func(t *testing.T) {
			systemd := newManager(t, socket)
			file := filepath.Join(t.TempDir(), "address")
			p := start(t, []string{"NOTIFY_SOCKET=" + socket}, "serve", "--listen", "127.0.0.1:0", "--address-file", file, generate(t))
			report, before := systemd.until(t, "READY=1")
			address, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("READY=1 before the server is ready: %v", err)
			}
			if want := "STATUS=serving at " + strings.TrimSpace(string(address)); !slices.Contains(report, want) {
				t.Errorf("no %q in %q", want, report)
			}
			if want := `STATUS=publishing "tiny"`; !slices.Contains(before, want) {
				t.Errorf("no %q in %q", want, before)
			}
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			systemd.until(t, "STOPPING=1")
			if r := p.end(t); r.code != exitDone {
				t.Errorf("exit status %d\n%s", r.code, r.err)
			}
		})
	}
}

// TestServeThatFailsIsNotReady: systemd sees the end of the process.
func TestServeThatFailsIsNotReady(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd := newManager(t, socket)
	broken := filepath.Join(t.TempDir(), "broken.npy")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := trystEnv(t, []string{"NOTIFY_SOCKET=" + socket}, "serve", "--listen", "127.0.0.1:0", broken)
	failed(t, r, exitFailed, broken)
	(&notifier{socket: socket}).busy("the end of the test") // after all reports of serve
	_, before := systemd.until(t, "STATUS=the end of the test")
	if !slices.Contains(before, `STATUS=publishing "broken"`) || slices.Contains(before, "READY=1") {
		t.Errorf("it reported %q", before)
	}
}

// TestServeWithoutSystemdsSocket: a socket that is gone costs a line in the log and nothing else.
func TestServeWithoutSystemdsSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	ctx, cancel := context.WithCancelCause(t.Context())
	l := newLog()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, streams{out: io.Discard, err: l, env: []string{"NOTIFY_SOCKET=" + socket}}, []string{"serve", "--listen", "127.0.0.1:0"})
		l.end()
	}()
	l.until(t, regexp.MustCompile(`level=WARN msg="the state of the service cannot be reported to systemd; [^"]*" socket=(`+regexp.QuoteMeta(socket)+`)`))
	cancel(errInterrupted)
	if code := <-done; code != exitDone {
		t.Errorf("exit status %d\n%s", code, l)
	}
	if n := strings.Count(l.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, l)
	}
}
