package checkpoint_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// ends is a host whose ends of pulls and whose log are read.
func ends(t *testing.T) (h *host, said *events, all chan checkpoint.PullEnd) {
	t.Helper()
	said, all = newEvents(), make(chan checkpoint.PullEnd, 16)
	h = serve(t, func(o *checkpoint.CatalogOptions) {
		o.Logger = slog.New(said)
		o.PullEnded = func(e checkpoint.PullEnd) { all <- e }
	})
	return h, said, all
}

// TestPullEnds: a pull is complete when the puller has asked for all that it wants, and not before.
func TestPullEnds(t *testing.T) {
	h, said, ended := ends(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	want := func(code status.Code, outcome string) {
		t.Helper()
		e := <-ended
		if e.Code != code || e.Took <= 0 {
			t.Errorf("%+v, want %v", e, code)
		}
		if n := said.count("outcome=" + outcome + " code=" + code.String()); n != 1 {
			t.Errorf("%d lines with the outcome %q: %q", n, outcome, said.all)
		}
	}
	h.dial().pull(t, checkpoint.PullRequest{})
	want(status.OK, "complete")
	o, err := h.dial().open(t, &trystpb.OpenRequest{Publication: "m"})
	must(t, err)
	o.cancel()
	want(status.Cancelled, "left")
	if _, err := h.dial().open(t, &trystpb.OpenRequest{Publication: "none"}); err == nil {
		t.Error("a publication that is not there was opened")
	}
	if e := <-ended; e.Code != status.NotFound || e.Took != 0 || said.count("a pull has ended") != 2 {
		t.Errorf("a pull that was refused: %+v; %q", e, said.all)
	}
	h.dial().pull(t, checkpoint.PullRequest{Measurement: true})
	h.dial().pull(t, checkpoint.PullRequest{})
	if e := <-ended; e.Code != status.OK || len(ended) > 0 {
		t.Errorf("a measurement counts: %+v", e)
	}
}

// TestPullCutOffByAWithdrawalIsNotComplete: also when it goes on asking.
func TestPullCutOffByAWithdrawalIsNotComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, said, ended := ends(t)
		var tensors []*tensor.Tensor
		for i := range 20 {
			tensors = append(tensors, named(t, fmt.Sprint("x", i), tensor.Uint8, 1000))
		}
		_, err := h.catalog.PublishTensors(t.Context(), "m", tensors...)
		must(t, err)
		n := 0
		for x, err := range h.dial().Pull(t.Context(), checkpoint.PullRequest{Inflight: 1, InflightBytes: 1}) {
			if err != nil {
				mustBe(t, err, status.NotFound)
				break
			}
			x.Release()
			if n++; n == 2 {
				_, err := h.catalog.Withdraw(t.Context(), "m")
				must(t, err)
			}
		}
		if e := <-ended; e.Code != status.NotFound || n == len(tensors) {
			t.Errorf("%+v after %d tensors", e, n)
		}
		if said.count("outcome=withdrawn") != 1 || said.count("outcome=complete") != 0 {
			t.Errorf("%q", said.all)
		}
	})
}

// TestResumedPullIsComplete when it has brought the rest, and its line has the bytes of the rest.
func TestResumedPullIsComplete(t *testing.T) {
	h, said, ended := ends(t)
	dir := t.TempDir()
	h.publish("m", writeSafetensors(t, filepath.Join(dir, "m.safetensors"), nil, named(t, "x", tensor.Uint8, 5*piece), named(t, "y", tensor.Uint8, 10)))
	_, puller := at(t, h)
	out := checkpoint.SaveOptions{Out: filepath.Join(dir, "copy.safetensors")}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := puller.Save(ctx, checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Progress: func(p checkpoint.Progress) {
		if p.Bytes >= 2*piece {
			cancel()
		}
	}}, out)
	mustBe(t, err, status.Cancelled)
	if e := <-ended; e.Code != status.Cancelled {
		t.Errorf("%+v", e)
	}
	sum, err := puller.Save(t.Context(), checkpoint.PullRequest{}, out)
	must(t, err)
	if e := <-ended; e.Code != status.OK || sum.Resumed == 0 {
		t.Errorf("%+v with %d bytes resumed", e, sum.Resumed)
	}
	rest := 5*piece + 10 - sum.Resumed
	if want := fmt.Sprintf("outcome=complete code=OK tensors=2 bytes=%d sent_bytes=%d ", rest, rest); said.count(want) != 1 {
		t.Errorf("no %q in\n%s", want, strings.Join(said.all, "\n"))
	}
}
