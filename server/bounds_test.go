package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/config"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// What strangers can make a server hold, wait for and believe.

func dialPlainly(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
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
		Hello(t.Context(), &trystpb.HelloRequest{Asker: strings.Repeat("\x00", 64<<20)}, grpc.UseCompressor("gzip"))
	wantCode(t, err, codes.ResourceExhausted, "4194304")
}

// TestKeysOfPlainPeersAreBounded: those of peers that are not Tryst count, too.
func TestKeysOfPlainPeersAreBounded(t *testing.T) {
	s := start(t, settings(func(c *config.Config) { c.MaxWaitingBytes = 64 << 10 }), Options{})
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
	s, err := Start(t.Context(), settings(func(c *config.Config) { c.ShutdownTimeout = time.Minute }), Options{})
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
	_, err := Start(t.Context(), settings(func(c *config.Config) { c.ShutdownTimeout = time.Second }), Options{Prepare: func(_ context.Context, s *Server) error {
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

// TestIdleHTTPConnectionsEnd: net/http lets them be for ever unless it is told.
func TestIdleHTTPConnectionsEnd(t *testing.T) {
	s := start(t, settings(func(c *config.Config) { c.MetricsAddress = "127.0.0.1:0" }), Options{})
	if got := s.http[0].server.IdleTimeout; got != headerTimeout {
		t.Errorf("an idle connection may stay for %v", got)
	}
}

// TestRegistryOfAnotherServer: what does not start takes nothing away.
func TestRegistryOfAnotherServer(t *testing.T) {
	r := prometheus.NewRegistry()
	start(t, settings(), Options{Registry: r})
	before, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), settings(), Options{Registry: r})
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
	addresses := freeAddresses(t, 2)
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": addresses, "ps": {lis.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	var s [2]*Server
	for i := range s {
		c := settings()
		c.Cluster, c.Listen, c.Task = spec, addresses[i], cluster.Task{Job: "worker", Index: i}
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
