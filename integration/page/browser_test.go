//go:build page

package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// soon bounds what the tests wait for.
const soon = 30 * time.Second

// browser is a headless Chromium, steered by build/browse.
type browser struct {
	in  io.Writer
	out *bufio.Scanner
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	path := os.Getenv("BROWSE")
	if path == "" {
		t.Fatal("BROWSE is not set: run make test-page")
	}
	ctx, kill := context.WithCancel(context.WithoutCancel(t.Context())) // it ends Chromium at the end of its input, if nobody kills it
	cmd := exec.CommandContext(ctx, path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer time.AfterFunc(soon, kill).Stop()
		_ = in.Close()
		_ = cmd.Wait()
		kill()
	})
	b := &browser{in, bufio.NewScanner(out)}
	b.out.Buffer(nil, 64<<20)
	return b
}

// do carries out an order, and fails the test if the page has logged an error.
func (b *browser) do(t *testing.T, order map[string]any) json.RawMessage {
	t.Helper()
	line, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		t.Fatalf("the browser has ended: %v (is there a Chromium? apt-get install chromium-headless-shell)", err)
	}
	if !b.out.Scan() {
		t.Fatalf("the browser has ended (is there a Chromium? apt-get install chromium-headless-shell): %v", b.out.Err())
	}
	var result struct {
		Value   json.RawMessage `json:"value"`
		Error   string          `json:"error"`
		Console []string        `json:"console"`
	}
	if err := json.Unmarshal(b.out.Bytes(), &result); err != nil {
		t.Fatal(err)
	}
	if result.Error != "" {
		t.Fatalf("%v: %s", order, result.Error)
	}
	for _, text := range result.Console {
		t.Errorf("the page reports: %s", text)
	}
	return result.Value
}

func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	b.do(t, map[string]any{"do": "open", "url": url})
}

func (b *browser) size(t *testing.T, width, height int, dark bool) {
	t.Helper()
	b.do(t, map[string]any{"do": "size", "width": width, "height": height, "dark": dark})
}

func (b *browser) click(t *testing.T, selector string) {
	t.Helper()
	b.do(t, map[string]any{"do": "click", "js": selector})
}

func (b *browser) press(t *testing.T, key string) {
	t.Helper()
	b.do(t, map[string]any{"do": "press", "js": key})
}

// shot keeps a picture below build/page.
func (b *browser) shot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("PICTURES")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pictures
		t.Fatal(err)
	}
	b.do(t, map[string]any{"do": "shot", "file": filepath.Join(dir, name+".png")})
}

// eval returns the value of an expression in the page.
func eval[T any](t *testing.T, b *browser, js string) (v T) {
	t.Helper()
	raw := b.do(t, map[string]any{"do": "eval", "js": js})
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %s: %v", js, raw, err)
	}
	return v
}

// until polls the page until an expression is true, and returns how long that took. A pause between two looks counts 200 ms at
// most: on a busy machine this test and the browser get no processor for a while.
func (b *browser) until(t *testing.T, what, js string) (took time.Duration) {
	t.Helper()
	begin, last := time.Now(), time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		shown := eval[bool](t, b, "Boolean("+js+")")
		now := time.Now()
		took += min(now.Sub(last), 200*time.Millisecond)
		last = now
		if shown {
			return took
		}
		if time.Since(begin) > soon {
			t.Fatalf("not %s: %s", what, strings.TrimSpace(eval[string](t, b, "document.querySelector('main').innerText")))
		}
	}
}

// textOf is the expression for the text of the row of a table that has a word.
func textOf(rows, word string) string {
	return fmt.Sprintf("([...document.querySelectorAll('#%s tr')].find((r) => r.textContent.includes(%q)) || {textContent: ''}).textContent", rows, word)
}
