package checkpoint_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
)

// TestRefusedPullsAreOneWarning: that a published file was changed is one fact, however many pullers
// come.
func TestRefusedPullsAreOneWarning(t *testing.T) {
	said := newEvents()
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...)
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.Logger = slog.New(said) })
	h.publish("m", path)
	must(t, os.Truncate(path, 100))
	for range 3 {
		_, err := h.dial().tryPull(t, checkpoint.PullRequest{})
		mustBe(t, err, status.FailedPrecondition, "publish it again")
	}
	if n := said.count("WARN pulls of a publication are refused; publish its files again"); n != 1 || said.count("WARN") != 1 {
		t.Errorf("logged %d times: %q", n, said.all)
	}
}

// TestPullIsOneLine: each pull is one line of the server's log, with over what it went and a few digits
// of its time; a measurement is none.
func TestPullIsOneLine(t *testing.T) {
	said := newEvents()
	h := serve(t, func(o *checkpoint.CatalogOptions) {
		o.Logger = slog.New(said)
		o.Over = func(cluster.Task) func() string { return func() string { return "verbs (shm0)" } }
	})
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...))
	for _, measurement := range []bool{false, true, true} {
		h.dial().pull(t, checkpoint.PullRequest{Measurement: measurement})
	}
	said.wait("a pull has ended", 3)
	line := regexp.MustCompile(`^INFO a pull has ended outcome=complete code=OK tensors=\d+ bytes=\d+ sent_bytes=\d+ seconds=\d+(\.\d{1,3})? over=verbs \(shm0\)$`)
	if n := said.count("INFO a pull"); n != 1 || said.count("DEBUG a pull has ended") != 2 || !slices.ContainsFunc(said.all, line.MatchString) {
		t.Errorf("%d lines: %q", n, said.all)
	}
}

// TestPullThatTheServerEndsSaysWhy: the line has the error.
func TestPullThatTheServerEndsSaysWhy(t *testing.T) {
	said := newEvents()
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.Logger = slog.New(said) })
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, model(t)...))
	if _, err := h.dial().open(t, &trystpb.OpenRequest{Publication: "m"}); err != nil {
		t.Fatal(err)
	}
	h.catalog.Close()
	said.wait("a pull has ended", 1)
	if said.count("reason=Unavailable") != 1 {
		t.Errorf("%q", said.all)
	}
}

// TestLinesAboutPullsAreBounded: a client that opens and ends pulls in a loop does not fill the log. The others
// are at DEBUG, and the next line tells their number.
func TestLinesAboutPullsAreBounded(t *testing.T) {
	const lines, pulls = 30, 100 // maxEndedLinesOfSource
	synctest.Test(t, func(t *testing.T) {
		said := newEvents()
		h := serve(t, func(o *checkpoint.CatalogOptions) { o.Logger = slog.New(said) })
		_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
		must(t, err)
		c := h.dial()
		end := func() {
			o, err := c.open(t, &trystpb.OpenRequest{Publication: "m"})
			must(t, err)
			o.cancel()
			synctest.Wait()
		}
		for range pulls {
			end()
		}
		if n, rest := said.count("INFO a pull has ended"), said.count("DEBUG a pull has ended"); n != lines || rest != pulls-lines {
			t.Errorf("%d lines, and %d at DEBUG", n, rest)
		}
		<-time.After(time.Minute)
		end()
		end()
		if said.count("INFO a pull has ended") != lines+2 || said.count(fmt.Sprint("not_logged=", pulls-lines)) != 1 || said.count("not_logged") != 1 {
			t.Errorf("after a minute: %q", said.all[len(said.all)-4:])
		}
	})
}
