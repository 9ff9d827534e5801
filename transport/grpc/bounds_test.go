package grpctransport

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// Limits of the memory and time that peers may use.

// answering serves a WorkerService of the given methods alone.
func answering(t *testing.T, methods ...grpc.MethodDesc) *node {
	var c testCluster
	return c.start(t, 0, nodeOptions{serve: func(s *grpc.Server, n *node) {
		s.RegisterService(&grpc.ServiceDesc{ServiceName: tensorflowWorker, HandlerType: (*any)(nil), Methods: methods}, n)
	}})
}

const tensorflowWorker = "tensorflow.WorkerService"

// TestTicketThatWasNotAskedFor: a ticket is an error for a client that does not accept chunks,
// since the response has no tensor.
func TestTicketThatWasNotAskedFor(t *testing.T) {
	extra, err := anypb.New(&trystpb.RecvExtra{SenderIncarnation: 1, Ticket: &trystpb.Ticket{Bytes: 4}})
	if err != nil {
		t.Fatal(err)
	}
	a := answering(t, method(tensorflowWorker, "RecvTensor", func(context.Context, *tfpb.RecvTensorRequest) (any, error) {
		return &tfpb.RecvTensorResponse{
			Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: &tfpb.TensorShapeProto{}}, TransportOptions: extra,
		}, nil
	}))
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address}})
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.RecvTensor(t.Context(), &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: a.key(b, "x").String()})
	if status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "ticket") {
		t.Error(err)
	}
}

// noValues are Values without any.
type noValues struct{}

func (noValues) RecvLocalAsync(_ context.Context, _ int64, _ rendezvous.Key, done rendezvous.DoneFunc) {
	done(rendezvous.Value{}, rendezvous.Args{}, status.New(status.Aborted, "there is nothing"))
}
func (noValues) TakeLocal(int64, rendezvous.Key) (rendezvous.Value, bool) {
	return rendezvous.Value{}, false
}
func (noValues) Restore(int64, rendezvous.Key, rendezvous.Value) bool { return false }

// TestRequestersOfAConnectionAreBounded: a proxy's connection has many requesters. At the limit
// those without cached responses are removed for others.
func TestRequestersOfAConnectionAreBounded(t *testing.T) {
	k := delivery.NewResponseCache(noValues{}, delivery.CacheOptions{})
	defer k.Close()
	a, b := net.Pipe()
	defer a.Close()
	quota, err := newQuotas(ServerTuning{}).connect(b.RemoteAddr())
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{Conn: b, quota: quota, disconnects: make(map[transport.Process]binding)}
	c.remote = address{b.RemoteAddr(), "pipe", c}
	key, err := rendezvous.NewKey(cluster.DeviceOf(task(0)), 1, cluster.DeviceOf(task(1)), "x", rendezvous.FrameIter{})
	if err != nil {
		t.Fatal(err)
	}
	client := func(i int) transport.Process {
		return transport.Process{Name: cluster.Task{Job: cluster.ClientJob, Index: i}.String(), Incarnation: uint64(i) + 1}
	}
	for i := range 3 * maxRequestersPerConn {
		if err := c.bind(k, client(i), 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.disconnects) > maxRequestersPerConn {
		t.Errorf("%d requesters are bound to the connection", len(c.disconnects))
	}
	for i := range maxRequestersPerConn {
		if err := c.bind(k, client(i), 0); err != nil {
			t.Fatal(err)
		}
		k.Request(replyTo(func(transport.Response) {}), transport.Request{Requester: client(i), ID: 1, Attempt: 1, Step: 1, Key: key}) // the error is kept
	}
	err = c.bind(k, client(maxRequestersPerConn), 0)
	if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "one connection") {
		t.Errorf("one requester above the limit: %v", err)
	}
	if !c.isBound(client(0), 0) {
		t.Error("a requester with a cached response was removed")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if s := k.Stats(); s.Connected != 0 {
		t.Errorf("%d are connected when it has been closed", s.Connected)
	}
}

// TestLongRequesterNameIsRefused: names are kept longer than connections.
func TestLongRequesterNameIsRefused(t *testing.T) {
	c := new(testCluster)
	a, b := c.start(t, 0, nodeOptions{}), c.start(t, 1, nodeOptions{})
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	o, err := anypb.New(&trystpb.RecvOptions{Requester: strings.Repeat("n", 2000), RequesterIncarnation: 1, Id: 1, Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.RecvTensor(t.Context(), &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: a.key(b, "x").String(), TransportOptions: o})
	if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "2000 bytes") {
		t.Error(err)
	}
}

// TestManyIDsAtOnceAreRefused: the response cache is locked while they are looked up.
func TestManyIDsAtOnceAreRefused(t *testing.T) {
	c := new(testCluster)
	a, b := c.start(t, 0, nodeOptions{}), c.start(t, 1, nodeOptions{})
	conn, err := b.conns.Conn(a.task)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]uint64, 1_000_000)
	for i := range ids {
		ids[i] = uint64(i) << 32
	}
	_, err = trystgrpc.NewPeersClient(conn).Cancel(t.Context(), &trystpb.CancelRequest{Requester: b.task.String(), RequesterIncarnation: 7, Ids: ids})
	if status.CodeOf(fromGRPC(err, nil)) != status.ResourceExhausted {
		t.Error(err)
	}
}

