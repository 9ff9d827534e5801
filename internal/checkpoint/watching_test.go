package checkpoint_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// watching returns the watchers when ok reports that they are as they should be.
func (h *host) watching(t *testing.T, what string, ok func(all []checkpoint.Watching) bool) []checkpoint.Watching {
	t.Helper()
	for tick, end := time.NewTicker(time.Millisecond), time.After(20*time.Second); ; {
		all, _ := h.catalog.Watching(100)
		if ok(all) {
			return all
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never %s: %+v", what, all)
		}
	}
}

// one returns whether there is one watcher with a version.
func one(number uint64, behind int, by string) func(all []checkpoint.Watching) bool {
	return func(all []checkpoint.Watching) bool {
		return len(all) == 1 && all[0].Number == number && all[0].Behind == behind && all[0].By == by
	}
}

// is waits until the client's one watch is as it should be.
func (c *client) is(t *testing.T, what string, ok func(checkpoint.WatchState) bool) {
	t.Helper()
	for tick, end := time.NewTicker(time.Millisecond), time.After(20*time.Second); ; {
		if all := c.Watches(); len(all) == 1 && ok(all[0]) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never %s: %+v", what, c.Watches())
		}
	}
}

// told waits until the server knows that so many watchers have a version, and that they watch. Each opens another stream to say
// so, between which nobody watches.
func (h *host) told(t *testing.T, watchers int, number uint64) {
	t.Helper()
	h.watching(t, "with the version", func(all []checkpoint.Watching) bool {
		return len(all) == watchers && !slices.ContainsFunc(all, func(w checkpoint.Watching) bool { return w.Number != number })
	})
}

func TestWatchersAreShown(t *testing.T) {
	h := publisher(t)
	first := bf16(t, 1, 100_000, 1000)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	all := h.watching(t, "before there is a version", one(0, 0, ""))
	if all[0].Publication != "w" || all[0].Watcher.Job != "client" || all[0].Address == "" || time.Since(all[0].Since) > time.Minute {
		t.Errorf("%+v", all)
	}
	p := h.update(first, checkpoint.UpdateOptions{}).Publication
	v := w.nextSame(t, first)
	all = h.watching(t, "with the first version", one(1, 0, checkpoint.ByWhole))
	if all[0].Version != p.Version {
		t.Errorf("version %s, want %s", all[0].Version, p.Version)
	}
	second := changed(t, first, 100)
	h.update(second, checkpoint.UpdateOptions{Number: 20})
	v2 := w.nextSame(t, second)
	h.watching(t, "with the second version, by deltas", one(20, 0, checkpoint.ByDeltas))
	if offers := h.catalog.Offers(); offers[0].Watchers != 1 {
		t.Errorf("offers: %+v", offers)
	}
	// It holds two versions, and cannot take another one.
	for n, last := 1, second; n < 4; n++ { // each has another content
		last = changed(t, last, 100+n)
		h.update(last, checkpoint.UpdateOptions{})
		h.watching(t, "behind", one(20, n, checkpoint.ByDeltas))
	}
	v.Release()
	v2.Release()
	w.nextOf(t).Release()
	h.watching(t, "with the newest version", one(23, 0, checkpoint.ByDeltas))
	must(t, h.withdraw("w"))
	h.watching(t, "without a publication", one(23, 0, checkpoint.ByDeltas))
	h.update(first, checkpoint.UpdateOptions{})
	w.nextSame(t, first).Release()
	h.watching(t, "with the first version of another life", one(1, 0, checkpoint.ByWhole))
	w.stop()
	h.watching(t, "without watchers", func(all []checkpoint.Watching) bool { return len(all) == 0 })
}

