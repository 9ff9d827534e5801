package checkpoint_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// opened is a stream of Open whose keys have come.
type opened struct {
	grpc.ServerStreamingClient[trystpb.OpenResponse]
	cancel   context.CancelFunc
	step     int64
	keys     map[string]string
	messages int
}

func (c *client) open(t testing.TB, req *trystpb.OpenRequest) (*opened, error) {
	t.Helper()
	if req.Puller == "" {
		req.Puller = "/job:client/replica:0/task:17"
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := trystgrpc.NewPublicationsClient(c.conn).Open(ctx, req)
	must(t, err)
	o := &opened{ServerStreamingClient: stream, cancel: cancel, keys: make(map[string]string)}
	for last := false; !last; o.messages++ {
		resp, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if o.step != 0 && resp.GetStepId() != o.step {
			t.Errorf("message %d says step %d, the first %d", o.messages, resp.GetStepId(), o.step)
		}
		o.step = resp.GetStepId()
		for _, k := range resp.GetKeys() {
			if _, ok := o.keys[k.GetName()]; ok {
				t.Errorf("tensor %q has two keys", k.GetName())
			}
			o.keys[k.GetName()] = k.GetKey()
		}
		if n := proto.Size(resp); n > 2<<20 {
			t.Errorf("a message has %d bytes", n)
		}
		last = resp.GetLast()
	}
	return o, nil
}

func TestOpenGivesKeysOfAStepOfItsOwn(t *testing.T) {
	tensors := model(t)
	h := serve(t)
	pub, err := h.catalog.PublishTensors(t.Context(), "a;b@c/d%e", tensors...)
	must(t, err)
	c := h.dial()
	a, err := c.open(t, &trystpb.OpenRequest{Publication: pub.Name})
	must(t, err)
	b, err := c.open(t, &trystpb.OpenRequest{Publication: pub.Name, Version: pub.Version, Tensors: []string{"scalar", "empty", "scalar"}})
	must(t, err)
	if len(a.keys) != len(tensors) || len(b.keys) != 2 {
		t.Errorf("%d and %d keys, want %d and 2", len(a.keys), len(b.keys), len(tensors))
	}
	if a.step == b.step || a.step>>62 != 1 || b.step>>62 != 1 {
		t.Errorf("steps %x and %x", a.step, b.step)
	}
	for _, x := range tensors {
		key, err := rendezvous.ParseKey(a.keys[x.Name()])
		must(t, err)
		if key.Src() != (cluster.Device{Task: h.session.Task, Type: "CPU"}) || key.Dst().Task.Index != 17 ||
			key.Edge() != checkpoint.EdgeName(pub.Name, pub.Version, x.Name()) {
			t.Errorf("the key of %q is %s", x.Name(), key)
		}
		for _, step := range []int64{a.step, 42, 42} { // every step, as often as asked, by reference
			v, err := h.manager.RecvLocal(t.Context(), step, key)
			must(t, err)
			if root, _ := v.Tensor.Buffer().Root(); root != x.Buffer() {
				t.Errorf("step %d has a copy of %q", step, x.Name())
			}
			v.Tensor.Release()
		}
	}
	if n := h.manager.Steps(); n != 0 {
		t.Errorf("%d steps were made", n)
	}
	if h.ended.Load() != 0 || h.catalog.Pulls() != 2 {
		t.Errorf("%d steps ended, %d pulls", h.ended.Load(), h.catalog.Pulls())
	}
	a.cancel()
	b.cancel()
	h.idle(t, 2)
	key, err := rendezvous.ParseKey(a.keys["scalar"])
	must(t, err)
	_, err = h.manager.RecvLocal(t.Context(), a.step, key)
	mustBe(t, err, status.Aborted) // the step is over
}

func TestOpenErrors(t *testing.T) {
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	c := h.dial()
	for _, tt := range []struct {
		req  *trystpb.OpenRequest
		code codes.Code
		want string
	}{
		{&trystpb.OpenRequest{Publication: "n"}, codes.NotFound, `there is no publication "n"; the nearest are "m"`},
		{&trystpb.OpenRequest{Publication: "m", Version: "7"}, codes.NotFound, `"7" is not here`},
		{&trystpb.OpenRequest{Publication: "m", Tensors: []string{"scala"}}, codes.NotFound, `no tensor "scala"; the nearest are "scalar"`},
		{&trystpb.OpenRequest{Publication: "m", Puller: "me"}, codes.InvalidArgument, "puller"},
	} {
		_, err := c.open(t, tt.req)
		if s := grpcstatus.Convert(err); s.Code() != tt.code || !strings.Contains(s.Message(), tt.want) {
			t.Errorf("%v: got %v, want %v with %q", tt.req, err, tt.code, tt.want)
		}
	}
	if h.ended.Load() != 0 || h.catalog.Pulls() != 0 {
		t.Error("what was refused has a step")
	}
}

func TestOpenSendsManyKeysInSeveralMessages(t *testing.T) {
	h := serve(t)
	x := named(t, "", tensor.Uint8)
	var tensors []*tensor.Tensor
	for i := range 1000 {
		tensors = append(tensors, x.Named(strings.Repeat("layer.", 900)+fmt.Sprint(i)))
	}
	_, err := h.catalog.PublishTensors(t.Context(), "m", tensors...)
	must(t, err)
	c := h.dial()
	o, err := c.open(t, &trystpb.OpenRequest{Publication: "m"})
	must(t, err)
	if len(o.keys) != len(tensors) || o.messages < 4 {
		t.Errorf("%d keys in %d messages", len(o.keys), o.messages)
	}
	// A selection whose names make a long request is opened whole.
	if got := c.pull(t, checkpoint.PullRequest{Tensors: []string{"*[0-8]"}}); len(got) != 900 {
		t.Errorf("pulled %d tensors", len(got))
	}
}

func TestDrainWaitsForPulls(t *testing.T) {
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	c := h.dial()
	must(t, h.catalog.Drain(t.Context()))
	_, err = c.open(t, &trystpb.OpenRequest{Publication: "m"})
	if grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("a pull after Drain: %v", err)
	}

	h = serve(t)
	_, err = h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	o, err := h.dial().open(t, &trystpb.OpenRequest{Publication: "m"})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mustBe(t, h.catalog.Drain(ctx), status.Cancelled, "1 have not ended")
	drained := make(chan error)
	go func() { drained <- h.catalog.Drain(t.Context()) }()
	o.cancel()
	must(t, <-drained)
	h.idle(t, 1)
}

