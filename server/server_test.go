package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// soon bounds what the tests wait for that is expected to happen; a test that
// needs it fails.
const soon = 2 * time.Minute

// settings returns those of a test server, on a free port of the loopback
// interface.
func settings(change ...func(*Config)) Config {
	c := Config{Listen: "127.0.0.1:0"}
	for _, f := range change {
		f(&c)
	}
	return c
}

// start starts a server that the test closes, with memory that is checked for
// leaks.
func start(t *testing.T, c Config, o Options) *Server {
	t.Helper()
	if o.Allocator == nil {
		o.Allocator = tensortest.NewAllocator(t)
	}
	s, err := Start(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// taskOfName parses the name of a task.
func taskOfName(t *testing.T, name string) cluster.Task {
	t.Helper()
	task, err := cluster.ParseTask(name)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func dial(t *testing.T, c Config, target string) *Client {
	t.Helper()
	cl, err := Dial(t.Context(), c, target, Options{Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(context.Background()); err != nil {
			t.Errorf("client: Close: %v", err)
		}
	})
	return cl
}

func wantError(t *testing.T, err error, code status.Code, texts ...string) {
	t.Helper()
	if status.CodeOf(err) != code {
		t.Errorf("got %v, want code %v", err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// float makes a scalar tensor in heap memory.
func float(t testing.TB, v float32) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(tensor.Shape{}, []float32{v})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// outcome waits for what a receive brought.
type outcome struct {
	v   rendezvous.Value
	err error
}

func (s *Server) recv(step int64, from, name string) <-chan outcome {
	c := make(chan outcome, 1)
	s.RecvAsync(context.Background(), step, from, name, func(v rendezvous.Value, err error) { c <- outcome{v, err} })
	return c
}

// recvFunc is a way to receive; eachWay runs a test with each.
type recvFunc func(s *Server, step int64, from, name string) <-chan outcome

func eachWay(t *testing.T, f func(t *testing.T, recv recvFunc)) {
	t.Run("RecvAsync", func(t *testing.T) { f(t, (*Server).recv) })
	t.Run("Recv", func(t *testing.T) {
		f(t, func(s *Server, step int64, from, name string) <-chan outcome {
			c := make(chan outcome, 1)
			go func() {
				v, err := s.Recv(context.Background(), step, from, name)
				c <- outcome{v, err}
			}()
			return c
		})
	})
}

func wait[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		t.Fatalf("%s: nothing for %v", what, soon)
	}
	return v
}

func wantFloat(t *testing.T, o outcome, want float32) {
	t.Helper()
	if o.err != nil {
		t.Errorf("receive: %v", o.err)
		return
	}
	defer o.v.Tensor.Release()
	v, err := tensor.Values[float32](o.v.Tensor)
	if err != nil || v[0] != want {
		t.Errorf("got %v, %v, want %v", v, err, want)
	}
}

// twoTasks starts two servers of one cluster that know each other.
func twoTasks(t *testing.T, change ...func(*Config)) (a, b *Server) {
	t.Helper()
	at := twoPlaces(t, change...)
	return start(t, at(0), Options{}), start(t, at(1), Options{})
}

// twoPlaces are the settings of two servers of one cluster.
func twoPlaces(t *testing.T, change ...func(*Config)) func(i int) Config {
	t.Helper()
	addresses := transporttest.FreeAddresses(t, 2)
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": addresses})
	if err != nil {
		t.Fatal(err)
	}
	return func(i int) Config {
		c := settings(change...)
		c.Cluster, c.Listen, c.Task = spec.Lists(), addresses[i], cluster.Task{Job: "worker", Index: i}.String()
		return c
	}
}

func TestTwoServersExchangeTensorsByName(t *testing.T) {
	eachWay(t, func(t *testing.T, recv recvFunc) {
		a, b := twoTasks(t)
		early := recv(b, 1, a.Task().String(), "x") // before the value, and before the step exists there
		x := float(t, 1)
		if err := a.Send(1, b.Task().String(), "x", x, false); err != nil {
			t.Fatal(err)
		}
		x.Release()
		wantFloat(t, wait(t, early, "the early receive"), 1)

		y := float(t, 2)
		if err := a.Send(1, b.Device().String(), "y", y, false); err != nil {
			t.Fatal(err)
		}
		y.Release()
		wantFloat(t, wait(t, recv(b, 1, a.Device().String(), "y"), "the late receive"), 2)

		if err := b.Send(1, b.Task().String(), "own", y.Named("own"), true); err == nil {
			o := wait(t, recv(b, 1, b.Task().String(), "own"), "a receive from itself")
			if o.err != nil || !o.v.Dead {
				t.Errorf("a dead value of its own: %+v", o)
			} else {
				o.v.Tensor.Release()
			}
		}
		if n := len(b.Transfers()); n != 2 {
			t.Errorf("%d transfers in the log, want 2", n)
		}
	})
}

// TestServerCountsConnectedRequesters, with TLS and without: the response cache drops no response
// of a requester that has a connection, so it has to know of the connection.
func TestServerCountsConnectedRequesters(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	for name, change := range map[string]func(*Config){
		"plain": func(*Config) {},
		"TLS":   func(c *Config) { c.TLS = TLS(a.Pair("server")) },
	} {
		t.Run(name, func(t *testing.T) {
			from, to := twoTasks(t, change)
			x := float(t, 1)
			defer x.Release()
			if err := from.Send(1, to.Task().String(), "x", x, false); err != nil {
				t.Fatal(err)
			}
			wantFloat(t, wait(t, to.recv(1, from.Task().String(), "x"), "the receive"), 1)
			if s := from.cache.Stats(); s.Connected != 1 {
				t.Errorf("%d requesters with a connection, want 1: %+v", s.Connected, s)
			}
			if err := to.Close(t.Context()); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(soon); from.cache.Stats().Connected != 0; {
				if time.Now().After(end) {
					t.Fatal("the end of the connection was not noticed")
				}
			}
		})
	}
}

func TestSendDead(t *testing.T) {
	a, b := twoTasks(t)
	if err := a.Send(1, b.Task().String(), "x", nil, true); err != nil {
		t.Fatal(err)
	}
	o := wait(t, b.recv(1, a.Task().String(), "x"), "a dead value")
	if o.err != nil || !o.v.Dead || o.v.Tensor == nil {
		t.Fatalf("got %+v", o)
	}
	o.v.Tensor.Release()
}

func TestNamesThatAreWrong(t *testing.T) {
	eachWay(t, func(t *testing.T, recv recvFunc) {
		a, _ := twoTasks(t)
		x := float(t, 1)
		defer x.Release()
		wantError(t, a.Send(1, "worker 1", "x", x, false), status.InvalidArgument, "worker 1")
		wantError(t, a.Send(1, "/job:worker/task:1", "publication:m@1/x", x, false), status.InvalidArgument, `"publication:m@1/x"`)
		wantError(t, a.Send(1, "/job:worker/task:1", "buffer:1:x", x, false), status.InvalidArgument, `"buffer:1:x"`)
		o := wait(t, recv(a, 1, "/job:worker/task:9", "x"), "a receive from an unknown task")
		wantError(t, o.err, status.NotFound, "/job:worker/replica:0/task:9")
		o = wait(t, recv(a, 1, "/job:worker/replica:0/task:1/device:GPU:0", "x"), "a receive from an unknown device")
		wantError(t, o.err, status.NotFound, "GPU:0")
	})
}

func TestReceiveFromAPeerThatComesLater(t *testing.T) {
	eachWay(t, func(t *testing.T, recv recvFunc) {
		at := twoPlaces(t)
		b := start(t, at(1), Options{})
		early := recv(b, 1, "/job:worker/task:0", "x")
		a := start(t, at(0), Options{})
		x := float(t, 5)
		defer x.Release()
		if err := a.Send(1, b.Task().String(), "x", x, false); err != nil {
			t.Fatal(err)
		}
		wantFloat(t, wait(t, early, "the receive"), 5)
	})
}

func TestReceiveFromAPeerThatNeverComes(t *testing.T) {
	eachWay(t, func(t *testing.T, recv recvFunc) {
		at := twoPlaces(t, func(c *Config) { c.PeerTimeout = 200 * time.Millisecond })
		b := start(t, at(1), Options{})
		o := wait(t, recv(b, 1, "/job:worker/task:0", "x"), "the receive")
		wantError(t, o.err, status.Unavailable, "/job:worker/replica:0/task:0", "200ms", at(0).Listen)
	})
}

// The connection is lost while the peer is asked for its devices: it is asked
// again when it is there again.
func TestReceiveFromAPeerThatIsLostWhileItIsAsked(t *testing.T) {
	proxy := transporttest.NewProxy(t)
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {proxy.Addr(), transporttest.FreeAddresses(t, 1)[0]}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) Config {
		return settings(func(c *Config) { c.Cluster, c.Task = spec.Lists(), cluster.Task{Job: "worker", Index: i}.String() })
	}
	a, b := start(t, at(0), Options{}), start(t, at(1), Options{})
	proxy.SetTarget(a.Addr().String())
	// There is no such device, so a is asked for its devices each time; the
	// first time makes the connection.
	const nowhere = "/job:worker/replica:0/task:0/device:GPU:7"
	wantError(t, wait(t, b.recv(1, nowhere, "x"), "the first receive").err, status.NotFound, nowhere)
	answering := proxy.HoldAfter(1)
	o := b.recv(1, nowhere, "x")
	wait(t, answering, "the answer")
	wait(t, proxy.CutAfter(0), "the cut")
	proxy.Release()
	wantError(t, wait(t, o, "the second receive").err, status.NotFound, nowhere)
}

func TestPublishAndPull(t *testing.T) {
	s := start(t, settings(), Options{})
	x := float(t, 7)
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("w")); err != nil {
		t.Fatal(err)
	}
	x.Release()
	var pullers sync.WaitGroup
	for range 4 {
		c := dial(t, Config{}, s.Addr().String())
		pullers.Go(func() {
			n := 0
			for got, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{Publication: "m"}) {
				if err != nil {
					t.Error(err)
					return
				}
				n++
				if got.Name() != "w" || !tensor.Equal(got, x.Named("w")) {
					t.Errorf("got %v", got)
				}
				got.Release()
			}
			if n != 1 {
				t.Errorf("%d tensors", n)
			}
		})
	}
	pullers.Wait()
}

func TestGracefulCloseAnswersWhatWaits(t *testing.T) {
	a, b := twoTasks(t)
	o := b.recv(3, a.Task().String(), "never sent")
	for a.cache.Stats().Waiting == 0 { // the request is there
		select {
		case <-t.Context().Done():
			t.Fatal("the request did not come")
		default:
		}
	}
	if err := a.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	got := wait(t, o, "the receive")
	if c := status.CodeOf(got.err); c != status.Aborted {
		t.Errorf("got %v, want Aborted", got.err)
	}
	select {
	case <-a.Done():
	default:
		t.Error("Done is not closed")
	}
	if err := a.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestCloseTakesNothingNew while it waits for a peer to take what it was answered with:
// who sends all the time would keep it open.
func TestCloseTakesNothingNew(t *testing.T) {
	t.Run("grpc", func(t *testing.T) { closeTakesNothingNew(t, func() (a, b *Server) { return twoTasks(t) }) })
	t.Run("verbs", func(t *testing.T) {
		closeTakesNothingNew(t, func() (a, b *Server) {
			w := newVerbsTown(t, 2)
			v, u := w.start(0), w.start(1)
			w.up(v, u.Task())
			w.up(u, v.Task())
			return v.Server, u.Server
		})
	})
}

// releases is a transport.Replier that wants no value.
type releases struct{}

func (releases) Reply(_ uint64, _ uint32, r transport.Response) { r.Value.Tensor.Release() }

func closeTakesNothingNew(t *testing.T, both func() (a, b *Server)) {
	a, b := both()
	value := float(t, 1)
	defer value.Release()
	send := func() error { return a.Send(1, b.Task().String(), "x", value, false) }
	early := b.recv(1, a.Task().String(), "never sent")
	slow := transport.Request{Requester: transport.Process{Name: "/job:slow/replica:0/task:0", Incarnation: 77}, ID: 1, Attempt: 1, Step: 1}
	var err error
	if slow.Key, err = rendezvous.NewKey(a.Device(), a.Incarnation(), b.Device(), "x", rendezvous.FrameIter{}); err != nil {
		t.Fatal(err)
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	a.cache.Request(releases{}, slow)
	for a.cache.Stats().Waiting == 0 && t.Context().Err() == nil { // the request of early
		runtime.Gosched()
	}

	finish := func() { a.cache.Ack(slow.Requester, []uint64{slow.ID}) }
	t.Cleanup(finish)
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.WithoutCancel(t.Context())) }()
	wantError(t, wait(t, early, "the receive that waits").err, status.Aborted, "Shutdown")
	wantError(t, send(), status.Aborted, "Shutdown")
	wantError(t, wait(t, b.recv(1, a.Task().String(), "x"), "a new receive").err, status.Aborted, "Shutdown")
	wantError(t, wait(t, a.recv(1, b.Task().String(), "y"), "a receive of its own").err, status.Aborted, "Shutdown")
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	default:
	}
	finish()
	if err := wait(t, closed, "Close"); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	s := start(t, settings(), Options{})
	_, err := Start(t.Context(), settings(func(c *Config) { c.Listen = s.Addr().String() }), Options{})
	wantError(t, err, status.Unavailable, "listen", s.Addr().String(), "in use")
	_, err = Start(t.Context(), settings(func(c *Config) { c.MetricsAddress = s.Addr().String() }), Options{})
	wantError(t, err, status.Unavailable, "metrics-address", s.Addr().String(), "in use")
}

func TestHealthAndReflection(t *testing.T) {
	s := start(t, settings(), Options{})
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "tensorflow.WorkerService",
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil || len(r.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection: %v, %v", r, err)
	}
}

func TestMetricsAndProfiles(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.MetricsAddress, c.PprofAddress = "127.0.0.1:0", "127.0.0.1:0" }), Options{})
	x := float(t, 7)
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("w")); err != nil {
		t.Fatal(err)
	}
	x.Release()
	c := dial(t, Config{Transport: TransportGRPC}, s.Addr().String())
	for got, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
	}
	get := func(setting, path string) string {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Get("http://" + s.http.Addr(setting).String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %v", path, r.Status, err)
		}
		return string(body)
	}
	text := get(httpserver.MetricsKey, "/metrics")
	for _, want := range []string{
		`tryst_sent_tensors_total{peer="other",transport="grpc"} 1`, `tryst_sent_bytes_total{peer="other",transport="grpc"} 4`, "tryst_publications 1\n",
		`tryst_rpcs_total{code="OK",method="/tensorflow.WorkerService/RecvTensor"} 1`, "go_goroutines", "process_open_fds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if !strings.Contains(get(httpserver.PprofKey, "/debug/pprof/"), "goroutine") {
		t.Error("no profiles")
	}
}

