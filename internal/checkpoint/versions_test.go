package checkpoint_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// weights returns the tensors of a version: every element is n. Large ones come in several pieces.
func weights(t testing.TB, n float32, sizes ...int64) []*tensor.Tensor {
	t.Helper()
	var all []*tensor.Tensor
	for i, size := range sizes {
		x, err := tensor.Make[float32](tensor.Heap{}, size)
		must(t, err)
		values, err := tensor.Values[float32](x)
		must(t, err)
		for i := range values {
			values[i] = n
		}
		t.Cleanup(x.Release)
		all = append(all, x.Named(string(rune('a'+i))))
	}
	return all
}

// publisher is a host whose pullers get copies, as from another process.
func publisher(t testing.TB, change ...func(*checkpoint.CatalogOptions)) *host {
	h := serve(t, change...)
	h.replace = func(v rendezvous.Value) rendezvous.Value {
		defer v.Tensor.Release()
		var err error
		v.Tensor, err = v.Tensor.Clone(tensor.Heap{})
		must(t, err)
		return v
	}
	return h
}

// numberOf returns the number that all elements have; it fails the test if they differ.
func numberOf(t testing.TB, all []*tensor.Tensor) float32 {
	t.Helper()
	first := float32(-1)
	for _, x := range all {
		values, err := tensor.Values[float32](x)
		must(t, err)
		for _, v := range values {
			if first < 0 {
				first = v
			}
			if v != first {
				t.Fatalf("tensor %s has elements of the versions %v and %v", x.Name(), first, v)
			}
		}
	}
	return first
}

func (h *host) update(all []*tensor.Tensor, o checkpoint.UpdateOptions) *checkpoint.Lent {
	h.t.Helper()
	lent, err := h.catalog.Update(h.t.Context(), "w", all, o)
	must(h.t, err)
	return lent
}

func isDone(l *checkpoint.Lent) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

func TestUpdateMakesTheNextVersion(t *testing.T) {
	h := publisher(t)
	first := h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	second := h.update(weights(t, 2, 10), checkpoint.UpdateOptions{})
	a, b := first.Publication, second.Publication
	if a.Number != 1 || b.Number != 2 || a.Epoch != b.Epoch || a.Epoch == 0 || a.Version == b.Version {
		t.Errorf("versions %+v and %+v", a, b)
	}
	if l := h.catalog.List(); len(l) != 1 || l[0] != b {
		t.Errorf("published: %v", l)
	}
	c := h.dial()
	all, err := c.List(t.Context())
	must(t, err)
	if len(all) != 1 || all[0].Number != 2 || all[0].Epoch != b.Epoch {
		t.Errorf("listed: %v", all)
	}
	if n := numberOf(t, c.pull(t, checkpoint.PullRequest{Publication: "w"})); n != 2 {
		t.Errorf("version %v was pulled", n)
	}
	must(t, first.Wait(t.Context()))
	if isDone(second) {
		t.Error("the memory of the current version is said to be free")
	}
}

func TestUpdateTakesNumbersThatAscend(t *testing.T) {
	h := publisher(t)
	h.update(weights(t, 1, 1), checkpoint.UpdateOptions{Number: 900})
	for _, n := range []uint64{899, 900} {
		_, err := h.catalog.Update(t.Context(), "w", weights(t, 2, 1), checkpoint.UpdateOptions{Number: n})
		mustBe(t, err, status.InvalidArgument, "900")
	}
	if p := h.update(weights(t, 2, 1), checkpoint.UpdateOptions{}).Publication; p.Number != 901 {
		t.Errorf("number %d", p.Number)
	}
}

func TestUpdateRefusesPublishedFiles(t *testing.T) {
	h := publisher(t)
	h.publish("w", writeSafetensors(t, t.TempDir()+"/m.safetensors", nil, weights(t, 1, 1)...))
	_, err := h.catalog.Update(t.Context(), "w", weights(t, 2, 1), checkpoint.UpdateOptions{})
	mustBe(t, err, status.FailedPrecondition, "files")
}

// paused is a pull that waits after its first tensor until go on is called.
type paused struct {
	goOn   func()
	result chan pulled
}

type pulled struct {
	number float32
	err    error
}

// pause begins a pull of w, and returns when its first tensor has come.
func (c *client) pause(t *testing.T, req checkpoint.PullRequest) paused {
	t.Helper()
	first, goOn, result := make(chan struct{}), make(chan struct{}), make(chan pulled, 1)
	req.Publication, req.Inflight, req.InflightBytes = "w", 1, 1
	go func() {
		var all []*tensor.Tensor
		defer func() {
			for _, x := range all {
				x.Release()
			}
		}()
		for x, err := range c.Pull(t.Context(), req) {
			if err != nil {
				result <- pulled{err: err}
				return
			}
			if all = append(all, x); len(all) == 1 {
				close(first)
				<-goOn
			}
		}
		result <- pulled{number: numberOf(t, all)}
	}()
	<-first
	return paused{sync.OnceFunc(func() { close(goOn) }), result}
}

