package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// smoke are options under which everything runs and nothing means anything. At
// the end of the test every tensor that was received has to be released.
func smoke(t *testing.T, only ...string) Options {
	pool := tensor.NewPool(tensor.PoolOptions{})
	t.Cleanup(func() {
		if s := pool.Stats(); s.InUse != 0 || s.Buffers != 0 {
			t.Errorf("%d tensors with %d bytes are not released", s.Buffers, s.InUse)
		}
		pool.Trim()
	})
	return Options{
		Command: peerCommand("serve"), Only: only,
		Sizes: []int64{8, 100_000}, Inflight: []int{1, 2}, Pairs: 1, PairTime: time.Millisecond,
		Progress: func(s string) { t.Log(s) },
		many:     100, waiting: 200, idle: 100 * time.Millisecond, silence: 2 * time.Millisecond, pool: pool,
	}
}

// TestEachBenchmark runs everything but what takes gigabytes.
func TestEachBenchmark(t *testing.T) {
	rows := map[string]int{"recv": 2 * 2 * 3 * 2, "recv-udp-loop": 2 * 2 * 2, "waiting-remote": 2, "local-match": 2, "local-gain": 2}
	for _, name := range Names() {
		inGroup := slices.ContainsFunc([]string{"verbs-", "route-", "peer-", "allreduce-"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if name == "recv-whole" || inGroup { // gigabytes; TestRxeBenchmarks, TestBenchmarksOfRoutes, TestBesidePrograms, TestAllReduceBesideGloo
			continue
		}
		t.Run(name, func(t *testing.T) {
			want := max(rows[name], 1)
			got, err := Run(t.Context(), smoke(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != want {
				t.Errorf("%d rows, want %d", len(got), want)
			}
			for _, r := range got {
				if !strings.HasPrefix(r.Name, name) || r.Count < 1 || r.Seconds <= 0 || r.itself != (r.Transport == "") {
					t.Errorf("row %+v", r)
				}
				if (r.Baseline == None) != (r.Ratio == 0) {
					t.Errorf("row %+v: a ratio and no baseline, or the other way round", r)
				}
			}
		})
	}
}

func TestProfilesOfBothProcesses(t *testing.T) {
	o := smoke(t, recvName)
	o.Profile = filepath.Join(t.TempDir(), "not", "yet")
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{firstProfile, secondProfile} {
		files, err := filepath.Glob(filepath.Join(o.Profile, name+"-*.pprof"))
		if err != nil || len(files) == 0 {
			t.Errorf("no profile of the %s process: %v", name, err)
		}
		for _, f := range files {
			if b, err := os.ReadFile(f); err != nil || !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) { // gzip, as pprof writes it at the end
				t.Errorf("%s begins with %x: %v", f, b[:min(2, len(b))], err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Profile = file
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the CPU profile of the first process") || !strings.Contains(err.Error(), file) {
		t.Errorf("profiles into a file: %v", err)
	}
}

// A peer may be any server that publishes something.
func TestFromAnotherServer(t *testing.T) {
	c := server.Config{}
	c.Listen = "127.0.0.1:0"
	s, err := server.Start(t.Context(), c, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	o := smoke(t)
	o.Command, o.From = nil, s.Addr().String()
	if _, err := Run(t.Context(), o); status.CodeOf(err) != status.NotFound {
		t.Errorf("a server that publishes nothing: %v", err)
	}
	var named []*tensor.Tensor
	for _, n := range []int64{100, 30_000} {
		x, err := randomTensor(tensor.Heap{}, n)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		named = append(named, x.Named(config.FormatSize(n)))
	}
	if _, err := s.Catalog().PublishTensors(t.Context(), "any", named...); err != nil {
		t.Fatal(err)
	}
	o.Sizes = []int64{8, 16, 1 << 20}
	rows, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for _, r := range rows {
		sizes = append(sizes, r.Size)
		if r.Baseline != None || r.Transport != "grpc" || r.GBytesPerSecond == 0 {
			t.Errorf("row %+v", r)
		}
	}
	if want := []int64{100, 100, 30_000, 30_000}; !slices.Equal(sizes, want) {
		t.Errorf("tensors of %d bytes were received, want those nearest to the sizes: %d", sizes, want)
	}
	// Each transport is measured, in order: what a host without a device has measured
	// before is returned with the error.
	o.Transports, o.Client.RDMA.Device = []string{"grpc", "verbs"}, "no-such-device"
	if rows, err := Run(t.Context(), o); err == nil || len(rows) != 4 {
		t.Errorf("%d rows and %v, want the 4 of grpc and an error of verbs", len(rows), err)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		text   string
	}{
		{func(o *Options) { o.Transports = []string{"pigeon"} }, `unknown transport "pigeon"; want one of grpc, verbs`},
		{func(o *Options) { o.Only = []string{"recieve"} }, `unknown benchmark "recieve"; want one of `},
		{func(o *Options) { o.Sizes = []int64{-1} }, "size -1: it must not be negative"},
		{func(o *Options) { o.Inflight = []int{0} }, "0 receives in flight"},
		{func(o *Options) { o.Pairs = -1 }, "-1 pairs"},
		{func(o *Options) { o.Routes, o.From = true, "127.0.0.1:1" }, "set one of --routes, --peers and --from"},
		{func(o *Options) { o.Only = []string{"peer-ucx-shm"} }, "set --peers"},
		{func(o *Options) { o.Command = nil }, "neither Command nor From"},
	} {
		o := smoke(t)
		c.change(&o)
		if _, err := Run(t.Context(), o); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want InvalidArgument with %q", err, c.text)
		}
	}
}

func TestSecondProcessThatIsNone(t *testing.T) {
	for way, text := range map[string]string{
		"fail":   "the second process ended: no port is free",
		"babble": "the second process ended: signal: killed",
	} {
		o := smoke(t, "recv")
		o.Command = peerCommand(way)
		if _, err := Run(t.Context(), o); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want Unavailable with %q", way, err, text)
		}
	}
	o := smoke(t, "recv")
	o.Command = func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(t.TempDir(), "none"))
	}
	if _, err := Run(t.Context(), o); status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "cannot start the second process") {
		t.Errorf("no such program: %v", err)
	}
}

// TestSecondProcessDies kills it while each way of receiving is under way.
func TestSecondProcessDies(t *testing.T) {
	for _, beside := range []string{PassThrough, Generated, RawTCP, UDPLoop} {
		t.Run(beside, func(t *testing.T) {
			o := smoke(t, "recv")
			o.PairTime = time.Hour // only the death ends it
			var peer *exec.Cmd
			o.Command = func(ctx context.Context) *exec.Cmd {
				peer = peerCommand("serve")(ctx)
				return peer
			}
			p, ctx, err := (&suite{Options: o}).pair(t.Context(), o.Sizes)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.close() }() // nobody is there to take leave of
			targets, err := p.ours.targets([]int64{100_000})
			if err != nil {
				t.Fatal(err)
			}
			if beside == UDPLoop && p.udp == nil {
				t.Skip("this system has no super-packets")
			}
			calls := map[string]func() error{
				PassThrough: func() error { return p.baselines.passThrough(ctx, 100_000, "") },
				Generated:   func() error { return p.baselines.generated(ctx, 100_000, "") },
				RawTCP:      func() error { return p.tcp.receive(100_000) },
				UDPLoop:     func() error { return p.udp.receive(100_000) },
			}
			begun := make(chan struct{}, 2)
			theirs := load(1, 1, func(context.Context, int, int) error {
				select {
				case begun <- struct{}{}:
				default:
				}
				return calls[beside]()
			})
			ours := load(1, 1, p.ours.receive(targets[0], 1))
			errs := make(chan error, 2)
			for _, s := range []side{ours, theirs} {
				go func() {
					_, err := s(ctx, time.Hour)
					errs <- ended(ctx, err)
				}()
			}
			<-begun
			if err := peer.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-p.child.dead
			for range 2 {
				if err := <-errs; err == nil || !strings.Contains(err.Error(), "the second process ended: signal: killed") {
					t.Errorf("%v, want it to say that the second process was killed", err)
				}
			}
		})
	}
}

func TestSecondProcessEndsWithItsInput(t *testing.T) {
	var out bytes.Buffer
	if err := Serve(t.Context(), strings.NewReader(`{"sizes":[8,8,0]}`), &out); err != nil {
		t.Fatal(err)
	}
	var h hello
	if err := json.Unmarshal(out.Bytes(), &h); err != nil || h.Server == "" || h.Baselines == "" || h.TCP == "" {
		t.Errorf("it said %s: %v", &out, err)
	}
	if err := Serve(t.Context(), strings.NewReader("exit"), &out); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("without a setup: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.WriteString("{}\n"); err != nil {
		t.Fatal(err)
	}
	_ = Serve(ctx, r, &out) // returns although its input is open
}

func TestCancelledRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := smoke(t, "recv")
	o.Row = func(Row) { cancel() }
	rows, err := Run(ctx, o)
	if status.CodeOf(err) != status.Cancelled || len(rows) == 0 {
		t.Errorf("%v with %d rows, want Cancelled and the rows so far", err, len(rows))
	}
}
