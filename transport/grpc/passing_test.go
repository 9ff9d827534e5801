package grpctransport

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// openAll is a service of publications whose Open lasts until its caller ends it.
type openAll struct {
	trystgrpc.UnimplementedPublicationsServer
}

func (openAll) Open(_ *trystpb.OpenRequest, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	if err := stream.Send(&trystpb.OpenResponse{StepId: 1}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (openAll) List(context.Context, *trystpb.ListRequest) (*trystpb.ListResponse, error) {
	return &trystpb.ListResponse{}, nil
}

// serveOpen starts a server of openAll.
func serveOpen(t *testing.T, tuning ServerTuning) *node {
	return new(testCluster).start(t, 0, nodeOptions{tuning: tuning, serve: func(s *grpc.Server, _ *node) {
		trystgrpc.RegisterPublicationsServer(LimitCalls(s), openAll{})
	}})
}

func dialPlainly(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// tryOpen opens a stream, and returns the trailer of a refusal.
func tryOpen(ctx context.Context, conn *grpc.ClientConn, req *trystpb.OpenRequest) (metadata.MD, error) {
	stream, err := trystgrpc.NewPublicationsClient(conn).Open(ctx, req)
	if err != nil {
		return nil, err
	}
	_, err = stream.Recv()
	return stream.Trailer(), err
}

// mustBeRefused checks a refusal, and whether it is marked as one that may pass.
func mustBeRefused(t *testing.T, what string, err error, trailer metadata.MD, marked bool, words string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: it was not refused", what)
		return
	}
	e := status.From(fromGRPC(err, trailer))
	if e.Code() != status.ResourceExhausted || !strings.Contains(e.Message(), words) {
		t.Errorf("%s: %v, want a refusal with %q", what, err, words)
	}
	if _, ok := e.Payload(status.TryAgain); ok != marked {
		t.Errorf("%s: marked %v, want %v: %v", what, ok, marked, err)
	}
	if len(trailer.Get(detailsKey)) > 0 {
		t.Errorf("%s: a client of gRPC that does not know TensorFlow's details gets them", what)
	}
}

// TestRefusedCallsOfOthersMayPass: the limits of calls make room when calls end.
func TestRefusedCallsOfOthersMayPass(t *testing.T) {
	n := serveOpen(t, ServerTuning{})
	first := dialPlainly(t, n.address)
	for range maxServiceCallsPerConn {
		if _, err := tryOpen(t.Context(), first, &trystpb.OpenRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	trailer, err := tryOpen(t.Context(), first, &trystpb.OpenRequest{})
	mustBeRefused(t, "beside the calls of a connection", err, trailer, true, "on this connection")
	for range maxServiceCallsPerAddress/maxServiceCallsPerConn - 1 {
		conn := dialPlainly(t, n.address)
		for range maxServiceCallsPerConn {
			if _, err := tryOpen(t.Context(), conn, &trystpb.OpenRequest{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	trailer, err = tryOpen(t.Context(), dialPlainly(t, n.address), &trystpb.OpenRequest{})
	mustBeRefused(t, "beside the calls of an address", err, trailer, true, "the limit for one address")
}

// settle waits until what the calls that have ended took is given back.
func settle(t *testing.T, stats *RequestStats, want int64) {
	t.Helper()
	for end := time.Now().Add(waitLimit); stats.Bytes() != want; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("the requests take %d bytes, want %d", stats.Bytes(), want)
		}
	}
}

// TestRefusedRequestsMayPassUnlessTheyAreTooLarge: the bytes of requests come back when others end, and a request
// that is larger than all that one may have stays refused.
func TestRefusedRequestsMayPassUnlessTheyAreTooLarge(t *testing.T) {
	names := func(bytes int) *trystpb.OpenRequest {
		return &trystpb.OpenRequest{Tensors: []string{strings.Repeat("x", bytes)}}
	}
	stats := new(RequestStats)
	n := serveOpen(t, ServerTuning{MaxGraph: 8 << 20, RequestBytes: 32 << 20, Requests: stats}) // 21 MiB for large requests of an address
	conn := dialPlainly(t, n.address)
	trailer, err := tryOpen(t.Context(), conn, names(5<<20))
	mustBeRefused(t, "a request larger than any may be", err, trailer, false, "larger than max (4194304)")
	settle(t, stats, 0)
	raw, stream := newRawClient(t, n.address), uint32(1)
	begin := func(calls, bytes int) { // requests that do not end
		for range calls {
			raw.call(stream, trystgrpc.Publications_List_FullMethodName)
			raw.must(raw.WriteData(stream, false, append(prefixOf(0, bytes), 1, 2, 3)))
			stream += 2
		}
		raw.flush()
	}
	begin(18, 1<<20)
	held := stats.Bytes()
	trailer, err = tryOpen(t.Context(), conn, names(2<<20))
	mustBeRefused(t, "a request beside others", err, trailer, true, "the server cannot parse the request")
	settle(t, stats, held)
	trailer, err = tryOpen(t.Context(), conn, names(3<<20))
	mustBeRefused(t, "a request that gRPC refuses beside others", err, trailer, false, "larger than max")
	if answered(trailer) { // then a puller takes it as it likes (PROTOCOL.md section 4)
		t.Errorf("gRPC's refusal of a request is marked as the server's answer: %v", trailer)
	}
	settle(t, stats, held)
	begin(2, 1<<20)
	long := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("a", 4<<10)) // so that it needs more room than another
	all := []*rawClient{raw}
	for i := range uint32(5 * maxServiceCallsPerConn) { // some are refused themselves
		if i%maxServiceCallsPerConn == 0 {
			all = append(all, newRawClient(t, n.address))
		}
		more := all[len(all)-1]
		more.call(2*i+1, trystgrpc.Publications_List_FullMethodName)
		more.must(more.WriteData(2*i+1, false, append(prefixOf(0, 60<<10), 1, 2, 3)))
		if _, err = trystgrpc.NewPublicationsClient(conn).List(long, &trystpb.ListRequest{}, grpc.Trailer(&trailer)); err != nil {
			break
		}
	}
	mustBeRefused(t, "a call beside others", err, trailer, true, "the server takes no more calls")
	for _, c := range all {
		c.must(c.Close())
	}
	settle(t, stats, 0)
	if _, err := tryOpen(t.Context(), dialPlainly(t, n.address), names(2<<20)); err != nil {
		t.Errorf("after the others: %v", err)
	}
}

// TestRequestsThatNeverFitStayRefused: a request that takes more than an address may have when it is parsed would
// be refused again.
func TestRequestsThatNeverFitStayRefused(t *testing.T) {
	n, _, _, _ := guardedNode(t, 40<<20)
	var trailer metadata.MD
	var resp []byte
	err := dialRaw(t, n).Invoke(t.Context(), tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName, emptyNodes(200_000), &resp, grpc.Trailer(&trailer))
	mustBeRefused(t, "a graph", err, trailer, false, "the server cannot parse the request")
}

// TestRefusedReceiveMayPass: the error of a receive that a crowded server has refused says so, too.
func TestRefusedReceiveMayPass(t *testing.T) {
	a := answering(t, method(tensorflowWorker, "RecvTensor", func(ctx context.Context, _ *tfpb.RecvTensorRequest) (any, error) {
		return nil, toGRPC(ctx, status.Passing("no room"))
	}))
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address}})
	_, err := b.manager.Find(1).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
	if _, ok := status.From(err).Payload(status.TryAgain); !ok || status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("got %v, marked %v", err, ok)
	}
}
