package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // as programs that export traces do
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Limits on what unknown clients can make a server keep and wait for.

func dialPlainly(t *testing.T, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func wantCode(t *testing.T, err error, want codes.Code, words string) {
	t.Helper()
	if s := grpcstatus.Convert(err); s.Code() != want || !strings.Contains(s.Message(), words) {
		t.Errorf("got %v, want %v with %q", err, want, words)
	}
}

// TestCompressedRequestIsRefused: another package of the program may have registered gzip,
// by which 64 MiB of zeros are 64 KiB on the wire.
func TestCompressedRequestIsRefused(t *testing.T) {
	s := start(t, settings(), Options{})
	_, err := trystgrpc.NewPeersClient(dialPlainly(t, s.Addr().String())).
		Hello(t.Context(), &trystpb.HelloRequest{Requester: strings.Repeat("\x00", 64<<20)}, grpc.UseCompressor("gzip"))
	wantCode(t, err, codes.ResourceExhausted, "4194304")
}

// TestKeysOfPlainPeersAreBounded: those of peers that are not Tryst count, too.
func TestKeysOfPlainPeersAreBounded(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.Limits.MaxWaitingBytes = 64 << 10 }), Options{})
	client := tensorflowgrpc.NewWorkerServiceClient(dialPlainly(t, s.Addr().String()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	recv := func(id int64, size int) error {
		_, err := client.RecvTensor(ctx, &tfpb.RecvTensorRequest{StepId: 5, RequestId: id, RendezvousKey: rendezvous.CreateKey(
			s.Device().String(), s.Incarnation(), cluster.Device{Task: cluster.Task{Job: "tf"}, Type: "CPU"}.String(),
			fmt.Sprint(strings.Repeat("k", size), id), rendezvous.FrameIter{})})
		return err
	}
	wantCode(t, recv(1, 1<<20), codes.ResourceExhausted, "max-waiting-bytes")
	ended := make(chan error, 8)
	for i := range cap(ended) {
		go func() { ended <- recv(int64(i)+2, 10<<10) }()
	}
	for range 2 { // of eight: six have room
		wantCode(t, <-ended, codes.ResourceExhausted, "max-waiting-bytes")
	}
	cancel()
	for range 6 {
		wantCode(t, <-ended, codes.Canceled, "")
	}
}

func watchHealth(ctx context.Context, conn *grpc.ClientConn) error {
	w, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	return err
}

// TestCloseUnderAHealthWatch: who watches is told, and not waited for.
func TestCloseUnderAHealthWatch(t *testing.T) {
	s, err := Start(t.Context(), settings(func(c *Config) { c.ShutdownTimeout = time.Minute }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := watchHealth(t.Context(), dialPlainly(t, s.Addr().String())); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.Close(t.Context()); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("Close took %v: %v", time.Since(began), err)
	}
}

// TestPrepareFailsUnderAReflectionStream: a start that fails ends, whoever is connected.
func TestPrepareFailsUnderAReflectionStream(t *testing.T) {
	nothing := errors.New("nothing to publish")
	_, err := Start(t.Context(), settings(func(c *Config) { c.ShutdownTimeout = time.Second }), Options{Prepare: func(_ context.Context, s *Server) error {
		stream, err := reflectionpb.NewServerReflectionClient(dialPlainly(t, s.Addr().String())).ServerReflectionInfo(t.Context())
		if err == nil {
			err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return errors.Join(err, nothing)
	}})
	if err == nil || err.Error() != nothing.Error() {
		t.Error(err)
	}
}

// TestRegistryOfAnotherServer: what does not start takes nothing away.
func TestRegistryOfAnotherServer(t *testing.T) {
	r := prometheus.NewRegistry()
	start(t, settings(), Options{Registerer: r})
	before, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), settings(), Options{Registerer: r})
	wantError(t, err, status.AlreadyExists)
	if after, err := r.Gather(); err != nil || len(after) != len(before) {
		t.Errorf("%d metrics before, %d after a start that failed: %v", len(before), len(after), err)
	}
}

// gossip speaks of a device of another task.
type gossip struct {
	tensorflowgrpc.UnimplementedWorkerServiceServer
}

func (gossip) GetStatus(context.Context, *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	return &tfpb.GetStatusResponse{DeviceAttributes: []*tfpb.DeviceAttributes{
		{Name: "/job:ps/replica:0/task:0/device:CPU:0", Incarnation: 7},
		{Name: "/job:worker/replica:0/task:1/device:CPU:0", Incarnation: 8},
	}}, nil
}

// TestPeerSpeaksOfItsOwnDevicesOnly: receives from another task would end with Aborted.
func TestPeerSpeaksOfItsOwnDevicesOnly(t *testing.T) {
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tensorflowgrpc.RegisterWorkerServiceServer(g, gossip{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(lis)
	}()
	defer func() { g.Stop(); <-served }()
	addresses := transporttest.FreeAddresses(t, 2)
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": addresses, "ps": {lis.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	var s [2]*Server
	for i := range s {
		c := settings()
		c.Cluster, c.Listen, c.Task = spec.Lists(), addresses[i], cluster.Task{Job: "worker", Index: i}.String()
		s[i] = start(t, c, Options{})
	}
	if o := wait(t, s[0].recv(1, "/job:ps/replica:0/task:0", "x"), "ps"); status.CodeOf(o.err) != status.Unimplemented {
		t.Errorf("from the gossip: %v", o.err)
	}
	f := float(t, 3)
	defer f.Release()
	if err := s[1].Send(2, "/job:worker/replica:0/task:0", "y", f, false); err != nil {
		t.Fatal(err)
	}
	wantFloat(t, wait(t, s[0].recv(2, "/job:worker/replica:0/task:1", "y"), "worker 1"), 3)
}

// streams are calls of each service that a client needs rarely, which go on until their context
// ends. Each has had an answer when it returns.
var streams = map[string]func(context.Context, *grpc.ClientConn) error{
	"grpc.health.v1.Health": watchHealth,
	"grpc.reflection.v1.ServerReflection": func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err == nil {
			err = s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		}
		if err == nil || errors.Is(err, io.EOF) { // Recv knows why
			_, err = s.Recv()
		}
		return err
	},
	"tryst.Publications": func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := trystgrpc.NewPublicationsClient(conn).Open(ctx, &trystpb.OpenRequest{Publication: "p", Puller: "/job:client/replica:0/task:17"})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	},
}

