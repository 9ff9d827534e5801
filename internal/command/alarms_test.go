package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// noAlarm checks that a log has no WARN and no ERROR.
func noAlarm(t *testing.T, whose, text string) {
	t.Helper()
	if alarm := regexp.MustCompile(`(?m)^.*level=(WARN|ERROR).*$`).FindString(text); alarm != "" {
		t.Errorf("%s has an alarm: %s", whose, alarm)
	}
}

// TestPullsOverVerbsRaiseNoAlarm: 16 pulls over verbs, one after another and at once, and the normal
// stop of the server leave no WARN and no ERROR on either side. The server's log has one line about
// each channel, and nothing of transports that are taken instead.
func TestPullsOverVerbsRaiseNoAlarm(t *testing.T) {
	model, dir := generate(t), t.TempDir()
	srv := start(t, nil, "serve", "--transport", "verbs", "--provider", "roce", "--listen", "127.0.0.1:0", model)
	address := srv.err.until(t, serving)
	pull := func(i int) *process {
		return start(t, nil, "pull", "--transport", "verbs", "--provider", "roce", "--log-level", "info", "--from", address,
			"--out", filepath.Join(dir, fmt.Sprint(i, ".safetensors")))
	}
	ended := func(p *process) {
		r := p.end(t)
		if did(t, r); !strings.Contains(r.out, "54 over verbs") {
			t.Errorf("not over verbs:\n%s", r.out)
		}
		noAlarm(t, "a pull", r.err)
	}
	const pulls = 16
	for i := range pulls / 2 {
		ended(pull(i))
	}
	var together []*process
	for i := range pulls / 2 {
		together = append(together, pull(pulls/2+i))
	}
	for _, p := range together {
		ended(p)
	}
	if err := srv.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r := srv.end(t)
	did(t, r)
	noAlarm(t, "the server", r.err)
	if n := strings.Count(r.err, "go over verbs"); n != pulls {
		t.Errorf("%d lines about channels after %d pulls:\n%s", n, pulls, r.err)
	}
	for _, words := range []string{"no verbs", "instead=", "has stopped", "closed the channel", "a channel "} {
		if strings.Contains(r.err, words) {
			t.Errorf("%q in the log of the server:\n%s", words, r.err)
		}
	}
}

// TestPeerThatStopsRaisesNoAlarm: a server of a cluster that stops in order, and starts again, is no
// alarm for the others, which log each once.
func TestPeerThatStopsRaisesNoAlarm(t *testing.T) {
	a, b := closedPort(t), closedPort(t)
	server := func(task string) *process {
		return start(t, nil, "serve", "--transport", "verbs", "--provider", "roce", "--cluster", "worker="+a+","+b, "--task", "/job:worker/task:"+task)
	}
	up := regexp.MustCompile(`(msg="tensors from and to the peer go over verbs")`)
	first, second := server("0"), server("1")
	first.err.until(t, up)
	second.err.until(t, up)
	stop := func(p *process) {
		t.Helper()
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		r := p.end(t)
		did(t, r)
		noAlarm(t, "a server", r.err)
	}
	stop(second)
	first.err.until(t, regexp.MustCompile(`(msg="the peer has stopped" .*task:1 says: )`))
	again := server("1")
	first.err.until(t, regexp.MustCompile(`(?s)has stopped.*(msg="tensors from and to the peer go over verbs")`))
	again.err.until(t, up)
	stop(first)
	stop(again)
	if text := first.err.String(); strings.Count(text, "has stopped") != 1 || strings.Contains(text, "instead=") {
		t.Errorf("the stop of a peer is logged so:\n%s", text)
	}
}