// What a watch has, and what it knows of its server, in its own process.
func TestWatchesOfAProcess(t *testing.T) {
	h := publisher(t)
	c := h.dial()
	if all := c.Watches(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	first := bf16(t, 1, 100_000)
	p := h.update(first, checkpoint.UpdateOptions{}).Publication
	w := c.watch(t, checkpoint.WatchRequest{})
	v := w.nextSame(t, first)
	if all := c.Watches(); len(all) != 1 || all[0].Publication != "w" || all[0].Version != p.Version || all[0].Number != 1 || all[0].NewestNumber != 1 ||
		all[0].By != checkpoint.ByWhole || !all[0].Silent.IsZero() || all[0].Since.IsZero() || all[0].Server == "" {
		t.Errorf("%+v", all)
	}
	second := changed(t, first, 100)
	h.told(t, 1, 1)
	h.update(second, checkpoint.UpdateOptions{})
	v2 := w.nextSame(t, second) // now it holds two, and can take none
	h.update(changed(t, second, 101), checkpoint.UpdateOptions{})
	c.is(t, "behind", func(s checkpoint.WatchState) bool {
		return s.Number == 2 && s.NewestNumber == 3 && s.By == checkpoint.ByDeltas
	})
	h.grpc.Stop()
	c.is(t, "silent", func(s checkpoint.WatchState) bool { return !s.Silent.IsZero() })
	w.stop()
	v.Release()
	v2.Release()
	for range w.versions { // until its loop has ended
	}
	if all := c.Watches(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// A version that differs in nothing is not requested, and a watcher that comes again says what it has.
func TestWatcherOfWhatItHasIsNotBehind(t *testing.T) {
	h := publisher(t)
	first := bf16(t, 1, 1000)
	h.update(first, checkpoint.UpdateOptions{})
	c := h.dial()
	w := c.watch(t, checkpoint.WatchRequest{})
	w.nextSame(t, first).Release()
	h.watching(t, "with the first version", one(1, 0, checkpoint.ByWhole))
	h.update(first, checkpoint.UpdateOptions{})
	w.nextSame(t, first).Release()
	h.watching(t, "with the second version", one(2, 0, checkpoint.ByWhole))
	c.moveTo(h) // its connections break
	h.watching(t, "back", one(2, 0, checkpoint.ByWhole))
}

// A version that needs no transfer counts: the server has restarted with the same content, or the content is that of the
// watcher's other memory.
func TestWatcherHasAVersionThatNeededNoTransfer(t *testing.T) {
	h := publisher(t)
	a, b := bf16(t, 1, 1000), bf16(t, 2, 1000)
	c := h.dial()
	w := c.watch(t, checkpoint.WatchRequest{})
	for i, model := range [][]*tensor.Tensor{a, b, a} {
		h.update(model, checkpoint.UpdateOptions{})
		w.nextSame(t, model).Release()
		h.watching(t, "with the version", one(uint64(i)+1, 0, checkpoint.ByWhole))
	}
	again := publisher(t)
	p := again.update(a, checkpoint.UpdateOptions{}).Publication
	c.moveTo(again)
	w.nextSame(t, a).Release()
	if all := again.watching(t, "with the version of the other life", one(1, 0, checkpoint.ByWhole)); all[0].Version != p.Version {
		t.Errorf("%+v", all)
	}
}

// A version in place is the watcher's when it was applied, and not when it was yielded.
func TestWatcherInPlaceHasWhatItHasApplied(t *testing.T) {
	h := publisher(t)
	a, b := bf16(t, 1, 1000), bf16(t, 2, 1000)
	h.update(a, checkpoint.UpdateOptions{})
	c, round := h.dial(), 0
	for v, err := range c.Watch(t.Context(), checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "w"}, Into: []map[string]*tensor.Tensor{copies(t, a)}}) {
		must(t, err)
		switch round++; round {
		case 1:
			h.watching(t, "with nothing", one(0, 1, ""))
			must(t, v.Apply(t.Context()))
			h.watching(t, "with the first version", one(1, 0, checkpoint.ByWhole))
			h.update(b, checkpoint.UpdateOptions{})
		case 2:
			since := time.Now()
			c.moveTo(h) // its connections break, and it comes again
			h.watching(t, "with the first version still", func(all []checkpoint.Watching) bool {
				return one(1, 1, checkpoint.ByWhole)(all) && all[0].Since.After(since)
			})
			must(t, v.Apply(t.Context()))
			h.watching(t, "with the second version", one(2, 0, checkpoint.ByWhole))
			return
		}
	}
}

// Tensors that did not change are no deltas, for the server and for the process that watches.
func TestWatcherOfSomeWholeTensorsHasNoDeltas(t *testing.T) {
	h := publisher(t, func(o *checkpoint.CatalogOptions) { o.NoDeltas = true })
	a, other := bf16(t, 1, 1000, 2000), bf16(t, 2, 1000, 2000)
	b := []*tensor.Tensor{a[0], other[1]}
	h.update(a, checkpoint.UpdateOptions{})
	c := h.dial()
	w := c.watch(t, checkpoint.WatchRequest{})
	w.nextSame(t, a).Release()
	h.update(b, checkpoint.UpdateOptions{})
	w.nextSame(t, b).Release()
	h.watching(t, "with the second version", one(2, 0, checkpoint.ByWhole))
	if own := c.Watches(); own[0].By != checkpoint.ByWhole {
		t.Errorf("%+v", own)
	}
}

// A pull beside a watch, even a complete one, brings the watcher nothing. A watch of whole versions counts as others do.
func TestOnlyAWatchSaysWhatAWatcherHas(t *testing.T) {
	h := publisher(t)
	first := bf16(t, 1, 1000)
	h.update(first, checkpoint.UpdateOptions{})
	c := h.dial()
	w := c.watch(t, checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Whole: true}})
	v := w.nextSame(t, first)
	h.update(bf16(t, 2, 1000), checkpoint.UpdateOptions{})
	v2 := w.nextOf(t)
	h.watching(t, "with the second version", one(2, 0, checkpoint.ByWhole))
	third := bf16(t, 3, 1000)
	h.update(third, checkpoint.UpdateOptions{}) // it holds two, and cannot take it
	for _, err := range c.Pull(t.Context(), checkpoint.PullRequest{Publication: "w"}) {
		must(t, err)
	}
	h.watching(t, "with the second version still", one(2, 1, checkpoint.ByWhole))
	v.Release()
	v2.Release()
	w.nextSame(t, third).Release()
	h.watching(t, "with the third version", one(3, 0, checkpoint.ByWhole))
}

