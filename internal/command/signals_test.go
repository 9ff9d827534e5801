package command

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestInterruptible(t *testing.T) {
	signals := make(chan os.Signal, 2)
	if code := interruptible(io.Discard, "tryst", signals, func(context.Context) int { return 7 }); code != 7 {
		t.Errorf("without a signal: %d", code)
	}
	signals <- os.Interrupt
	if code := interruptible(io.Discard, "tryst", signals, func(ctx context.Context) int { <-ctx.Done(); return 8 }); code != 8 {
		t.Errorf("after one signal: %d", code)
	}
	signals <- os.Interrupt
	signals <- syscall.SIGTERM
	forever := make(chan struct{})
	defer close(forever)
	if code := interruptible(io.Discard, "tryst", signals, func(context.Context) int { <-forever; return 9 }); code != exitInterrupted {
		t.Errorf("after two signals: %d", code)
	}
}

// TestSecondInterruptIsAnnounced, when the first one does not end the command soon; SIGTERM comes from no
// terminal, and needs no words.
func TestSecondInterruptIsAnnounced(t *testing.T) {
	for _, c := range []struct {
		signal os.Signal
		want   string
	}{{os.Interrupt, "tryst: stopping; a second Ctrl-C ends at once, without waiting for what is under way\n"}, {syscall.SIGTERM, ""}} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			signals := make(chan os.Signal, 2)
			signals <- c.signal
			code := interruptible(&b, "tryst", signals, func(ctx context.Context) int {
				<-ctx.Done()
				<-time.After(2 * hintAfter)
				return 8
			})
			if code != 8 || b.String() != c.want {
				t.Errorf("%v: exit status %d, %q", c.signal, code, b.String())
			}
		})
	}
}

// A signal that comes before the work is done stops each command that may take
// long.
func TestInterruptedAtOnce(t *testing.T) {
	address := serve(t, generate(t))
	for _, args := range [][]string{
		{"gen"},
		{"pull", "--from", address},
		{"serve", "--listen", "127.0.0.1:0", generate(t)},
		{"doctor", "--cluster", "worker=" + address},
		{"bench", "--routes", "--from", address},
	} {
		dir := t.TempDir()
		if args[0] != "serve" && args[0] != "doctor" && args[0] != "bench" {
			args = append(args, "--out", filepath.Join(dir, "x.safetensors"))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errInterrupted)
		var out, err bytes.Buffer
		code := run(ctx, streams{out: &out, err: &err, env: []string{}}, args)
		failed(t, result{code, out.String(), err.String()}, exitInterrupted, "tryst "+args[0]+": interrupted: ")
		nothingLeft(t, dir)
	}
}

// A daemon that stops when it is told to has done its duty.
func TestServeStopsOnSignal(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		address := filepath.Join(t.TempDir(), "address")
		p := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--address-file", address, generate(t))
		where := p.err.until(t, serving)
		if b, err := os.ReadFile(address); err != nil || strings.TrimSpace(string(b)) != where {
			t.Errorf("address file %q, %v", b, err)
		}
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if r := p.end(t); r.code != exitDone || !strings.Contains(r.err, "msg=stopped") {
			t.Errorf("%v: exit status %d\n%s", signal, r.code, r.err)
		}
		if _, err := os.Stat(address); err == nil {
			t.Error("the address of nobody is left")
		}
	}
}

// SIGHUP makes a server read its files again, and does not end it. What it cannot read stays as it is.
func TestServeReadsItsFilesAgainOnSIGHUP(t *testing.T) {
	model := generate(t)
	srv := start(t, nil, "serve", "--listen", "127.0.0.1:0", "tiny="+model)
	address := srv.err.until(t, serving)
	if err := os.WriteFile(model, []byte("broken"), 0o600); err != nil { // in place
		t.Fatal(err)
	}
	if err := srv.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	srv.err.until(t, regexp.MustCompile(`(level=WARN msg="the old version stays published; [^"]*" publication=tiny .*)`))
	did(t, tryst(t, "gen", "--model", "tiny", "--seed", "7", "--force", "--out", model+".safetensors"))
	content, err := os.ReadFile(model + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(model, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := srv.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	srv.err.until(t, regexp.MustCompile(`msg=published publication=tiny .* replaces=([0-9a-f]+)`))
	out := filepath.Join(t.TempDir(), "copy.safetensors")
	did(t, tryst(t, "pull", "--from", address, "--out", out))
	same(t, model, out)
	if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := srv.end(t); r.code != exitDone {
		t.Errorf("exit status %d\n%s", r.code, r.err)
	}
}

// A server whose listener fails during a reload ends at once, and the reload with it.
func TestListenerFailsDuringAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, done := make(chan os.Signal, 1), make(chan struct{})
		began, may := make(chan struct{}), make(chan struct{})
		signals <- syscall.SIGHUP
		go func() {
			<-began
			close(done)
		}()
		wait := untilDone(t.Context(), done, signals, func(ctx context.Context) {
			close(began)
			<-ctx.Done()
			<-may
		})
		close(may)
		wait()
	})
}

func TestPullInterrupted(t *testing.T) {
	address := serve(t, large(t))
	reached := make(chan struct{})
	middle := proxy(t, address, 8<<20, func() { close(reached) })
	dir := t.TempDir()
	p := start(t, nil, "pull", "--transport", "grpc", "--from", middle, "--out", filepath.Join(dir, "x.safetensors"))
	<-reached
	if _, err := os.Stat(filepath.Join(dir, "x.safetensors.part")); err != nil {
		t.Error(err)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	failed(t, p.end(t), exitInterrupted, "tryst pull: interrupted: ", "large", "of 32 tensors", "what has come is in ")
	partLeft(t, dir)
}

// The first signal lets a pull that hangs come to its end, the second does not.
func TestServeSecondSignal(t *testing.T) {
	srv := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--shutdown-timeout", "1h", large(t))
	reached := make(chan struct{})
	middle := proxy(t, srv.err.until(t, serving), 8<<20, func() { close(reached) })
	pull := start(t, nil, "pull", "--transport", "grpc", "--from", middle, "--out", filepath.Join(t.TempDir(), "x.safetensors"), "--retry", "0")
	<-reached
	if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	srv.err.until(t, stopping)
	if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := srv.end(t); r.code != exitInterrupted || strings.Contains(r.err, "msg=stopped") || !strings.Contains(r.err, "\ntryst: ended at once by a second signal: ") {
		t.Errorf("exit status %d\n%s", r.code, r.err)
	}
	failed(t, pull.end(t), exitFailed, "large")
}

// What a server cuts off when its time is up it tells, and its status too.
func TestServeCutsOff(t *testing.T) {
	srv := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--shutdown-timeout", "100ms", large(t))
	reached := make(chan struct{})
	middle := proxy(t, srv.err.until(t, serving), 8<<20, func() { close(reached) })
	pull := start(t, nil, "pull", "--transport", "grpc", "--from", middle, "--out", filepath.Join(t.TempDir(), "x.safetensors"), "--retry", "0")
	<-reached
	if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := srv.end(t); r.code != exitFailed || !strings.Contains(r.err, "\ntryst serve: waiting for pulls: 1 have not ended\n") {
		t.Errorf("exit status %d\n%s", r.code, r.err)
	}
	failed(t, pull.end(t), exitFailed, "large")
}
