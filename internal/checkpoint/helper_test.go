package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a server: a catalog, the steps of its process, and a gRPC server in
// memory.
type host struct {
	t       testing.TB
	alloc   *tensortest.Allocator
	catalog *checkpoint.Catalog
	manager *rendezvous.Manager
	session *rendezvous.Session
	grpc    *grpc.Server
	lis     *bufconn.Listener
	ended   atomic.Int64 // steps

	// damage changes what leaves the host; nil for nothing.
	damage func(rendezvous.Value)
	// replace gives another value in place of what leaves; nil for the same.
	replace func(rendezvous.Value) rendezvous.Value
	// answer, if not nil, returns what leaves in place of the value of a key.
	answer func(rendezvous.Key, rendezvous.Value, error) (rendezvous.Value, error)
}

func session(task cluster.Task, incarnation uint64) (*rendezvous.Session, cluster.Device) {
	d := cluster.Device{Task: task, Type: "CPU"}
	return &rendezvous.Session{Task: task, Devices: map[cluster.Device]uint64{d: incarnation}}, d
}

func serve(t testing.TB, change ...func(*checkpoint.CatalogOptions)) *host {
	t.Helper()
	h := &host{t: t, alloc: tensortest.NewAllocator(t)}
	incarnation := cluster.NewIncarnation()
	var device cluster.Device
	h.session, device = session(cluster.Task{Job: "worker"}, incarnation)
	h.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: h.session})
	o := checkpoint.CatalogOptions{
		Device: device, Incarnation: incarnation, Allocator: h.alloc,
		EndStep: func(step int64) { h.ended.Add(1); h.manager.Cleanup(step) },
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if h.catalog, err = checkpoint.NewCatalog(o); err != nil {
		t.Fatal(err)
	}
	h.manager.AddPublisher(h.catalog)
	h.listen(grpc.NewServer(), func(r grpc.ServiceRegistrar) grpc.ServiceRegistrar { return r })
	t.Cleanup(h.stop)
	return h
}

// listen serves the catalog by a gRPC server.
func (h *host) listen(s *grpc.Server, as func(grpc.ServiceRegistrar) grpc.ServiceRegistrar) {
	h.lis, h.grpc = bufconn.Listen(1<<20), s
	h.catalog.Register(as(s))
	go s.Serve(h.lis) //nolint:errcheck // it ends with Stop
}

// makeOlder makes the host one of a version that has no numbers, and cannot announce them.
func (h *host) makeOlder() {
	h.grpc.Stop()
	unnumbered := func(_ context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(h.t.Context(), req)
		m, ok := resp.(proto.Message)
		if err != nil || !ok {
			return resp, err
		}
		return withoutNumbers(m)
	}
	h.listen(grpc.NewServer(grpc.UnaryInterceptor(unnumbered)), func(r grpc.ServiceRegistrar) grpc.ServiceRegistrar { return older{r} })
}

// withoutNumbers returns a response of an older server.
func withoutNumbers(m proto.Message) (proto.Message, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	m = m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	var all []*trystpb.Publication
	switch m := m.(type) {
	case *trystpb.ListResponse:
		all = m.GetPublications()
	case *trystpb.DescribeResponse:
		all = append(all, m.GetPublication())
	}
	for _, p := range all {
		p.Number, p.Epoch = 0, 0
	}
	return m, nil
}

func (h *host) stop() {
	h.grpc.Stop()
	h.catalog.Close()
	h.manager.Close()
}

// publish publishes files or fails the test.
func (h *host) publish(name string, paths ...string) checkpoint.Publication {
	h.t.Helper()
	p, err := h.catalog.Publish(h.t.Context(), name, paths...)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// withdraw withdraws a publication.
func (h *host) withdraw(name string) error {
	_, err := h.catalog.Withdraw(h.t.Context(), name)
	return err
}

// client is a pulling process with steps of its own, whose remote receives go
// straight to the host's manager.
type client struct {
	*checkpoint.Puller
	manager *rendezvous.Manager
	conn    *grpc.ClientConn

	mu sync.Mutex
	to *host // that new connections reach; guarded by mu
	at net.Conn
}

// moveTo lets another host answer: the connection breaks.
func (c *client) moveTo(h *host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = h
	_ = c.at.Close() // it breaks
}

// connect makes a connection to the present host.
func (c *client) connect(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, err := c.to.lis.DialContext(ctx)
	if err == nil {
		c.at = conn
	}
	return conn, err
}

// server returns the present host.
func (c *client) server() *host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.to
}

func (h *host) dial(change ...func(*checkpoint.PullerOptions)) *client {
	h.t.Helper()
	c := &client{to: h}
	conn, err := grpc.NewClient("passthrough:///host", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.connect(ctx) }))
	if err != nil {
		h.t.Fatal(err)
	}
	c.conn = conn
	task, incarnation := cluster.ClientTask(), cluster.NewIncarnation()
	s, _ := session(task, incarnation)
	c.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: s, Remoter: c})
	o := checkpoint.PullerOptions{Conn: conn, Task: task, Incarnation: incarnation, Receiver: checkpoint.NewReceiver(c.manager)}
	for _, f := range change {
		f(&o)
	}
	c.Puller = checkpoint.NewPuller(o)
	h.t.Cleanup(func() {
		conn.Close()
		c.manager.Close()
	})
	return c
}

