package page

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestPageIsWhole: each file is in the document, and nothing in it comes from elsewhere.
func TestPageIsWhole(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	text := w.Body.String()
	if n := strings.Count(text, "<script>"); n != 3 {
		t.Errorf("%d scripts", n)
	}
	if n := strings.Count(text, "<style>"); n != 2 {
		t.Errorf("%d styles", n)
	}
	if at := regexp.MustCompile(`<!--(style|script) |(?:src|href)="(?:https?:)?//|@import|url\(`).FindString(text); at != "" {
		t.Errorf("the page has %q", at)
	}
	for _, name := range []string{"index.html", "page.css", "model.js", "page.js", "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE"} {
		if len(read(name)) == 0 {
			t.Errorf("%s is not embedded", name)
		}
	}
	policy := w.Header().Get("Content-Security-Policy")
	if n := strings.Count(policy, "'sha256-"); n != 5 || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "connect-src 'self'") {
		t.Errorf("%s", policy)
	}
	if len(text) > 150<<10 {
		t.Errorf("the page has %d bytes", len(text))
	}
}

// TestTextsOfPeersAreNoMarkup: the script sets what processes say as text alone.
func TestTextsOfPeersAreNoMarkup(t *testing.T) {
	for _, name := range []string{"page.js", "model.js"} {
		for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"} {
			if strings.Contains(read(name), word) {
				t.Errorf("%s has %s", name, word)
			}
		}
	}
}

// TestModelOfThePage runs the tests of model.js, which need no browser, where there is a Node.js.
func TestModelOfThePage(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no Node.js to run testdata/model_test.js with")
	}
	cmd := exec.CommandContext(t.Context(), node, "--test", "testdata/model_test.js")
	cmd.Env = append(os.Environ(), "NODE_TEST_CONTEXT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
