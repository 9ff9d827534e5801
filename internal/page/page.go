// Package page has the page at / of the metrics address: what /api/status says, for people. It is one document without anything
// from elsewhere, so it works where there is no Internet.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"strings"
)

//go:embed files
var files embed.FS

// Handler serves the page. A browser may run its scripts and styles alone, and may connect to this server alone.
func Handler() http.Handler {
	document, policy := build()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(document) // fails only when the client has gone
	})
}

// build puts the files into one document, and returns the policy that allows these scripts and styles by their digests.
func build() (document []byte, policy string) {
	text := read("index.html")
	styles, scripts := "", ""
	for _, f := range []string{"uPlot.min.css", "page.css"} {
		css := read(f)
		styles += " '" + digest(css) + "'"
		text = strings.Replace(text, "<!--style "+f+"-->", "<style>"+css+"</style>", 1)
	}
	for _, f := range []string{"uPlot.iife.min.js", "model.js", "page.js"} {
		js := read(f)
		scripts += " '" + digest(js) + "'"
		text = strings.Replace(text, "<!--script "+f+"-->", "<script>"+js+"</script>", 1)
	}
	return []byte(text), "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src" + styles + "; script-src" + scripts
}

func read(name string) string {
	text, err := files.ReadFile("files/" + name)
	if err != nil {
		return "" // it is embedded; the tests read each
	}
	return string(text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