func TestWarnsBeyondLoopbackWithoutTLS(t *testing.T) {
	for listen, warns := range map[string]bool{"127.0.0.1:0": false, "[::1]:0": false, "0.0.0.0:0": true} {
		var out syncBuffer
		start(t, settings(func(c *Config) { c.Listen = listen }), Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if got := strings.Count(out.String(), "level=WARN"); got != map[bool]int{true: 1}[warns] {
			t.Errorf("%s: %d warnings:\n%s", listen, got, out.String())
		}
	}
}

// syncBuffer is a buffer that a logger and a test may use at once.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The settings repeat defaults of the transport, which they may not import.
func TestDefaultsAgree(t *testing.T) {
	c := Config{}.WithDefaults()
	if c.Limits.MaxWaiting != transport.DefaultMaxWaiting || c.Limits.MaxWaitingBytes != transport.DefaultMaxWaitingBytes ||
		c.Limits.KeptPerPeer != transport.DefaultKeptPerRequester || c.PeerTimeout != transport.DefaultPeerTimeout {
		t.Errorf("the defaults of config and transport differ: %+v", c)
	}
}

// Receives of a peer that is not known yet come while the server closes and after: Close
// returns, and none of their look-ups or callbacks runs after it but on its caller's goroutine.
func TestRecvAsyncDuringClose(t *testing.T) {
	spec, err := cluster.NewSpec(map[string]map[int]string{"worker": {0: "127.0.0.1:1", 1: "127.0.0.1:2"}})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, settings(func(c *Config) {
		c.Cluster, c.Task = spec.Lists(), cluster.Task{Job: "worker", Index: 0}.String()
	}), Options{})
	var stop atomic.Bool
	var begun atomic.Int32
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for !stop.Load() {
				done := make(chan struct{})
				s.RecvAsync(context.Background(), 1, "/job:worker/replica:0/task:1", "x", func(rendezvous.Value, error) { close(done) })
				begun.Add(1)
				<-done
			}
		})
	}
	for begun.Load() < 8 { // look-ups are under way
		runtime.Gosched()
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Logf("Close: %v", err)
	case <-time.After(soon):
		t.Error("Close has not returned")
	}
	stop.Store(true)
	callers.Wait()

	// After Close: on whose goroutine?
	on := make(chan string, 1)
	s.RecvAsync(context.Background(), 1, "/job:worker/replica:0/task:1", "x", func(_ rendezvous.Value, err error) {
		wantError(t, err, status.Aborted, "Shutdown")
		buf := make([]byte, 1<<16)
		on <- string(buf[:runtime.Stack(buf, false)])
	})
	if at := <-on; !strings.Contains(at, "TestRecvAsyncDuringClose") || strings.Contains(at, "WaitGroup") {
		t.Errorf("after Close the server has started a goroutine:\n%s", at)
	}
}
