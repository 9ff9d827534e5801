package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// checkpointFile makes a safetensors file with some tensors, and one of more bytes than a piece
// if large is set.
func checkpointFile(t *testing.T, large bool) string {
	t.Helper()
	s, err := Start(t.Context(), settings(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	var tensors []*tensor.Tensor
	for i, n := range []int{3000, 1, 200_000, 0, 70_000, 35 << 20} {
		if n > 1<<20 && !large {
			continue
		}
		b := make([]byte, n)
		for k := range b {
			b[k] = byte(k*(i+1) ^ k>>8 ^ k>>16)
		}
		x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(n), b)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, x.Named(fmt.Sprint("x", i)))
	}
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", tensors...); err != nil {
		t.Fatal(err)
	}
	c := dial(t, Config{}, s.Addr().String())
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if _, err := c.Puller().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: path}); err != nil {
		t.Fatal(err)
	}
	return path
}

// publisher starts a server of a file.
func publisher(t *testing.T, listen, path string) *Server {
	t.Helper()
	s, err := Start(t.Context(), settings(func(c *Config) {
		c.Listen, c.ShutdownTimeout = listen, 100*time.Millisecond
	}), Options{Prepare: func(ctx context.Context, s *Server) error {
		_, err := s.Catalog().Publish(ctx, "m", path)
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) }) // some are closed in mid-pull
	return s
}

// saved pulls into a file and compares it with the published one.
func saved(t *testing.T, c *Client, req checkpoint.PullRequest, published string) *checkpoint.Summary {
	t.Helper()
	out := filepath.Join(t.TempDir(), "copy.safetensors")
	sum, err := c.Puller().Save(t.Context(), req, checkpoint.SaveOptions{Out: out})
	if err != nil {
		t.Fatal(err)
	}
	a, err := os.ReadFile(published)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the copy differs")
	}
	if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return sum
}