// TestStreamsOfServicesAreBounded: of one connection, and of all from one address; those that
// end make room. One service takes nothing from another.
func TestStreamsOfServicesAreBounded(t *testing.T) {
	const ofConnection, ofAddress = 64, 1024 // transport/grpc/limits.go
	s := start(t, settings(), Options{})
	x := float(t, 1)
	defer x.Release()
	if _, err := s.Catalog().PublishTensors(t.Context(), "p", x.Named("x")); err != nil {
		t.Fatal(err)
	}
	for service, open := range streams {
		t.Run(service, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := dialPlainly(t, s.Addr().String())
			one, endOne := context.WithCancel(ctx)
			for i := range ofConnection {
				in := ctx
				if i == 0 {
					in = one
				}
				if err := open(in, first); err != nil {
					t.Fatalf("stream %d: %v", i, err)
				}
			}
			wantCode(t, open(ctx, first), codes.ResourceExhausted, "64 calls of "+service+" are in progress on this connection")
			endOne()
			for open(ctx, first) != nil { // the server hears of it a moment later
				if t.Context().Err() != nil {
					t.Fatal("a stream that has ended makes no room")
				}
			}
			for range ofAddress/ofConnection - 1 {
				conn := dialPlainly(t, s.Addr().String())
				for range ofConnection {
					if err := open(ctx, conn); err != nil {
						t.Fatal(err)
					}
				}
			}
			wantCode(t, open(ctx, dialPlainly(t, s.Addr().String())), codes.ResourceExhausted, "1024 calls of "+service+" are in progress from 127.0.0.1")
		})
	}
}

