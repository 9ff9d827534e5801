package command

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
)

// TestSupport: the archive has what a report needs, and no secret that the process, its settings or its log have.
func TestSupport(t *testing.T) {
	dir := t.TempDir()
	const token, password = "t0ken-of-the-collector", "hunter22-hunter22"
	secret := []string{"OTEL_EXPORTER_OTLP_HEADERS=authorization=" + token, "PATH=" + os.Getenv("PATH")}
	srv := start(t, secret, "serve", "--listen", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--pprof-address", "127.0.0.1:0", "tiny="+generate(t))
	metrics := srv.err.until(t, regexp.MustCompile(`msg="serving HTTP" setting=metrics-address address=(\S+)`))
	pprof := srv.err.until(t, regexp.MustCompile(`msg="serving HTTP" setting=pprof-address address=(\S+)`))
	srv.err.until(t, serving)
	out := filepath.Join(dir, "report.tar.gz")
	r := trystEnv(t, secret, "support", "--out", out, "--no-doctor", "--pprof", pprof, "http://user:"+password+"@"+metrics)
	did(t, r)
	if strings.Contains(r.out+r.err, password) {
		t.Errorf("the output has a password:\n%s%s", r.out, r.err)
	}
	files := unpacked(t, out)
	all := ""
	for name, want := range map[string]string{
		"README.txt": "Support writes one archive", "version.txt": "tryst ", "settings.txt": "all settings",
		"process-0/status.json": `"publications"`, "process-0/links.json": "[", "process-0/metrics.txt": "tryst_build_info{", "process-0/ready.txt": "",
		"process-0/warnings.txt": "", "process-0/goroutines.txt": "goroutine ",
	} {
		text, ok := files[name]
		if !ok || !strings.Contains(text, want) || strings.Contains(text, "not there") {
			t.Errorf("%s: there %t, %.200q", name, ok, text)
		}
	}
	for _, text := range files {
		all += text
	}
	for _, s := range []string{token, password, "(0xc0"} {
		if strings.Contains(all, s) {
			t.Errorf("the archive has %q", s)
		}
	}
	if i, err := os.Stat(out); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	failed(t, trystEnv(t, secret, "support", "--out", out, "--no-doctor", metrics), exitFailed, "exist")
}

// TestSupportWithoutAProcess: what doctor says and the settings are of use, too; no private key is inside.
func TestSupportWithoutAProcess(t *testing.T) {
	ca := certtest.New(t)
	ca.Make("a", nil)
	cert, key := filepath.Join(ca.Dir, "a.pem"), filepath.Join(ca.Dir, "a.key")
	out := filepath.Join(t.TempDir(), "report.tar.gz")
	r := tryst(t, "support", "--out", out, "--tls-cert", cert, "--tls-key", key, closedPort(t))
	did(t, r)
	if !strings.Contains(r.err, "status.json of ") {
		t.Errorf("stderr does not say what is missing: %s", r.err)
	}
	files := unpacked(t, out)
	if !strings.Contains(files["settings.txt"], "tls.key: "+key) || !strings.Contains(files["doctor.txt"], "OK") {
		t.Errorf("%q", files)
	}
	for name, text := range files {
		if strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s has a private key", name)
		}
	}
}

// unpacked returns the files of an archive, without the folder that all are in.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}