// TestPullSurvivesAResetAtAnyByte: the connection is reset once, at each of many positions, from
// the first question to the last tensor.
func TestPullSurvivesAResetAtAnyByte(t *testing.T) {
	t.Parallel()
	path := checkpointFile(t, false)
	s := publisher(t, "127.0.0.1:0", path)
	var whole int64 // what a pull without a reset receives
	cutAt := func(at int64) (carried int64) {
		p := transporttest.NewProxy(t)
		defer p.Close()
		p.SetTarget(s.Addr().String())
		var cut <-chan struct{}
		if at >= 0 {
			cut = p.CutAfter(at)
		}
		c, err := Dial(t.Context(), Config{Transport: TransportGRPC}, p.Addr(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		var told []checkpoint.Interruption
		saved(t, c, checkpoint.PullRequest{Inflight: 2, Interrupted: func(i checkpoint.Interruption) { told = append(told, i) }}, path)
		if len(told) > 0 && (!strings.Contains(told[0].Err.Error(), p.Addr()) || len(told) != 2) {
			t.Errorf("a reset at byte %d: %v", at, told)
		}
		if at >= 0 {
			select {
			case <-cut:
			default:
				t.Errorf("no reset at byte %d of %d", at, whole)
			}
		}
		return p.Carried()
	}
	whole = cutAt(-1)
	every := int64(40) // the questions and the keys
	if testing.Short() {
		every = 173
	}
	const varies = 2000 // bytes of frames that a pull has or has not
	for at := int64(0); at < whole-varies; at += every {
		cutAt(at)
		if at > 3000 {
			at += whole / 29 // the tensors
		}
	}
}

// TestPullSurvivesTheEndOfAStalledConnection: nothing comes any more, and then the connection is
// closed, as by the keepalive of the operating system. The keepalive itself needs a host that is gone.
func TestPullSurvivesTheEndOfAStalledConnection(t *testing.T) {
	path := checkpointFile(t, false)
	s := publisher(t, "127.0.0.1:0", path)
	p := transporttest.NewProxy(t)
	p.SetTarget(s.Addr().String())
	stuck := p.HoldAfter(50_000)
	c := dial(t, Config{Transport: TransportGRPC}, p.Addr())
	go func() {
		<-stuck
		p.Release()
		p.CutAfter(0)
	}()
	saved(t, c, checkpoint.PullRequest{}, path)
}

// TestPullSurvivesARestart of the server, killed or in order, with the same version, in the middle
// of a tensor. What came before is not sent again.
func TestPullSurvivesARestart(t *testing.T) {
	path := checkpointFile(t, true)
	for _, way := range []string{"killed", "in order"} {
		t.Run(way, func(t *testing.T) {
			listen := transporttest.FreeAddresses(t, 1)[0]
			s := publisher(t, listen, path)
			p := transporttest.NewProxy(t)
			p.SetTarget(listen)
			c := dial(t, Config{Transport: TransportGRPC}, p.Addr())
			reached := p.HoldAfter(20 << 20)
			restarted := make(chan struct{})
			go func() {
				defer close(restarted)
				<-reached
				if way == "killed" { // its connections are reset, and it is gone
					p.SetTarget("")
					p.Release()
					p.CutAfter(0)
					_ = s.Close(context.Background())
				} else {
					p.Release()
					p.Throttle(1 << 20)               // too slow to end before the server does
					_ = s.Close(context.Background()) // it says that it cuts off the pull
					p.Throttle(0)
				}
				publisher(t, listen, path)
				p.SetTarget(listen)
			}()
			var told []checkpoint.Interruption
			saved(t, c, checkpoint.PullRequest{Inflight: 2, Interrupted: func(i checkpoint.Interruption) { told = append(told, i) }}, path)
			<-restarted
			if len(told) != 2 || !strings.Contains(told[0].Err.Error(), p.Addr()) {
				t.Errorf("told %v", told)
			}
			if n := p.Carried(); n > 75<<20 { // 35, and at most what was under way when it was cut
				t.Errorf("%d bytes were sent for a file of 35 MiB", n)
			}
		})
	}
}

// TestPullFromAServerThatStarts waits until all is published: it does not take the first
// publication for the only one.
func TestPullFromAServerThatStarts(t *testing.T) {
	x := float(t, 7)
	defer x.Release()
	listen := transporttest.FreeAddresses(t, 1)[0]
	var pulled chan error
	s, err := Start(t.Context(), settings(func(c *Config) { c.Listen = listen }), Options{Prepare: func(_ context.Context, s *Server) error {
		if _, err := s.Catalog().PublishTensors(t.Context(), "a", x.Named("w")); err != nil {
			return err
		}
		told := make(chan checkpoint.Interruption, 2)
		pulled = make(chan error, 1)
		c := dial(t, Config{Transport: TransportGRPC}, listen)
		go func() {
			for y, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{Interrupted: func(i checkpoint.Interruption) { told <- i }}) {
				if err != nil {
					pulled <- err
					return
				}
				y.Release()
			}
			pulled <- nil
		}()
		wantError(t, wait(t, told, "an interruption").Err, status.Unavailable, "the server "+listen+" says: \"the server is starting")
		_, err := s.Catalog().PublishTensors(t.Context(), "b", x.Named("w"))
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	wantError(t, wait(t, pulled, "the pull"), status.InvalidArgument, `2 publications ("a", "b")`)
}

// TestPullFromAServerWithAnotherVersion after a restart is an error that names both.
func TestPullFromAServerWithAnotherVersion(t *testing.T) {
	listen := transporttest.FreeAddresses(t, 1)[0]
	s := publisher(t, listen, checkpointFile(t, true))
	p := transporttest.NewProxy(t)
	p.SetTarget(listen)
	c := dial(t, Config{Transport: TransportGRPC}, p.Addr())
	before := s.Catalog().List()[0].Version
	other := checkpointFile(t, false)
	reached := p.HoldAfter(20 << 20)
	after := make(chan string, 1)
	go func() {
		<-reached
		p.SetTarget("")
		p.Release()
		p.CutAfter(0)
		_ = s.Close(context.Background())
		after <- publisher(t, listen, other).Catalog().List()[0].Version
		p.SetTarget(listen)
	}()
	dir := t.TempDir()
	_, err := c.Puller().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: filepath.Join(dir, "m.safetensors")})
	wantError(t, err, status.FailedPrecondition, before, <-after, p.Addr(), "m.safetensors.part")
}

// TestCacheOfFilesLeavesRoomInTheMemoryForSending: over a device that pins memory, and without fallback, the cache would
// fill the memory for sending, in which it lies. Pulls at once of a file that is larger get all of it, and other content
// is copied there.
func TestCacheOfFilesLeavesRoomInTheMemoryForSending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.npy")
	large := tensortest.Random(rand.New(rand.NewPCG(1, 2)), tensor.Uint8, tensortest.Shape(t, 96<<20), tensor.Heap{}) //nolint:gosec // a test that can be repeated
	defer large.Release()
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(npy.Write(file, large), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	w := newVerbsTown(t, 2, verbstest.DeviceOptions{NoGoMemory: true})
	none := func(c *Config) { c.Fallback = FallbackNone }
	a, b := w.start(0, none), w.start(1, none)
	w.up(a, b.Task())
	if _, err := a.Catalog().Publish(t.Context(), "m", path); err != nil {
		t.Fatal(err)
	}
	c := w.settings(0, func(c *Config) { c.Fallback = FallbackNone }).ForClient()
	c.Cluster = nil
	puller := func(i int) *Client {
		cl, err := Dial(t.Context(), c, a.Addr().String(), Options{Provider: w.provider(i + 2), Allocator: tensor.Heap{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cl.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return cl
	}
	// One pull stays under way, so that there is something to share. The others fill the cache.
	next, stop := iter.Pull2(puller(0).Puller().Pull(t.Context(), checkpoint.PullRequest{Publication: "m"}))
	defer stop()
	x, err, _ := next()
	if err != nil {
		t.Fatal(err)
	}
	x.Release()
	var pulls sync.WaitGroup
	for i := range 2 {
		cl := puller(i + 1)
		out := filepath.Join(t.TempDir(), "m.safetensors")
		pulls.Go(func() {
			if _, err := cl.Puller().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: out}); err != nil { // it checks the digest
				t.Error(err)
			}
		})
	}
	pulls.Wait()
	if n := a.Memory().Sending.InUse; n < 32<<20 {
		t.Errorf("%d bytes of the memory for sending are in use: the cache is too empty to test anything", n)
	}
	content := tensortest.Random(rand.New(rand.NewPCG(1, 2)), tensor.Uint8, tensortest.Shape(t, 24<<20), tensor.Heap{}) //nolint:gosec // a test that can be repeated
	defer content.Release()
	got := b.recv(1, a.Task().String(), "x")
	if err := a.Send(1, b.Task().String(), "x", content, false); err != nil {
		t.Fatal(err)
	}
	o := wait(t, got, "the content")
	if o.err != nil {
		t.Fatal(o.err)
	}
	if !tensor.Equal(o.v.Tensor, content) {
		t.Error("other content came")
	}
	o.v.Tensor.Release()
}

// TestPullOutlivesAServerWithoutMemory: a server whose memory others have refuses the receives of a pull. The pull tries
// again, and goes on when they have released some.
func TestPullOutlivesAServerWithoutMemory(t *testing.T) {
	path := checkpointFile(t, false)
	s, err := Start(t.Context(), settings(func(c *Config) {
		c.Memory, c.Publications.FileCache, c.Transport = 256<<20, 1<<20, TransportGRPC // registered memory is a part of its own
	}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Catalog().Publish(t.Context(), "m", path); err != nil {
		t.Fatal(err)
	}
	s.budget.Pool.Trim()
	stats := s.budget.Pool.Stats()
	others, err := s.budget.Pool.Reserve(stats.Limit - stats.InUse)
	if err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(others.Release)
	defer release()
	c := dial(t, Config{}, s.Addr().String())
	var why []error
	saved(t, c, checkpoint.PullRequest{Interrupted: func(i checkpoint.Interruption) {
		if i.Err != nil {
			why = append(why, i.Err)
			release()
		}
	}}, path)
	if len(why) == 0 {
		t.Fatal("nothing was refused")
	}
	wantError(t, why[0], status.ResourceExhausted, "cannot allocate", "bytes are in use")
}

// TestManyPullsShareTheMemoryForSending: over a device that pins memory, and without fallback, many pulls at once need
// more copies than the memory for sending has. Each is refused for a while, tries again, and gets all. The same holds
// for pulls of one process, which share the memory for receiving.
func TestManyPullsShareTheMemoryForSending(t *testing.T) {
	w := newVerbsTown(t, 1, verbstest.DeviceOptions{NoGoMemory: true})
	small := func(c *Config) {
		c.Fallback, c.RDMA.Arena, c.RDMA.ArenaLimit, c.Publications.FileCache = FallbackNone, 4<<20, 16<<20, 1<<20
	}
	a := w.start(0, small)
	var all []*tensor.Tensor
	for i := range 6 {
		x := tensortest.Random(rand.New(rand.NewPCG(1, uint64(i))), tensor.Uint8, tensortest.Shape(t, 4<<20), tensor.Heap{}) //nolint:gosec // a test that can be repeated
		all = append(all, x.Named(fmt.Sprint("x", i)))
	}
	if _, err := a.Catalog().PublishTensors(t.Context(), "m", all...); err != nil {
		t.Fatal(err)
	}
	c := w.settings(0, small).ForClient()
	c.Cluster = nil
	var pulls sync.WaitGroup
	var interrupted atomic.Int64
	for i := range 5 {
		cl, err := Dial(t.Context(), c, a.Addr().String(), Options{Provider: w.provider(i + 2), Allocator: tensor.Heap{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cl.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		for range 2 {
			out := filepath.Join(t.TempDir(), "m.safetensors")
			pulls.Go(func() {
				_, err := cl.Puller().Save(t.Context(), checkpoint.PullRequest{Interrupted: func(i checkpoint.Interruption) {
					if i.Err != nil {
						interrupted.Add(1)
					}
				}}, checkpoint.SaveOptions{Out: out}) // it checks the digest
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	pulls.Wait()
	t.Logf("pulls were interrupted %d times", interrupted.Load())
}