// TestRefusedCallsAreCounted by the metrics, as all calls are.
func TestRefusedCallsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	s := start(t, settings(), Options{Registerer: r})
	conn := dialPlainly(t, s.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 64 {
		if err := watchHealth(ctx, conn); err != nil {
			t.Fatal(err)
		}
	}
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	wantCode(t, err, codes.ResourceExhausted, "end some first")
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "tryst_rpcs_total" && strings.Contains(f.String(), "/grpc.health.v1.Health/Check") && strings.Contains(f.String(), "ResourceExhausted") {
			return
		}
	}
	t.Error("the refused call is in no metric")
}

// TestManifestsUnderWayAreBounded: a client that does not read makes the server hold no copies of a manifest.
func TestManifestsUnderWayAreBounded(t *testing.T) {
	const tensors = 4000 // with names of 1 KiB
	s := start(t, settings(), Options{})
	x := float(t, 1)
	defer x.Release()
	var all []*tensor.Tensor
	for i := range tensors {
		all = append(all, x.Named(fmt.Sprint(strings.Repeat("name", 256), i)))
	}
	if _, err := s.Catalog().PublishTensors(t.Context(), "p", all...); err != nil {
		t.Fatal(err)
	}
	const window = 64<<10 - 1
	conn := dialPlainly(t, s.Addr().String(), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // small
	}
	before := heap()
	ask := func() {
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, trystgrpc.Publications_Describe_FullMethodName)
		if err == nil {
			err = stream.SendMsg(&trystpb.DescribeRequest{Publication: "p"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for refused := false; !refused; { // all are calls under way
		ask()
		_, err := trystgrpc.NewPublicationsClient(conn).List(t.Context(), &trystpb.ListRequest{})
		refused = grpcstatus.Code(err) == codes.ResourceExhausted
	}
	if grown := heap() - before; grown > 100<<20 {
		t.Errorf("%d MiB are held for answers that nobody reads", grown>>20)
	}
}

// TestKeysUnderWayAreBounded: clients that do not read make the server hold no more keys of pulls than the limit of
// copies, also for the pulls that wait for it.
func TestKeysUnderWayAreBounded(t *testing.T) {
	const (
		tensors      = 4000 // with names of 1 KiB
		conns, pulls = 4, 60
	)
	s := start(t, settings(func(c *Config) { c.Memory = 1 << 30 }), Options{}) // 16 MiB of copies for an address
	x := float(t, 1)
	defer x.Release()
	var all []*tensor.Tensor
	for i := range tensors {
		all = append(all, x.Named(fmt.Sprint(strings.Repeat("name", 256), i)))
	}
	if _, err := s.Catalog().PublishTensors(t.Context(), "p", all...); err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // small
	}
	before := heap()
	const window = 64<<10 - 1
	for range conns {
		conn := dialPlainly(t, s.Addr().String(), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
		for range pulls {
			_, err := trystgrpc.NewPublicationsClient(conn).Open(t.Context(), &trystpb.OpenRequest{
				Publication: "p", Puller: "/job:client/replica:0/task:1", PullerIncarnation: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	stacks := make([]byte, 16<<20)
	until(t, "the pulls beyond the limit wait", func() bool {
		n := runtime.Stack(stacks, true)
		return strings.Count(string(stacks[:n]), "(*connQuota).charge(") >= conns*(pulls-20) // 16 MiB are the first message of each, and some second ones
	})
	stacks = nil
	if grown := heap() - before; grown > 100<<20 {
		t.Errorf("%d MiB are held for keys that nobody reads", grown>>20)
	}
}
