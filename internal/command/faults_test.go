package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/transporttest"
)

// Everything that goes wrong outside gives one clear line and an exit status,
// and never a hang or a stack trace; a pull leaves only what it says.

func TestServeFaults(t *testing.T) {
	model := generate(t)
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.safetensors")
	if err := os.WriteFile(broken, []byte("\xff\xff\xff\xff\xff\xff\xff\xffnot a header"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "tiny.safetensors")
	if err := os.Link(model, other); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	unreadable := filepath.Join(dir, "loop.safetensors")
	if err := os.Symlink(unreadable, unreadable); err != nil { // root may read every file
		t.Fatal(err)
	}
	used := serve(t)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"port in use":         {[]string{"--listen", used, model}, []string{"listen", used, "address already in use"}},
		"metrics port in use": {[]string{"--listen", "127.0.0.1:0", "--metrics-address", used, model}, []string{"metrics-address", used, "address already in use"}},
		"no such file":        {[]string{"--listen", "127.0.0.1:0", "--publish", "/does/not/exist.npy"}, []string{`"exist"`, "/does/not/exist.npy", "no such file"}},
		"no file, no port":    {[]string{"--listen", "192.0.2.1:1", "--publish", "/does/not/exist.npy"}, []string{"no such file"}},
		"unreadable file":     {[]string{"--listen", "127.0.0.1:0", unreadable}, []string{unreadable, "symbolic links"}},
		"not a checkpoint":    {[]string{"--listen", "127.0.0.1:0", broken}, []string{`"broken"`, broken}},
		"empty directory":     {[]string{"--listen", "127.0.0.1:0", "e=" + empty}, []string{`"e"`, empty, "no .safetensors file"}},
		"other kind of file":  {[]string{"--listen", "127.0.0.1:0", os.DevNull}, []string{os.DevNull}},
		"name taken":          {[]string{"--listen", "127.0.0.1:0", model, other}, []string{model + " and " + other, `publication "tiny"`, "NAME=PATH"}},
		"no key":              {[]string{"--listen", "127.0.0.1:0", "--tls-cert", "/x", "--tls-key", "/x"}, []string{"/x", "no such file"}},
		"address file":        {[]string{"--listen", "127.0.0.1:0", "--address-file", "/does/not/exist/a"}, []string{"address-file", "/does/not/exist/a", "no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			failed(t, tryst(t, append([]string{"serve"}, c.args...)...), exitFailed, c.want...)
		})
	}
}

func TestPullFaults(t *testing.T) {
	model := generate(t)
	one := serve(t, model)
	two := serve(t, "a="+model, "b="+model)
	none := serve(t)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"unknown publication":  {[]string{"--from", one, "tinny"}, []string{`"tinny"`, `"tiny"`}},
		"which publication":    {[]string{"--from", two}, []string{"2 publications", `"a", "b"`}},
		"no publication":       {[]string{"--from", none}, []string{"no publication"}},
		"unknown tensor":       {[]string{"--from", one, "--tensor", "int32.matrox"}, []string{`"int32.matrox"`, `"int32.matrix"`}},
		"one unmatched glob":   {[]string{"--from", one, "--tensor", "int*", "--tensor", "lstm.*"}, []string{`"lstm.*"`}},
		"malformed glob":       {[]string{"--from", one, "--tensor", "h.[0"}, []string{`"h.[0"`, "malformed"}},
		"server that is down":  {[]string{"--from", closedPort(t)}, []string{"connection refused"}},
		"name without address": {[]string{"--from", "tryst.invalid:1", "--timeout", "20s"}, []string{"tryst.invalid"}},
		"TLS for plain text":   {[]string{"--from", one, "--tls-server-name", "x", "--timeout", "20s"}, []string{"TLS"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			failed(t, tryst(t, append([]string{"pull", "--retry", "0", "--out", filepath.Join(dir, "x.safetensors")}, c.args...)...), exitFailed, c.want...)
			nothingLeft(t, dir)
		})
	}
}

// closedPort returns an address where nobody listens.
func closedPort(t *testing.T) string { return transporttest.FreeAddresses(t, 1)[0] }

func TestPullExistingTarget(t *testing.T) {
	model := generate(t)
	address := serve(t, model)
	out := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(out, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Whoever would overwrite something is told before the server is asked.
	failed(t, tryst(t, "pull", "--from", closedPort(t), "--out", out), exitFailed, out, "exists", "force")
	failed(t, tryst(t, "pull", "--from", address, "--out", out), exitFailed, out, "exists", "force")
	if b, err := os.ReadFile(out); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
	did(t, tryst(t, "pull", "--from", address, "--out", out, "--force"))
	same(t, model, out)
}

func TestPullNowhere(t *testing.T) {
	address := serve(t, generate(t))
	failed(t, tryst(t, "pull", "--from", address, "--out", "/does/not/exist/x.safetensors"), exitFailed, "/does/not/exist/x.safetensors.part", "no such file")
}

func TestFileChangedUnderTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		same   bool
	}{
		"truncated": {func(path string) error { return os.Truncate(path, 1000) }, false},
		"touched":   {func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) }, true},
		"removed":   {os.Remove, true},
	} {
		t.Run(name, func(t *testing.T) {
			model := generate(t)
			published, err := os.ReadFile(model)
			if err != nil {
				t.Fatal(err)
			}
			address := serve(t, model)
			if err := c.change(model); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			out := filepath.Join(dir, "x.safetensors")
			r := tryst(t, "pull", "--from", address, "--out", out)
			if c.same {
				did(t, r)
				if b, err := os.ReadFile(out); err != nil || !bytes.Equal(b, published) {
					t.Errorf("the copy differs: %v", err)
				}
				return
			}
			failed(t, r, exitFailed, "tiny.safetensors", "publish it again", "SIGHUP")
			nothingLeft(t, dir)
		})
	}
}