// RecvFromRemoteAsync implements rendezvous.Remoter.
func (c *client) RecvFromRemoteAsync(step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	ctx, cancel := context.WithCancelCause(context.Background())
	x := &transfer{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer cancel(nil)
		x.v, x.err = c.recv(ctx, step, key)
		x.v, x.err = into(args, x.v, x.err)
		close(x.ended)
		if done != nil {
			done(x.v, args, x.err)
		}
	}()
	return x
}

// into passes a value on as a transport does: in the receiver's own memory if it has given any.
func into(args rendezvous.Args, v rendezvous.Value, err error) (rendezvous.Value, error) {
	i := rendezvous.IntoOf(args)
	if i == nil || err != nil {
		return v, err
	}
	if err := errors.Join(i.Claim(), i.Check(v.Tensor.DType(), v.Tensor.Shape())); err != nil {
		return rendezvous.Value{}, err
	}
	v.Tensor = i.Copy(v.Tensor)
	i.End(func(f func()) { f() })
	return v, nil
}

func (c *client) recv(ctx context.Context, step int64, key rendezvous.Key) (rendezvous.Value, error) {
	h := c.server()
	if err := h.session.CheckSource(key); err != nil {
		return rendezvous.Value{}, err
	}
	v, err := h.manager.RecvLocal(ctx, step, key)
	if err == nil && h.damage != nil {
		h.damage(v)
	}
	if err == nil && h.replace != nil {
		v = h.replace(v)
	}
	if h.answer != nil {
		return h.answer(key, v, err)
	}
	return v, err
}

// transfer is a rendezvous.Transfer.
type transfer struct {
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when v and err are there
	v      rendezvous.Value
	err    error
}

func (x *transfer) Cancel(err error) { x.cancel(err) }

func (x *transfer) Wait(ctx context.Context) (rendezvous.Value, error) {
	select {
	case <-x.ended:
	case <-ctx.Done():
		x.cancel(context.Cause(ctx))
		<-x.ended
	}
	return x.v, x.err
}

// pull pulls everything that req says. The tensors are released with the test.
func (c *client) pull(t testing.TB, req checkpoint.PullRequest) []*tensor.Tensor {
	t.Helper()
	all, err := c.tryPull(t, req)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (c *client) tryPull(t testing.TB, req checkpoint.PullRequest) (all []*tensor.Tensor, err error) {
	for x, err := range c.Pull(t.Context(), req) {
		if err != nil {
			return all, err
		}
		all = append(all, x)
		t.Cleanup(x.Release)
	}
	return all, nil
}

// named returns a tensor with a name, released with the test.
func named(t testing.TB, name string, dtype tensor.DType, dims ...int64) *tensor.Tensor {
	t.Helper()
	return tensortest.Tensor(t, dtype, dims...).Named(name)
}

// model is a few tensors of all sizes.
func model(t testing.TB) []*tensor.Tensor {
	return []*tensor.Tensor{
		named(t, "wte.weight", tensor.Float32, 100, 64),
		named(t, "h.0/attn.weight", tensor.BFloat16, 64, 192),
		named(t, "h.0/attn.bias", tensor.Float32, 192),
		named(t, "h.1/attn;weight", tensor.Float32, 64, 192),
		named(t, "empty", tensor.Int64, 0, 3),
		named(t, "scalar", tensor.Float64),
		named(t, "mask é", tensor.Bool, 17),
	}
}

// writeSafetensors writes tensors to a file in their order and returns its
// path.
func writeSafetensors(t testing.TB, path string, metadata map[string]string, tensors ...*tensor.Tensor) string {
	t.Helper()
	specs := make([]safetensors.Spec, len(tensors))
	for i, x := range tensors {
		specs[i] = safetensors.Spec{Name: x.Name(), DType: x.DType(), Shape: x.Shape()}
	}
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, specs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		if err := w.Write(x.Name(), x); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, path, b.Bytes())
	return path
}

func writeNPY(t testing.TB, path string, x *tensor.Tensor) string {
	t.Helper()
	var b bytes.Buffer
	if err := npy.Write(&b, x); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, b.Bytes())
	return path
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// requireSame compares pulled tensors with what was published, names included.
func requireSame(t testing.TB, want, got []*tensor.Tensor) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d tensors, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Name() != want[i].Name() {
			t.Fatalf("tensor %d is %q, want %q", i, got[i].Name(), want[i].Name())
		}
		tensortest.RequireEqual(t, want[i], got[i])
	}
}

// mustBe checks the class of an error and words that its text must have.
func mustBe(t testing.TB, err error, code status.Code, words ...string) {
	t.Helper()
	if status.CodeOf(err) != code {
		t.Fatalf("got error %v, want %v", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has more than one line", err)
	}
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// damager returns a function that changes the given byte of tensors of at least so many bytes, in
// memory that they may share.
func damager(at int) func(rendezvous.Value) {
	var mu sync.Mutex
	done := make(map[*tensor.Buffer]bool)
	return func(v rendezvous.Value) {
		mu.Lock()
		defer mu.Unlock()
		if b := v.Tensor.Bytes(); len(b) > at && !done[v.Tensor.Buffer()] {
			done[v.Tensor.Buffer()] = true
			b[at] ^= 1
		}
	}
}
