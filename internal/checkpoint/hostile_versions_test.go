package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// announcer is a server whose Watch announces what its lies say.
type announcer struct {
	grpc.ServiceRegistrar
	lies *lies
}

// lies are announced one after the other. A stream begins with the last one that was.
type lies struct {
	mu   sync.Mutex
	all  []*trystpb.Publication
	sent int           // of these
	more chan struct{} // closed, and replaced, when there are more
}

func newLies() *lies { return &lies{more: make(chan struct{})} }

func (l *lies) say(p *trystpb.Publication) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, p)
	close(l.more)
	l.more = make(chan struct{})
}

// from returns the lies from one on, and what is closed when there are more; those after the last one that was sent for at < 0.
func (l *lies) from(at int) (lies []*trystpb.Publication, next int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at < 0 {
		at = max(l.sent-1, 0)
	}
	l.sent = len(l.all)
	return l.all[at:], len(l.all), l.more
}

func (a announcer) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Streams = slices.Clone(desc.Streams)
	for i := range d.Streams {
		if d.Streams[i].StreamName == "Watch" {
			d.Streams[i].Handler = func(_ any, s grpc.ServerStream) error { return a.announce(s) }
		}
	}
	a.ServiceRegistrar.RegisterService(&d, impl)
}

func (a announcer) announce(s grpc.ServerStream) error {
	if err := s.RecvMsg(&trystpb.WatchRequest{}); err != nil {
		return err
	}
	for at := -1; ; {
		lies, next, more := a.lies.from(at)
		for _, p := range lies {
			if err := s.SendMsg(&trystpb.WatchResponse{Publication: p}); err != nil {
				return err
			}
		}
		at = next
		select {
		case <-more:
		case <-s.Context().Done():
			return nil
		}
	}
}

// lying is a publisher that announces what the caller says.
func lying(t *testing.T) (h *host, say func(*trystpb.Publication)) {
	h = publisher(t)
	h.grpc.Stop()
	lies := newLies()
	h.listen(grpc.NewServer(), func(r grpc.ServiceRegistrar) grpc.ServiceRegistrar { return announcer{r, lies} })
	return h, lies.say
}

// announced is the message for a version.
func announced(p checkpoint.Publication) *trystpb.Publication {
	return &trystpb.Publication{Name: p.Name, Version: p.Version, Number: p.Number, Epoch: p.Epoch}
}

// A server announces thousands of versions that it does not have, and goes back in number: the watcher yields the true ones, each
// once.
func TestWatchOfAServerThatAnnouncesWhatIsNotThere(t *testing.T) {
	h, say := lying(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	p := h.update(weights(t, 1, 10), checkpoint.UpdateOptions{Number: 5000}).Publication
	for n := range uint64(5000) {
		say(&trystpb.Publication{Name: "w", Version: fmt.Sprintf("%016x", n), Number: n, Epoch: p.Epoch})
	}
	say(announced(p))
	w.next(t, 1).Release()
	for n := p.Number; n > 4900; n-- { // the same number with another content, and lower ones
		say(&trystpb.Publication{Name: "w", Version: "aa", Number: n, Epoch: p.Epoch})
	}
	say(announced(h.update(weights(t, 2, 10), checkpoint.UpdateOptions{}).Publication))
	if v := w.next(t, 2); v.Number != 5001 {
		t.Errorf("number %d", v.Number)
	} else {
		v.Release()
	}
}

func TestWatchRefusesAnotherPublication(t *testing.T) {
	for name, lie := range map[string]*trystpb.Publication{
		"another name":       {Name: "v", Version: "aa", Number: 1, Epoch: 1},
		"no name":            {Version: "aa", Number: 1, Epoch: 1},
		"no version":         {Name: "w", Number: 1, Epoch: 1},
		"an endless version": {Name: "w", Version: strings.Repeat("a", 1<<20), Number: 1, Epoch: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h, say := lying(t)
			w := h.dial().watch(t, checkpoint.WatchRequest{})
			say(lie)
			mustBe(t, <-w.err, status.InvalidArgument, "announced")
		})
	}
}

func TestMirrorRefusesAVersionThatIsNoName(t *testing.T) {
	h, say := lying(t)
	result := make(chan error)
	dir := t.TempDir()
	go func() {
		result <- h.dial().Mirror(t.Context(), checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: dir + "/out/"},
			func(context.Context, checkpoint.Mirrored) error { return errors.New("it came") })
	}()
	say(&trystpb.Publication{Name: "w", Version: "/../../x", Number: 1, Epoch: 1})
	mustBe(t, <-result, status.InvalidArgument, "no name for a directory")
}

func TestWatchTakesTypesThatChange(t *testing.T) {
	h := publisher(t)
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Uint8, tensor.Float32} {
		h.update([]*tensor.Tensor{named(t, "x", dtype, 10)}, checkpoint.UpdateOptions{})
		v := <-w.versions
		if v == nil {
			t.Fatal(<-w.err)
		}
		if got := v.Tensors[0].DType(); got != dtype {
			t.Errorf("it has %v, want %v", got, dtype)
		}
		v.Release()
	}
}

func TestUpdateRefusesTensorsWithoutNames(t *testing.T) {
	h := publisher(t)
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	for _, wrong := range [][]*tensor.Tensor{{nil}, {weights(t, 2, 1)[0].Named("")}} {
		_, err := h.catalog.Update(t.Context(), "w", wrong, checkpoint.UpdateOptions{})
		mustBe(t, err, status.InvalidArgument)
	}
	_, err := h.catalog.Update(t.Context(), "w", append(weights(t, 2, 10), weights(t, 2, 10)...), checkpoint.UpdateOptions{})
	mustBe(t, err, status.AlreadyExists, "two tensors")
	if l := h.catalog.List(); len(l) != 1 || l[0].Number != 1 {
		t.Errorf("after refused updates: %v", l)
	}
}
