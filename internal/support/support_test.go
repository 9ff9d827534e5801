package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSecretsAreRemoved, wherever they appear in a text; what is around them stays.
func TestSecretsAreRemoved(t *testing.T) {
	s := NewScrubber([]string{"OTEL_EXPORTER_OTLP_HEADERS=x=hunter22", "API_TOKEN=abcdefgh", "API_TOKEN2=abcdefghijkl", "HOME=/root", "MY_SECRET=on", "broken"})
	for text, want := range map[string]string{
		"a line with x=hunter22 in it":          "a line with [removed] in it",
		"abcdefghijkl, abcdefgh":                "[removed], [removed]",
		"/root is on":                           "/root is on",
		"http://user:pass@host:9090/metrics":    "http://[removed]@host:9090/metrics",
		`{"password": "open sesame", "a": 1}`:   `{"password": "[removed] sesame", "a": 1}`,
		"Authorization: Bearer eyJhbGciOi.x.y;": "Authorization: Bearer [removed];",
		"token=zzz&peer=a":                      "token=[removed]&peer=a",
		"-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQ==\n-----END EC PRIVATE KEY-----\nrest": "[removed]\nrest",
		"-----BEGIN PRIVATE KEY-----\nMHcC":                                              "[removed]",
		"tokens 12, a key tls.key: /etc/k":                                               "tokens 12, a key tls.key: /etc/k",
	} {
		if got := s.Scrub(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestStacksHaveNoArguments: they are words of memory.
func TestStacksHaveNoArguments(t *testing.T) {
	const in = "goroutine 7 [chan receive, 5 minutes]:\nmain.(*T).wait(0xc000123400, {0x5f, 0x7?}, ...)\n\t/src/x.go:12 +0x1d\nmain.f(...)\nmain.g()\n"
	const want = "goroutine 7 [chan receive, 5 minutes]:\nmain.(*T).wait(...)\n\t/src/x.go:12 +0x1d\nmain.f(...)\nmain.g()\n"
	if got := stacks(in); got != want {
		t.Errorf("%q", got)
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
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
		files[h.Name] = string(text)
	}
}

// TestArchiveIsBounded: each file, and all together, whatever a process answers.
func TestArchiveIsBounded(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for block := bytes.Repeat([]byte("x"), 1<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	var b bytes.Buffer
	a := NewArchive(&b, "f", time.Unix(0, 0), NewScrubber(nil))
	a.most, a.left = 16<<10, 128<<10
	for range 5 {
		if _, err := a.Process(context.Background(), endless.Client(), "p", endless.URL, endless.URL); err != nil {
			t.Fatal(err)
		}
	}
	endless.CloseClientConnections()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		if h.Size > 16<<10+100 {
			t.Errorf("%s has %d bytes", h.Name, h.Size)
		}
		sum += int(h.Size)
	}
	if sum > 128<<10+100*25 || sum < 128<<10 {
		t.Errorf("%d bytes in all", sum)
	}
}

// TestProcessThatDoesNotAnswer: the archive says what is missing.
func TestProcessThatDoesNotAnswer(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	var b bytes.Buffer
	a := NewArchive(&b, "f", time.Unix(0, 0), NewScrubber(nil))
	missing, err := a.Process(t.Context(), gone.Client(), "p", gone.URL, "")
	if err != nil || len(missing) != 5 {
		t.Errorf("%v, %v", missing, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, b.Bytes())
	for _, name := range []string{"status.json", "links.json", "metrics.txt", "ready.txt", "goroutines.txt"} {
		if !strings.HasPrefix(files["f/p/"+name], "not there: ") {
			t.Errorf("%s is %q", name, files["f/p/"+name])
		}
	}
	gone.CloseClientConnections()
}