func TestPullsOfTheVersionBeforeGoOn(t *testing.T) {
	h := publisher(t)
	first := h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{})
	p := h.dial().pause(t, checkpoint.PullRequest{})
	h.update(weights(t, 2, 10, 10, 10), checkpoint.UpdateOptions{})
	if isDone(first) {
		t.Error("the memory of a version that is pulled is said to be free")
	}
	p.goOn()
	if got := <-p.result; got.err != nil || got.number != 1 {
		t.Errorf("the pull got %v", got)
	}
	must(t, first.Wait(t.Context()))
}

func TestPullsOfAReplacedVersionEndWithinTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := publisher(t, func(o *checkpoint.CatalogOptions) { o.ReplacedPulls = 10 * time.Millisecond })
		first := h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{})
		p := h.dial().pause(t, checkpoint.PullRequest{})
		defer p.goOn()
		h.update(weights(t, 2, 10, 10, 10), checkpoint.UpdateOptions{})
		must(t, first.Wait(t.Context()))
		p.goOn()
		got := <-p.result
		mustBe(t, got.err, status.FailedPrecondition, "newer version", "number 2", "number 1", "pull it again")
	})
}

func TestUpdateWaitsWhileTwoVersionsAreInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := publisher(t)
		first := h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{})
		p := h.dial().pause(t, checkpoint.PullRequest{})
		h.update(weights(t, 2, 10, 10, 10), checkpoint.UpdateOptions{})
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := h.catalog.Update(short, "w", weights(t, 3, 10, 10, 10), checkpoint.UpdateOptions{})
		mustBe(t, err, status.DeadlineExceeded, "2 versions", "1 pulls")
		if l := h.catalog.List(); l[0].Number != 2 {
			t.Errorf("after an update that gave up: %v", l)
		}
		third := make(chan *checkpoint.Lent)
		go func() { third <- h.update(weights(t, 3, 10, 10, 10), checkpoint.UpdateOptions{}) }()
		p.goOn()
		if got := <-p.result; got.err != nil || got.number != 1 {
			t.Errorf("the pull got %v", got)
		}
		if p := (<-third).Publication; p.Number != 3 {
			t.Errorf("number %d", p.Number)
		}
		must(t, first.Wait(t.Context()))
	})
}

func TestUpdateDropsAVersionThatNobodyHasBegun(t *testing.T) {
	h := publisher(t)
	h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{})
	p := h.dial().pause(t, checkpoint.PullRequest{})
	second := h.update(weights(t, 2, 10, 10, 10), checkpoint.UpdateOptions{Drop: true})
	third := h.update(weights(t, 3, 10, 10, 10), checkpoint.UpdateOptions{Drop: true})
	must(t, second.Wait(t.Context())) // nothing reads it
	if third.Publication.Number != 3 {
		t.Errorf("number %d", third.Publication.Number)
	}
	p.goOn()
	if got := <-p.result; got.err != nil || got.number != 1 {
		t.Errorf("the pull got %v", got)
	}
}

func TestWithdrawEndsPullsAndGivesMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := publisher(t)
		first := h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{})
		p := h.dial().pause(t, checkpoint.PullRequest{})
		second := h.update(weights(t, 2, 10, 10, 10), checkpoint.UpdateOptions{})
		all, err := h.catalog.Withdraw(t.Context(), "w")
		must(t, err)
		must(t, all.Wait(t.Context()))
		if !isDone(first) || !isDone(second) {
			t.Error("the withdrawal is complete before its versions are")
		}
		p.goOn()
		mustBe(t, (<-p.result).err, status.NotFound, "withdrawn")
		if p := h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{}).Publication; p.Number != 1 || p.Epoch == first.Publication.Epoch {
			t.Errorf("after a withdrawal: %+v", p)
		}
	})
}

func TestUpdateEndsWithTheServer(t *testing.T) {
	h := publisher(t)
	h.update(weights(t, 1, 10, 10, 10), checkpoint.UpdateOptions{})
	p := h.dial().pause(t, checkpoint.PullRequest{Retry: -1})
	h.update(weights(t, 2, 10, 10, 10), checkpoint.UpdateOptions{})
	result := make(chan error)
	go func() {
		_, err := h.catalog.Update(t.Context(), "w", weights(t, 3, 10, 10, 10), checkpoint.UpdateOptions{})
		result <- err
	}()
	h.catalog.Close()
	mustBe(t, <-result, status.Unavailable)
	p.goOn()
	<-p.result
	_, err := h.catalog.Update(t.Context(), "w", weights(t, 3, 10, 10, 10), checkpoint.UpdateOptions{})
	mustBe(t, err, status.Unavailable)
}