// Whoever opens many streams hides no watcher, whatever he says and pulls, and a status shows a bounded number.
func TestManyWatchersAreBounded(t *testing.T) {
	h := publisher(t)
	first := bf16(t, 1, 1000)
	h.update(first, checkpoint.UpdateOptions{})
	conn := h.dial().conn
	for range 60 {
		s, err := trystgrpc.NewPublicationsClient(conn).Watch(t.Context(), &trystpb.WatchRequest{Publication: "w", Watcher: "/job:liar/task:1", HasNumber: 1 << 60, HasEpoch: 7})
		must(t, err)
		_, err = s.Recv()
		must(t, err)
	}
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	w.nextSame(t, first).Release()
	h.watching(t, "the honest one", func(all []checkpoint.Watching) bool {
		return len(all) == 61 && all[1].Watcher.Job == "client" && all[1].Number == 1
	})
	o, err := trystgrpc.NewPublicationsClient(conn).Open(metadata.AppendToOutgoingContext(t.Context(), "tryst-wanted-bytes", "0"), &trystpb.OpenRequest{Publication: "w", Puller: "/job:liar/task:1"})
	must(t, err)
	_, err = o.Recv()
	must(t, err)
	if all, total := h.catalog.Watching(5); len(all) != 5 || total != 61 || all[1].Watcher.Job != "client" {
		t.Errorf("%d of %d: %+v", len(all), total, all)
	}
}

// The name of a caller is in the log and in a status, so neither a watcher nor a puller has a long one.
func TestTaskNamesOfCallersAreBounded(t *testing.T) {
	h := publisher(t)
	h.update(bf16(t, 1, 1000), checkpoint.UpdateOptions{})
	client := trystgrpc.NewPublicationsClient(h.dial().conn)
	for length, want := range map[int]status.Code{1024: status.OK, 1025: status.InvalidArgument, 3 << 20: status.InvalidArgument} {
		name := "/job:" + strings.Repeat("a", length-len("/job:/task:1")) + "/task:1"
		w, err := client.Watch(t.Context(), &trystpb.WatchRequest{Publication: "w", Watcher: name})
		must(t, err)
		if _, err = w.Recv(); status.CodeOf(err) != want {
			t.Errorf("a watcher of %d bytes: %v, want %v", length, status.CodeOf(err), want)
		}
		o, err := client.Open(t.Context(), &trystpb.OpenRequest{Publication: "w", Puller: name})
		must(t, err)
		if _, err = o.Recv(); status.CodeOf(err) != want || err != nil && len(err.Error()) > 1000 {
			t.Errorf("a puller of %d bytes: %v, want %v", length, status.CodeOf(err), want)
		}
	}
}

func TestWatcherWithAWrongNameIsRefused(t *testing.T) {
	h := publisher(t, func(o *checkpoint.CatalogOptions) {
		o.CheckPuller = func(_ context.Context, task cluster.Task) error {
			if task.Job == "other" {
				return status.New(status.PermissionDenied, "it is another one's name")
			}
			return nil
		}
	})
	conn := h.dial().conn
	for name, want := range map[string]status.Code{"/job:other/task:1": status.PermissionDenied, "nobody": status.InvalidArgument} {
		s, err := trystgrpc.NewPublicationsClient(conn).Watch(t.Context(), &trystpb.WatchRequest{Publication: "w", Watcher: name})
		must(t, err)
		_, err = s.Recv()
		if got := status.CodeOf(err); got != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}
