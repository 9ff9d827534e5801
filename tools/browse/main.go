// Command browse steers a headless Chromium for the tests of the page (integration/page). It is a module of its own, so that
// its dependencies are not those of Tryst. Each line of stdin is an order as JSON, and each line of stdout its result.
//
//	{"do":"open","url":"http://..."}                       {"do":"size","width":375,"height":800,"dark":true}
//	{"do":"eval","js":"document.title"}                    {"do":"click","js":"a CSS selector"}
//	{"do":"press","js":"Tab"}                              {"do":"shot","file":"page.png"}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// orderTimeout bounds an order. A page that hangs must not hang the test.
const orderTimeout = 30 * time.Second

// order is a line of stdin.
type order struct {
	Do     string `json:"do"`
	URL    string `json:"url"`
	JS     string `json:"js"`
	File   string `json:"file"`
	Width  int64  `json:"width"`
	Height int64  `json:"height"`
	Dark   bool   `json:"dark"`
}

// result is a line of stdout.
type result struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
	// Console has what the page has logged as an error since the last order, and exceptions.
	Console []string `json:"console,omitempty"`
}

func main() {
	if err := browse(); err != nil {
		fmt.Fprintln(os.Stderr, "browse:", err)
		os.Exit(1)
	}
}

// browser finds Chromium.
func browser() (string, error) {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium: on Debian, apt-get install chromium-headless-shell; or set CHROMIUM to the path of one")
}

func browse() error {
	path, err := browser()
	if err != nil {
		return err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, end := chromedp.NewContext(ctx)
	defer end()
	defer func() { _ = chromedp.Cancel(ctx) }() // it waits until Chromium has ended
	console := make(chan string, 1000)
	chromedp.ListenTarget(ctx, func(event any) {
		text := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *runtime.EventConsoleAPICalled:
			if e.Type != runtime.APITypeError {
				return
			}
			text = "console.error"
			for _, a := range e.Args {
				text += " " + string(a.Value)
			}
		default:
			return
		}
		select {
		case console <- text:
		default: // there are enough
		}
	})
	if err := chromedp.Run(ctx); err != nil {
		return err
	}
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		r := carryOut(ctx, o)
		for len(console) > 0 {
			r.Console = append(r.Console, <-console)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

// carryOut carries out an order. The context of chromedp is that of the tab, so it is not bounded itself.
func carryOut(ctx context.Context, o order) (r result) {
	done := make(chan error, 1)
	go func() { done <- carryOutNow(ctx, o, &r) }()
	select {
	case err := <-done:
		if err != nil {
			r.Error = err.Error()
		}
		return r
	case <-time.After(orderTimeout):
		return result{Error: fmt.Sprintf("%s takes longer than %v", o.Do, orderTimeout)}
	}
}

func carryOutNow(ctx context.Context, o order, r *result) error {
	switch o.Do {
	case "open":
		return chromedp.Run(ctx, chromedp.Navigate(o.URL))
	case "size":
		scheme := "light"
		if o.Dark {
			scheme = "dark"
		}
		media := emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
		return chromedp.Run(ctx, chromedp.EmulateViewport(o.Width, o.Height), media)
	case "eval":
		var value json.RawMessage
		err := chromedp.Run(ctx, chromedp.Evaluate("JSON.stringify(("+o.JS+")) ?? 'null'", &value))
		if err != nil {
			return err
		}
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return err
		}
		r.Value = json.RawMessage(text)
		return nil
	case "click":
		return chromedp.Run(ctx, chromedp.Click(o.JS, chromedp.ByQuery))
	case "press":
		keys := map[string]string{"Tab": kb.Tab, "Enter": kb.Enter, "Escape": kb.Escape}
		return chromedp.Run(ctx, chromedp.KeyEvent(keys[o.JS]))
	case "shot":
		var png []byte
		if err := chromedp.Run(ctx, chromedp.FullScreenshot(&png, 100)); err != nil {
			return err
		}
		return os.WriteFile(o.File, png, 0o644)
	}
	return fmt.Errorf("an unknown order: %q", o.Do)
}