func TestCloseEndsPullsAndAnswersWithUnavailable(t *testing.T) {
	h := serve(t)
	pub, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	o, err := h.dial().open(t, &trystpb.OpenRequest{Publication: "m"})
	must(t, err)
	h.catalog.Close()
	h.catalog.Close()
	if _, err := o.Recv(); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	key, err := rendezvous.ParseKey(o.keys["scalar"])
	must(t, err)
	_, err = h.manager.RecvLocal(t.Context(), 1, key)
	mustBe(t, err, status.Unavailable, "stopping")
	_, err = h.catalog.PublishTensors(t.Context(), pub.Name, model(t)...)
	mustBe(t, err, status.Unavailable)
}

// Keys that are not a publication's are left to the tables, and at once.
func TestForeignKeysAreNotAnswered(t *testing.T) {
	h := serve(t)
	pub, err := h.catalog.PublishTensors(t.Context(), "m", model(t)...)
	must(t, err)
	src := cluster.Device{Task: h.session.Task, Type: "CPU"}
	other := cluster.Device{Task: cluster.Task{Job: "worker", Index: 1}, Type: "CPU"}
	edge := checkpoint.EdgeName("m", pub.Version, "scalar")
	for _, k := range []struct {
		src  cluster.Device
		edge string
	}{{src, "edge_5_scalar"}, {src, "publication:0"}, {src, "publication:m/scalar"}, {src, "publication:%6D@" + pub.Version + "/scalar"}, {other, edge}} {
		key, err := rendezvous.NewKey(k.src, 1, src, k.edge, rendezvous.FrameIter{})
		must(t, err)
		if h.catalog.RecvPublished(t.Context(), key, func(rendezvous.Value, rendezvous.Args, error) { t.Errorf("%s was answered", key) }) {
			t.Errorf("%s was taken for a publication's", key)
		}
	}
	key, err := rendezvous.NewKey(src, 1, src, checkpoint.EdgeName("m", pub.Version, "x;y"), rendezvous.FrameIter{})
	must(t, err)
	_, err = h.manager.RecvLocal(t.Context(), 1, key)
	mustBe(t, err, status.NotFound, `"x;y"`, `"m"`, pub.Version)
}

// TestKeysAreMadeAsTheyAreSent: a client that opens a large publication and does not read makes the server build a few
// of its keys, not a megabyte of them.
func TestKeysAreMadeAsTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		var built atomic.Int64
		h.openUnread(t, &built)
		synctest.Wait()
		if n := built.Load(); n == 0 || n > 256<<10 {
			t.Errorf("%d bytes of keys were built", n)
		}
	})
}

// openUnread publishes m, with many tensors, and opens it as a client that takes no notices and reads nothing.
func (h *host) openUnread(t *testing.T, built *atomic.Int64) {
	t.Helper()
	x := named(t, "", tensor.Uint8)
	var tensors []*tensor.Tensor
	for i := range 5000 {
		tensors = append(tensors, x.Named(strings.Repeat("layer.", 100)+fmt.Sprint(i)))
	}
	_, err := h.catalog.PublishTensors(t.Context(), "m", tensors...)
	must(t, err)
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, counted{s, built})
	}))
	h.catalog.Register(g)
	go g.Serve(lis) //nolint:errcheck // it ends with Stop
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///counted", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10), // as small as they may be
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	_, err = trystgrpc.NewPublicationsClient(conn).Open(ctx, &trystpb.OpenRequest{Publication: "m", Puller: "/job:client/replica:0/task:17"})
	must(t, err)
}

// TestUnreadOpenEndsWithItsVersion: a pull whose client does not read its keys, and takes no notices, does not outlast the version.
func TestUnreadOpenEndsWithItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		h.openUnread(t, new(atomic.Int64))
		synctest.Wait()
		if n := h.catalog.Pulls(); n != 1 {
			t.Fatalf("%d pulls", n)
		}
		must(t, h.withdraw("m"))
		time.Sleep(20 * time.Second) // on the bubble's clock
		if n := h.catalog.Pulls(); n != 0 {
			t.Errorf("%d pulls after the end of their version", n)
		}
	})
}

// TestUnreadOpenHoldsUpNoClose: the end of a catalog waits for no client that does not read.
func TestUnreadOpenHoldsUpNoClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(t)
		h.openUnread(t, new(atomic.Int64))
		synctest.Wait()
		begin := time.Now()
		h.catalog.Close()
		if took := time.Since(begin); took > 0 {
			t.Errorf("it waited for %v", took)
		}
	})
}

// counted is a stream that counts the bytes of the messages that are sent.
type counted struct {
	grpc.ServerStream
	n *atomic.Int64
}

func (c counted) SendMsg(m any) error {
	if m, ok := m.(proto.Message); ok {
		c.n.Add(int64(proto.Size(m)))
	}
	return c.ServerStream.SendMsg(m)
}
