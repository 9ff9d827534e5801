package grpctransport

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// flooded is a server that may have 4 MiB of requests, 3 MiB of one address. The end of a refused call of the
// address 127.0.0.1 takes until goOn is closed.
func flooded(t *testing.T) (address string, stats *RequestStats, goOn chan struct{}) {
	stats, goOn = new(RequestStats), make(chan struct{})
	s := grpc.NewServer(append(ServerOptions(ServerTuning{RequestBytes: 4 << 20, Requests: stats}),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			resp, err := handler(ctx, req)
			if p, ok := peer.FromContext(ctx); ok && err != nil && strings.HasPrefix(p.Addr.String(), "127.0.0.1:") {
				<-goOn
			}
			return resp, err
		}))...)
	Guard(s).RegisterService(&grpc.ServiceDesc{ServiceName: tensorflowWorker, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		method(tensorflowWorker, "RegisterGraph", func(context.Context, *tfpb.RegisterGraphRequest) (any, error) {
			return &tfpb.RegisterGraphResponse{}, nil
		}),
	}}, new(int))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), stats, goOn
}

// TestCallsThatAreRefusedTakeNothingFromOthers: a client of another address is served, however many calls are
// being refused.
func TestCallsThatAreRefusedTakeNothingFromOthers(t *testing.T) {
	address, stats, goOn := flooded(t)
	raw := newRawClient(t, address)
	for i := range uint32(240) { // of 16 KiB, and more for their headers: more than all may have
		raw.headers(2*i + 1)
	}
	raw.flush()
	if stats.Bytes() < 4<<20 {
		t.Fatalf("the calls take %d bytes", stats.Bytes())
	}
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(
		func(ctx context.Context, to string) (net.Conn, error) { return other.DialContext(ctx, "tcp", to) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Invoke(t.Context(), "/tensorflow.WorkerService/RegisterGraph", new(tfpb.RegisterGraphRequest), new(tfpb.RegisterGraphResponse)); err != nil {
		t.Error(err)
	}
	close(goOn)
}

// TestConnectionsThatFloodAServerEnd: gRPC holds what it has not told the client. A few calls of another connection
// go on.
func TestConnectionsThatFloodAServerEnd(t *testing.T) {
	address, stats, goOn := flooded(t)
	few := newRawClient(t, address)
	few.headers(1)
	few.flush()
	raw := newRawClient(t, address)
	raw.must(raw.SetDeadline(time.Now().Add(time.Minute)))
	most := int64(0)
	var err error
	for i := uint32(0); err == nil && i < 10_000; i++ {
		err = raw.tryCall(2*i+1, "/tensorflow.WorkerService/RegisterGraph")
		most = max(most, stats.Bytes())
	}
	for err == nil {
		_, err = raw.ReadFrame()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || most > 32<<20 { // four times 3 MiB, and what a read of 32 KiB brings at once
		t.Errorf("the calls take %d bytes: %v", most, err)
	}
	few.flush()
	close(goOn)
}