// A full disk is played by a limit on the size of files.
func TestFullDisk(t *testing.T) {
	model := large(t)
	address := serve(t, model)
	dir := t.TempDir()
	limit := []string{fileLimit + "=4194304"}
	out := filepath.Join(dir, "x.safetensors")
	failed(t, start(t, limit, "pull", "--from", address, "--out", out).end(t), exitFailed, "x.safetensors.part", "file too large")
	nothingLeft(t, dir)
	failed(t, start(t, limit, "gen", "--out", out).end(t), exitFailed, "x.safetensors.part", "file too large")
	nothingLeft(t, dir)
}

// brokenPipe is an output that cannot be written to.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestFullDiskForResults(t *testing.T) {
	address := serve(t, generate(t))
	for _, args := range [][]string{
		{"--help"}, {"help", "gen"}, {"completion", "bash"}, {"version"}, {"version", "--json"}, {"config"}, {"config", "--json"},
		{"keys", "--from", address}, {"keys", "--from", address, "--json"},
		{"keys", "--from", address, "--tensors"}, {"keys", "--from", address, "--tensors", "--json"},
		{"gen", "--model", "tiny", "--out", filepath.Join(t.TempDir(), "x.safetensors")},
		{"pull", "--from", address, "--out", filepath.Join(t.TempDir(), "x.safetensors")},
		{"pull", "--from", address, "--json", "--out", filepath.Join(t.TempDir(), "x.safetensors")},
	} {
		var err strings.Builder
		code := run(t.Context(), streams{out: brokenPipe{}, err: &err, env: []string{}}, args)
		failed(t, result{code: code, err: err.String()}, exitFailed, "no space left on device")
	}
}

// A server that dies takes the pull with it when it stays away.
func TestPeerDiesInTheMiddle(t *testing.T) {
	srv := start(t, nil, "serve", "--listen", "127.0.0.1:0", large(t))
	address := srv.err.until(t, serving)
	middle := proxy(t, address, 8<<20, func() {
		if err := srv.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	failed(t, tryst(t, "pull", "--transport", "grpc", "--from", middle, "--out", filepath.Join(dir, "x.safetensors"), "--retry", "0"), exitFailed,
		"connection to "+middle+" lost", "what has come is in "+filepath.Join(dir, "x.safetensors.part"))
	partLeft(t, dir)
}

func TestPeerFallsSilent(t *testing.T) {
	address := serve(t, large(t))
	middle := proxy(t, address, 8<<20, func() {})
	dir := t.TempDir()
	failed(t, tryst(t, "pull", "--transport", "grpc", "--from", middle, "--out", filepath.Join(dir, "x.safetensors"), "--timeout", "5s", "large"), exitFailed,
		"large", "deadline", "what has come is in "+filepath.Join(dir, "x.safetensors.part"))
	partLeft(t, dir)
}

// A peer that takes connections and is no Tryst server.
func TestPeerIsSomethingElse(t *testing.T) {
	for name, c := range map[string]struct {
		says    string
		retry   string
		timeout string
		want    string
	}{
		"silent": {"", "0", "500ms", "deadline"},
		"HTTP/1": {"HTTP/1.1 400 Bad Request\r\n\r\n", "1h", "1m", "is an HTTP/1 server, not a Tryst server"},
	} {
		t.Run(name, func(t *testing.T) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := lis.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(conn, c.says)
					defer conn.Close()
				}
			}()
			t.Cleanup(func() { lis.Close(); <-done })
			dir := t.TempDir()
			failed(t, tryst(t, "pull", "--from", lis.Addr().String(), "--out", filepath.Join(dir, "x.safetensors"), "--timeout", c.timeout, "--retry", c.retry), exitFailed, c.want)
			failed(t, tryst(t, "keys", "--from", lis.Addr().String(), "--timeout", c.timeout), exitFailed, c.want)
			nothingLeft(t, dir)
		})
	}
}

func TestMessagesFromElsewhereStayOnTheirLine(t *testing.T) {
	if got := lines(errors.Join(errors.New("a\nb\x1b[2J"), context.Canceled)); len(got) != 2 || got[0] != `a\nb\x1b[2J` {
		t.Errorf("%q", got)
	}
	var b strings.Builder
	if err := writeTable(&b, []string{"NAME"}, []string{"x\ty\n\x1b"}); err != nil || b.String() != "NAME\n"+`x\ty\n\x1b`+"\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
