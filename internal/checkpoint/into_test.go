package checkpoint_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// withMemory publishes three tensors and returns memory for them.
func withMemory(t *testing.T) (*host, []*tensor.Tensor, map[string]*tensor.Tensor) {
	t.Helper()
	h := serve(t)
	all := []*tensor.Tensor{named(t, "a", tensor.Float32, 3, 5), named(t, "b", tensor.Int64, 1000), named(t, "c", tensor.Uint8, 0)}
	_, err := h.catalog.PublishTensors(t.Context(), "p", all...)
	must(t, err)
	m, err := h.dial().Describe(t.Context(), "p", "")
	must(t, err)
	into, err := checkpoint.TensorsFor(slices.Values(m.Entries), tensortest.NewAllocator(t))
	must(t, err)
	t.Cleanup(func() {
		for name, x := range into {
			if !x.Buffer().Unique() {
				t.Errorf("the memory of %q has another reference after the test", name)
			}
			x.Release()
		}
	})
	return h, all, into
}

// TestPullInto: a pull receives tensors into memory of the caller's, by name, and yields them;
// what has none comes as always.
func TestPullInto(t *testing.T) {
	h, all, into := withMemory(t)
	c := into["c"]
	delete(into, "c")
	c.Release()
	n := 0
	for x, err := range h.dial().Pull(t.Context(), checkpoint.PullRequest{Tensors: []string{"*"}, Into: into}) {
		must(t, err)
		if own := into[x.Name()]; own != nil && own.Buffer() != x.Buffer() {
			t.Errorf("tensor %q came into other memory", x.Name())
		}
		if x.Name() != all[n].Name() || !tensor.Equal(x, all[n]) {
			t.Errorf("tensor %d is %q, or has another content", n, x.Name())
		}
		n++
		x.Release()
	}
	if n != 3 {
		t.Errorf("%d tensors came", n)
	}
}

// TestPullIntoChoosesItsTensors: without patterns, those that have memory are pulled.
func TestPullIntoChoosesItsTensors(t *testing.T) {
	h, _, into := withMemory(t)
	for _, name := range []string{"b", "c"} {
		into[name].Release()
		delete(into, name)
	}
	for _, x := range h.dial().pull(t, checkpoint.PullRequest{Into: into}) {
		if x.Name() != "a" {
			t.Errorf("%q came", x.Name())
		}
	}
}

// TestPullIntoWhatDoesNotFit: each mistake is named before anything is transferred.
func TestPullIntoWhatDoesNotFit(t *testing.T) {
	h, _, good := withMemory(t)
	other := named(t, "other", tensor.Float32, 15) // as many bytes as a
	text, err := tensor.FromStrings(tensor.Vector(1), []string{"x"})
	must(t, err)
	defer text.Release()
	for what, c := range map[string]struct {
		into  map[string]*tensor.Tensor
		code  status.Code
		words []string
		req   checkpoint.PullRequest
	}{
		"unknown name": {into: map[string]*tensor.Tensor{"aa": other}, code: status.InvalidArgument, words: []string{`"aa"`, `the nearest are "a"`}},
		"shape":        {into: map[string]*tensor.Tensor{"a": other}, code: status.InvalidArgument, words: []string{`"a"`, "float[3,5]", "float[15]"}},
		"type":         {into: map[string]*tensor.Tensor{"b": text}, code: status.InvalidArgument, words: []string{`"b"`, "int64[1000]", "string[1]"}},
		"nil":          {into: map[string]*tensor.Tensor{"b": nil}, code: status.InvalidArgument, words: []string{`"b"`, "nil"}},
		"not chosen": {into: map[string]*tensor.Tensor{"b": good["b"]}, code: status.InvalidArgument, words: []string{`"b"`, "not among"},
			req: checkpoint.PullRequest{Tensors: []string{"a"}}},
		"in use": {into: map[string]*tensor.Tensor{"b": good["b"]}, code: status.FailedPrecondition, words: []string{`"b"`, "Unique"}},
	} {
		t.Run(what, func(t *testing.T) {
			p, puller := at(t, h)
			c.req.Into, c.req.Publication = c.into, "p"
			if what == "in use" {
				defer good["b"].Retain().Release()
			}
			for x, err := range puller.Pull(t.Context(), c.req) {
				if x != nil {
					x.Release()
				}
				mustBe(t, err, c.code, c.words...)
			}
			if n := p.receives(""); n != 0 {
				t.Errorf("%d tensors were requested", n)
			}
		})
	}
	_, err = h.dial().Save(t.Context(), checkpoint.PullRequest{Into: good}, checkpoint.SaveOptions{Out: filepath.Join(t.TempDir(), "x.safetensors")})
	mustBe(t, err, status.InvalidArgument, "Into")
}

// TestPullIntoDamaged: the digest is checked in the memory of the caller's; the tensor is
// requested once more, into the same memory, and the error says what the memory has.
func TestPullIntoDamaged(t *testing.T) {
	h, all, into := withMemory(t)
	// The memory is shared with the host, so the damage stays.
	h.damage = func(v rendezvous.Value) {
		if v.Tensor.DType() == tensor.Int64 {
			v.Tensor.Bytes()[7] ^= 1
		}
	}
	was := bytes.Clone(all[1].Bytes())
	for range 2 { // once damaged, then right
		for x, err := range h.dial().Pull(t.Context(), checkpoint.PullRequest{Into: into}) {
			must(t, err)
			x.Release()
		}
	}
	if !bytes.Equal(into["b"].Bytes(), was) {
		t.Error("the damaged content stayed")
	}
	h.damage = damager(7)
	var failure error
	for x, err := range h.dial().Pull(t.Context(), checkpoint.PullRequest{Into: into}) {
		if failure = err; x != nil {
			x.Release()
		}
	}
	mustBe(t, failure, status.DataLoss, "damaged", "(Into) is undefined")
}

// TestPullIntoSurvivesAnInterruption: the next session receives into the same memory, once no
// writer of the earlier one is left.
func TestPullIntoSurvivesAnInterruption(t *testing.T) {
	h, all, into := withMemory(t)
	p, puller := at(t, h)
	var failed atomic.Int64
	fail := func(edge string) error {
		if !strings.HasSuffix(edge, "b") || failed.Add(1) > 1 {
			return nil
		}
		// A peer may still write to the memory, and cannot soon.
		into["b"].Retain()
		time.AfterFunc(500*time.Millisecond, into["b"].Release)
		return status.New(status.Unavailable, "gone")
	}
	p.fail.Store(&fail)
	n := 0
	for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Into: into}) {
		must(t, err)
		if !tensor.Equal(x, all[n]) {
			t.Errorf("tensor %d has another content", n)
		}
		n++
		x.Release()
	}
	if n != 3 || failed.Load() != 2 {
		t.Errorf("%d tensors, and %d receives of b", n, failed.Load())
	}
}