// TestCloseWaitsForNoAck: Close waits for acks no longer than its context.
func TestCloseWaitsForNoAck(t *testing.T) {
	asked, hung := make(chan struct{}), make(chan struct{})
	a := answering(t,
		method(tensorflowWorker, "RecvTensor", func(context.Context, *tfpb.RecvTensorRequest) (any, error) {
			return &tfpb.RecvTensorResponse{RequireAck: true, Tensor: &tfpb.TensorProto{
				Dtype: tfpb.DataType_DT_FLOAT, TensorShape: &tfpb.TensorShapeProto{}, TensorContent: make([]byte, 4),
			}}, nil
		}),
		method(tensorflowWorker, "MarkRecvFinished", func(context.Context, *tfpb.MarkRecvFinishedRequest) (any, error) {
			close(asked)
			<-hung
			return &tfpb.MarkRecvFinishedResponse{}, nil
		}))
	defer close(hung)
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address}})
	v, err := b.manager.Find(1).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
	if err != nil {
		t.Fatal(err)
	}
	v.Tensor.Release()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if err := b.transport.Close(ctx); err != nil && !errors.Is(err, context.Canceled) || time.Since(began) > ackWait/2 {
		t.Errorf("Close took %v: %v", time.Since(began), err)
	}
}

// TestFetchOfAnOldAttemptIsRefused: only the newest attempt of a receive gets content.
func TestFetchOfAnOldAttemptIsRefused(t *testing.T) {
	c := new(testCluster)
	a, b := c.start(t, 0, nodeOptions{}), c.start(t, 1, nodeOptions{})
	a.send(1, a.key(b, "x"), float32s(t, tensor.Heap{}, tensor.Vector(1), 1))
	requester := transport.Process{Name: b.task.String(), Incarnation: b.incarnation}
	answered := make(chan transport.Response, 1)
	a.kept.Request(replyTo(func(r transport.Response) { answered <- r }),
		transport.Request{Requester: requester, ID: 5, Attempt: 2, Step: 1, Key: a.key(b, "x")})
	(<-answered).Value.Tensor.Release()
	conn, err := b.conns.Conn(a.task)
	if err != nil {
		t.Fatal(err)
	}
	for attempt, want := range map[uint32]status.Code{1: status.Aborted, 2: status.OK, 3: status.OK} {
		stream, err := trystgrpc.NewChunksClient(conn).Fetch(t.Context(),
			&trystpb.FetchRequest{Requester: requester.Name, RequesterIncarnation: requester.Incarnation, Id: 5, Attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.CodeOf(fromGRPC(err, nil)) != want {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
}

// TestFailedFetchIsNotAConfirmation: a requester that acknowledges the error of a Fetch does not
// have the value.
func TestFailedFetchIsNotAConfirmation(t *testing.T) {
	var c testCluster
	a, b := c.start(t, 0, nodeOptions{}), c.start(t, 1, nodeOptions{})
	x := float32s(t, tensor.Heap{}, tensor.Vector(1), 1)
	d, err := a.manager.Find(1).SendWait(t.Context(), a.key(b, "x"), rendezvous.Args{}, x, false)
	x.Release()
	if err != nil {
		t.Fatal(err)
	}
	requester := transport.Process{Name: b.task.String(), Incarnation: b.incarnation}
	answered := make(chan transport.Response, 1)
	a.kept.Request(replyTo(func(r transport.Response) { answered <- r }),
		transport.Request{Requester: requester, ID: 5, Attempt: 1, Step: 1, Key: a.key(b, "x")})
	(<-answered).Value.Tensor.Release()
	conn, err := b.conns.Conn(a.task)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := trystgrpc.NewChunksClient(conn).Fetch(t.Context(),
		&trystpb.FetchRequest{Requester: requester.Name, RequesterIncarnation: requester.Incarnation, Id: 5, Attempt: 1, Offset: 5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = stream.Recv(); status.CodeOf(fromGRPC(err, nil)) != status.OutOfRange {
		t.Errorf("from a byte behind the content: %v", err)
	}
	a.kept.Ack(requester, []uint64{5})
	if <-d.Done(); status.CodeOf(d.Err()) != status.OutOfRange {
		t.Errorf("the outcome is %v", d.Err())
	}
}
