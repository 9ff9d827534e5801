package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
)

// whileCompared publishes two files as a and b on virtual time and touches a. The comparison
// of its content does not end before the test calls release.
func whileCompared(t *testing.T, test func(t *testing.T, c *Catalog, release func())) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{Device: cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}, Incarnation: 1, CacheBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		paths := make(map[string]string)
		for name, seed := range map[string]byte{"a": 1, "b": 2} {
			paths[name] = writeSeeded(t, filepath.Join(t.TempDir(), name+".safetensors"), seed)
			if _, err := c.Publish(t.Context(), name, paths[name]); err != nil {
				t.Fatal(err)
			}
		}
		for range cap(c.comparisons.slots) {
			c.comparisons.slots <- struct{}{}
		}
		if err := os.Chtimes(paths["a"], time.Time{}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		test(t, c, func() {
			for range cap(c.comparisons.slots) {
				<-c.comparisons.slots
			}
		})
	})
}

// requests requests tensors of a publication, at most n.
func requests(ctx context.Context, c *Catalog, publication string, n int) (all []chan result) {
	for i, e := range c.publications[publication].entries {
		if i < n {
			all = append(all, get(ctx, c.loader, e))
		}
	}
	return all
}

// A file that was touched is compared while the tensors of others are read. Its own tensors come
// after that.
func TestATouchedFileHoldsNoReader(t *testing.T) {
	whileCompared(t, func(t *testing.T, c *Catalog, release func()) {
		touched := requests(t.Context(), c, "a", maxReaders+1)
		if len(touched) <= maxReaders {
			t.Fatalf("%d tensors are not more than the readers", len(touched))
		}
		synctest.Wait()
		for _, r := range requests(t.Context(), c, "b", 1) {
			synctest.Wait()
			select {
			case got := <-r:
				if got.err != nil {
					t.Fatal(got.err)
				}
				got.t.Release()
			default:
				t.Error("a tensor of another file waits")
			}
		}
		release()
		for _, r := range touched {
			got := <-r
			if got.err != nil {
				t.Fatal(got.err)
			}
			got.t.Release()
		}
	})
}

// Neither the watch nor the end of a publication waits for a comparison, and its requests end.
func TestAPublicationEndsDuringAComparison(t *testing.T) {
	whileCompared(t, func(t *testing.T, c *Catalog, release func()) {
		p := c.publications["a"]
		ctx, cancel := context.WithCancel(t.Context())
		cancelled, rest := requests(ctx, c, "a", 1), requests(t.Context(), c, "a", 3)[1:]
		synctest.Wait()
		cancel()
		if got := <-cancelled[0]; status.CodeOf(got.err) != status.Cancelled {
			t.Errorf("a request whose context has ended: %v", got.err)
		}
		if p.replaced() != nil {
			t.Error("a touched file was replaced")
		}
		if _, err := c.Withdraw(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		release()
		for _, r := range rest {
			if got := <-r; status.CodeOf(got.err) != status.NotFound {
				t.Errorf("a request for what was withdrawn: %v", got.err)
			}
		}
	})
}

// Close ends comparisons, and what waits for them.
func TestCloseEndsAComparison(t *testing.T) {
	whileCompared(t, func(t *testing.T, c *Catalog, release func()) {
		r := requests(t.Context(), c, "a", 1)[0]
		synctest.Wait()
		c.Close()
		if got := <-r; status.CodeOf(got.err) != status.Unavailable {
			t.Errorf("a request of a closed catalog: %v", got.err)
		}
	})
}

// opening is the stream of a puller.
type opening struct {
	grpc.ServerStreamingServer[trystpb.OpenResponse]
	ctx context.Context
}

func (o opening) Context() context.Context         { return o.ctx }
func (o opening) Send(*trystpb.OpenResponse) error { return nil }

// A pull that waits for a comparison counts as a pull, and ends with its stream.
func TestAPullEndsDuringAComparison(t *testing.T) {
	whileCompared(t, func(t *testing.T, c *Catalog, release func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- c.open(&trystpb.OpenRequest{Publication: "a", Puller: "/job:client/replica:0/task:17"}, opening{ctx: ctx}, new(bool))
		}()
		synctest.Wait()
		if n := c.Pulls(); n != 1 {
			t.Errorf("%d pulls", n)
		}
		cancel()
		select {
		case err := <-ended:
			if status.CodeOf(err) != status.Cancelled {
				t.Errorf("the pull ended with %v", err)
			}
		case <-time.After(time.Hour):
			t.Error("the pull goes on")
			release()
			cancel()
			if err := <-ended; err != nil {
				t.Log(err)
			}
		}
		if n := c.Pulls(); n != 0 {
			t.Errorf("%d pulls after its end", n)
		}
	})
}

// A report of a damaged tensor holds no other pull and no reader up while the server compares the tensor.
func TestAReportHoldsNothingUp(t *testing.T) {
	whileCompared(t, func(t *testing.T, c *Catalog, release func()) {
		defer release()
		ctx, cancel := context.WithCancel(t.Context())
		open := func(damaged string) (keys chan struct{}, ended chan error) {
			keys, ended = make(chan struct{}, 1), make(chan error, 1)
			req := &trystpb.OpenRequest{Publication: "b", Puller: "/job:client/replica:0/task:17", Damaged: damaged}
			go func() { ended <- c.open(req, sending{opening{ctx: ctx}, keys}, new(bool)) }()
			synctest.Wait()
			return keys, ended
		}
		reported, first := open(c.publications["b"].entries[0].info.Name)
		other, second := open("")
		read := requests(t.Context(), c, "b", 1)[0]
		synctest.Wait()
		if len(reported) > 0 || len(other) != 1 || len(read) != 1 {
			t.Errorf("the report has %d answers, another pull %d, a tensor %d; want 0, 1, 1", len(reported), len(other), len(read))
		}
		cancel()
		if err := <-first; status.CodeOf(err) != status.Cancelled {
			t.Errorf("the report ended with %v", err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
		got := <-read
		if got.err != nil {
			t.Fatal(got.err)
		}
		got.t.Release()
	})
}

// sending is an opening that notes that keys were sent.
type sending struct {
	opening
	keys chan struct{}
}

func (s sending) Send(*trystpb.OpenResponse) error {
	s.keys <- struct{}{}
	return nil
}
