package grpctransport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// TestH2HostPorts: a task gives the connection to its address. The same task gives the
// same connection and the same stub. A task that is not in the cluster is NotFound.
func TestH2HostPorts(t *testing.T) {
	spec, err := cluster.NewSpec(map[string]map[int]string{"mnist": {0: "a:1", 2: "c:3"}, "other": {0: "x:9"}})
	if err != nil {
		t.Fatal(err)
	}
	c := NewConns(ConnsOptions{Spec: spec, Self: cluster.Task{Job: "mnist", Index: 0}})
	defer c.Close()
	for name, want := range map[string]string{
		"/job:mnist/replica:0/task:0": "a:1",
		"/job:mnist/replica:0/task:2": "c:3",
		"/job:other/replica:0/task:0": "x:9",
		"/job:mnist/replica:0/task:1": "", // sparse (H4)
		"/job:mnist/replica:0/task:3": "",
		"/job:mnist/replica:1/task:0": "",
		"/job:none/replica:0/task:0":  "",
	} {
		task, err := cluster.ParseTask(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.peer(task)
		if want == "" {
			if status.CodeOf(err) != status.NotFound {
				t.Errorf("%s: got %v, want NotFound", name, err)
			}
			continue
		}
		if err != nil || p.channel.at() != want {
			t.Errorf("%s: got %v, %v; want the address %s", name, p, err, want)
			continue
		}
		w1, _ := c.Worker(task)
		w2, _ := c.Worker(task)
		ch1, _ := c.Conn(task)
		ch2, _ := c.Conn(task)
		if w1 != w2 || ch1 != ch2 {
			t.Errorf("%s: two calls gave different connections or stubs", name)
		}
	}
	if got := len(c.Tasks()); got != 3 {
		t.Errorf("got %d tasks, want 3", got)
	}
}

// TestTaskThatHasJustLeftIsNotFound: the task was in the cluster when the receive began, and
// has left when it looks for a connection.
func TestTaskThatHasJustLeftIsNotFound(t *testing.T) {
	task := func(i int) cluster.Task { return cluster.Task{Job: "w", Index: i} }
	c := NewConns(ConnsOptions{Left: func(left cluster.Task) bool { return left == task(2) }})
	defer c.Close()
	r := New(Options{Conns: c})
	for i, left := range map[int]bool{2: true, 3: false} {
		_, err := r.Conn(task(i))
		_, callErr := c.Worker(task(i))
		for _, err := range []error{err, callErr} {
			if status.CodeOf(err) != status.NotFound || errors.Is(err, status.ErrTaskLeft) != left {
				t.Errorf("task %d: %v", i, err)
			}
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestH3SeveralConnections: calls to one peer use its connections in turn.
func TestH3SeveralConnections(t *testing.T) {
	var c testCluster
	var mu sync.Mutex
	seen := make(map[string]int)
	var order []string
	a := c.start(t, 0, nodeOptions{wrap: func(w transport.Worker) transport.Worker {
		return &recorder{Worker: w, got: func(ctx context.Context, _ proto.Message) {
			mu.Lock()
			defer mu.Unlock()
			from := transport.CallerOf(ctx).Address
			seen[from]++
			order = append(order, from)
		}}
	}})
	b := c.start(t, 1, nodeOptions{dial: DialOptions{Connections: 4}})
	w, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	call := func() bool {
		if _, err := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 4
	}
	until(t, call, "calls over four connections")
	inTurn := func() bool {
		order = nil
		for range 12 {
			call()
		}
		return slices.Equal(order[:4], order[4:8]) && slices.Equal(order[:4], order[8:])
	}
	tries := 0
	for !inTurn() { // a connection that has just come up may change which one is next
		if tries++; tries == 5 {
			t.Fatalf("got the order %v, want four connections in turn", order)
		}
	}
	if len(seen) != 4 {
		t.Errorf("the calls came over %d connections, want 4", len(seen))
	}
}

// TestH6OwnAddressIsLocal: the own task gives the worker of this process, another task
// a stub.
func TestH6OwnAddressIsLocal(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{})
	b := c.start(t, 1, nodeOptions{})
	if w, err := a.conns.Worker(a.task); err != nil || w != transport.Worker(a.worker) {
		t.Errorf("got %T, %v; want the local worker", w, err)
	}
	w, err := a.conns.Worker(b.task)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := w.(*RemoteWorker); !ok {
		t.Errorf("got %T, want *RemoteWorker", w)
	}
	resp, err := w.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
	if err != nil || resp.GetDeviceAttributes()[0].GetIncarnation() != b.incarnation {
		t.Errorf("got %v, %v; want the incarnation %d", resp, err, b.incarnation)
	}
}

// TestH7CloseInCallback: the callback of a receive may close the connection that
// carried it.
func TestH7CloseInCallback(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{})
	b := c.start(t, 1, nodeOptions{peerTimeout: time.Second})
	key := a.key(b, "x")
	a.send(1, key, tensortest.Tensor(t, tensor.Float32, 300))
	closed := make(chan error, 1)
	b.manager.Find(1).RecvAsync(t.Context(), key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		if err == nil {
			v.Tensor.Release()
		}
		closed <- b.conns.Close()
	})
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := b.conns.Worker(a.task); status.CodeOf(err) != status.Cancelled {
		t.Errorf("after Close: got %v, want Cancelled", err)
	}
}

// recorder passes each request to got and returns a response with all plain fields set.
type recorder struct {
	transport.Worker
	got func(context.Context, proto.Message)
}

func record[Resp any, P interface {
	*Resp
	proto.Message
}](ctx context.Context, r *recorder, req proto.Message) (*Resp, error) {
	r.got(ctx, req)
	resp := P(new(Resp))
	fillFields(resp)
	return resp, nil
}

func (r *recorder) GetStatus(ctx context.Context, q *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	return record[tfpb.GetStatusResponse](ctx, r, q)
}
func (r *recorder) CreateWorkerSession(ctx context.Context, q *tfpb.CreateWorkerSessionRequest) (*tfpb.CreateWorkerSessionResponse, error) {
	return record[tfpb.CreateWorkerSessionResponse](ctx, r, q)
}
func (r *recorder) DeleteWorkerSession(ctx context.Context, q *tfpb.DeleteWorkerSessionRequest) (*tfpb.DeleteWorkerSessionResponse, error) {
	return record[tfpb.DeleteWorkerSessionResponse](ctx, r, q)
}
func (r *recorder) RegisterGraph(ctx context.Context, q *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error) {
	return record[tfpb.RegisterGraphResponse](ctx, r, q)
}
func (r *recorder) DeregisterGraph(ctx context.Context, q *tfpb.DeregisterGraphRequest) (*tfpb.DeregisterGraphResponse, error) {
	return record[tfpb.DeregisterGraphResponse](ctx, r, q)
}
func (r *recorder) RunGraph(ctx context.Context, q *tfpb.RunGraphRequest) (*tfpb.RunGraphResponse, error) {
	return record[tfpb.RunGraphResponse](ctx, r, q)
}
func (r *recorder) CleanupGraph(ctx context.Context, q *tfpb.CleanupGraphRequest) (*tfpb.CleanupGraphResponse, error) {
	return record[tfpb.CleanupGraphResponse](ctx, r, q)
}
func (r *recorder) CleanupAll(ctx context.Context, q *tfpb.CleanupAllRequest) (*tfpb.CleanupAllResponse, error) {
	return record[tfpb.CleanupAllResponse](ctx, r, q)
}
func (r *recorder) RecvBuf(ctx context.Context, q *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error) {
	return record[tfpb.RecvBufResponse](ctx, r, q)
}
func (r *recorder) Logging(ctx context.Context, q *tfpb.LoggingRequest) (*tfpb.LoggingResponse, error) {
	return record[tfpb.LoggingResponse](ctx, r, q)
}
func (r *recorder) Tracing(ctx context.Context, q *tfpb.TracingRequest) (*tfpb.TracingResponse, error) {
	return record[tfpb.TracingResponse](ctx, r, q)
}
func (r *recorder) CompleteGroup(ctx context.Context, q *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	return record[tfpb.CompleteGroupResponse](ctx, r, q)
}
func (r *recorder) CompleteInstance(ctx context.Context, q *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error) {
	return record[tfpb.CompleteInstanceResponse](ctx, r, q)
}
func (r *recorder) GetStepSequence(ctx context.Context, q *tfpb.GetStepSequenceRequest) (*tfpb.GetStepSequenceResponse, error) {
	return record[tfpb.GetStepSequenceResponse](ctx, r, q)
}
func (r *recorder) MarkRecvFinished(ctx context.Context, q *tfpb.MarkRecvFinishedRequest) (*tfpb.MarkRecvFinishedResponse, error) {
	return record[tfpb.MarkRecvFinishedResponse](ctx, r, q)
}

// fillFields sets the plain fields of m.
func fillFields(m proto.Message) {
	r := m.ProtoReflect()
	for i := range r.Descriptor().Fields().Len() {
		f := r.Descriptor().Fields().Get(i)
		if f.IsList() || f.IsMap() {
			continue
		}
		n := uint64(f.Number())
		switch f.Kind() {
		case protoreflect.StringKind:
			r.Set(f, protoreflect.ValueOfString(string(f.Name())))
		case protoreflect.Int64Kind:
			r.Set(f, protoreflect.ValueOfInt64(int64(n)))
		case protoreflect.BoolKind:
			r.Set(f, protoreflect.ValueOfBool(true))
		case protoreflect.Fixed64Kind:
			r.Set(f, protoreflect.ValueOfUint64(n))
		case protoreflect.Int32Kind:
			r.Set(f, protoreflect.ValueOfInt32(int32(n)))
		}
	}
}

// TestH12LocalAndRemoteAreEqual: each method returns the same through the stub as from
// the worker, and the server has it under TensorFlow's name.
func TestH12LocalAndRemoteAreEqual(t *testing.T) {
	var c testCluster
	var last proto.Message
	r := &recorder{got: func(_ context.Context, m proto.Message) { last = m }}
	a := c.start(t, 0, nodeOptions{wrap: func(w transport.Worker) transport.Worker { r.Worker = w; return r }})
	b := c.start(t, 1, nodeOptions{})
	remote, err := b.conns.Worker(a.task)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range tensorflowgrpc.WorkerService_ServiceDesc.Methods {
		if m.MethodName == "RecvTensor" {
			continue // its response is no message: see TestRemoteWorkerRecvTensor
		}
		call := func(w transport.Worker, req reflect.Value) (proto.Message, error) {
			out := reflect.ValueOf(w).MethodByName(m.MethodName).Call([]reflect.Value{reflect.ValueOf(t.Context()), req})
			err, _ := reflect.TypeAssert[error](out[1])
			resp, _ := reflect.TypeAssert[proto.Message](out[0])
			return resp, err
		}
		typ := reflect.TypeOf(remote).Elem()
		method, ok := reflect.PointerTo(typ).MethodByName(m.MethodName)
		if !ok {
			t.Fatalf("no method %s", m.MethodName)
		}
		req := reflect.New(method.Type.In(2).Elem())
		sent, _ := reflect.TypeAssert[proto.Message](req)
		fillFields(sent)
		if finished, ok := sent.(*tfpb.MarkRecvFinishedRequest); ok {
			finished.Requester = task(1).String() // must be a valid task name
		}
		want, err := call(r, req)
		if err != nil {
			t.Fatal(err)
		}
		last = nil
		got, err := call(remote, req)
		if err != nil {
			t.Fatalf("%s: %v", m.MethodName, err)
		}
		if d := cmp.Diff(sent, last, protocmp.Transform()); d != "" {
			t.Errorf("%s: the request: %s", m.MethodName, d)
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("%s: the response: %s", m.MethodName, d)
		}
	}
	served := a.server.GetServiceInfo()["tensorflow.WorkerService"]
	if len(served.Methods) != 16 || served.Metadata != tensorflowgrpc.WorkerService_ServiceDesc.Metadata {
		t.Errorf("the server has %d methods of %v, want 16 of %v", len(served.Methods), served.Metadata, tensorflowgrpc.WorkerService_ServiceDesc.Metadata)
	}
}

// TestTLS: with credentials on both sides tensors go over TLS. A client without TLS gets
// Unavailable.
func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	var c testCluster
	l := listen(t)
	a := c.start(t, 0, nodeOptions{})
	tlsServer := grpc.NewServer(ServerOptions(ServerTuning{Credentials: credentials.NewServerTLSFromCert(&cert)})...)
	Register(tlsServer, ServiceOptions{
		Self: transport.Process{Name: a.task.String(), Incarnation: a.incarnation}, Worker: a.worker, Cache: a.kept,
	})
	served := make(chan struct{})
	go func() { defer close(served); _ = tlsServer.Serve(l) }()
	defer func() { tlsServer.Stop(); <-served }()
	b := c.start(t, 1, nodeOptions{
		addresses: map[int]string{0: l.Addr().String()},
		dial:      DialOptions{Credentials: credentials.NewClientTLSFromCert(pool, "")},
	})
	key := a.key(b, "x")
	x := tensortest.Tensor(t, tensor.Float32, 1<<20)
	a.send(1, key, x)
	v := b.recv(1, key)
	tensortest.RequireEqual(t, x, v.Tensor)
	v.Tensor.Release()
	plain := c.start(t, 2, nodeOptions{addresses: map[int]string{0: l.Addr().String()}, peerTimeout: 100 * time.Millisecond})
	if o := <-plain.begin(t.Context(), 1, a.key(plain, "x")); status.CodeOf(o.err) != status.Unavailable {
		t.Errorf("without TLS: got %v, want Unavailable", o.err)
	}
}

// certificate returns a self-signed certificate for 127.0.0.1, and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
