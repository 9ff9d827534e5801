package server

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// What requests can do in a name: their own, and another's.

// dialRaw connects to a server as a process that is not written here.
func dialRaw(t *testing.T, address string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(o) == 0 {
		o = append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	conn, err := grpc.NewClient(address, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rawKey is the text of a key.
func rawKey(t *testing.T, src cluster.Task, incarnation uint64, dst cluster.Task, name string) string {
	t.Helper()
	k, err := rendezvous.NewKey(cluster.Device{Task: src, Type: "CPU"}, incarnation, cluster.Device{Task: dst, Type: "CPU"}, name, rendezvous.FrameIter{})
	if err != nil {
		t.Fatal(err)
	}
	return k.String()
}

// rawRequest is a request for a key in step 77.
func rawRequest(t *testing.T, key string, o *trystpb.RecvOptions) *tfpb.RecvTensorRequest {
	t.Helper()
	options, err := anypb.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &tfpb.RecvTensorRequest{StepId: 77, RendezvousKey: key, TransportOptions: options}
}

// breaksOf counts the channels of a server that broke.
func breaksOf(s *VerbsServer) (n uint64) {
	for _, l := range s.Connections() {
		n += l.Stats.Breaks
	}
	return n
}

// TestRefusedRequestHasNoEffect: it leaves no channel, registers no requester, and releases no
// response.
func TestRefusedRequestHasNoEffect(t *testing.T) {
	w := newVerbsTown(t, 2)
	s0, s1 := w.start(0), w.start(1)
	w.up(s0, s1.Task())
	w.up(s1, s0.Task())
	w.exchange(1, s0, s1, 1)
	// An answer is kept for a process of another name.
	client := cluster.Task{Job: "client", Index: 9}
	c := tensorflowgrpc.NewWorkerServiceClient(dialRaw(t, s0.Addr().String()))
	x := float(t, 5)
	key, err := rendezvous.ParseKey(rawKey(t, s0.Task(), s0.Incarnation(), client, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s0.Rendezvous(77).Send(key, rendezvous.Args{}, x, false); err != nil { // Send takes tasks of the cluster only
		t.Fatal(err)
	}
	x.Release()
	kept := rawRequest(t, rawKey(t, s0.Task(), s0.Incarnation(), client, "kept"), &trystpb.RecvOptions{Requester: client.String(), RequesterIncarnation: 4, Id: 1, Attempt: 1})
	if _, err := c.RecvTensor(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); s0.Kept().Kept != 1; <-ticks.C { // task 1 has finished with its value
		if time.Now().After(end) {
			t.Fatalf("the table has %+v", s0.Kept())
		}
	}
	before, breaks := s0.Kept(), breaksOf(s0)

	good := rawKey(t, s0.Task(), s0.Incarnation(), s1.Task(), "x")
	for name, change := range map[string]func(key *string, o *trystpb.RecvOptions){
		"a key that does not parse": func(key *string, _ *trystpb.RecvOptions) { *key = "not a key" },
		"a key of another task": func(key *string, _ *trystpb.RecvOptions) {
			*key = rawKey(t, s1.Task(), s1.Incarnation(), s0.Task(), "x")
		},
		"another incarnation in the key": func(key *string, _ *trystpb.RecvOptions) { *key = rawKey(t, s0.Task(), 5, s1.Task(), "x") },
		"an earlier process here":        func(_ *string, o *trystpb.RecvOptions) { o.SenderIncarnation = 5 },
		"no id":                          func(_ *string, o *trystpb.RecvOptions) { o.Id = 0 },
		"no attempt":                     func(_ *string, o *trystpb.RecvOptions) { o.Attempt = 0 },
		"no incarnation":                 func(_ *string, o *trystpb.RecvOptions) { o.RequesterIncarnation = 0 },
		"a name that is none":            func(_ *string, o *trystpb.RecvOptions) { o.Requester = "somebody" },
	} {
		for who, o := range map[string]*trystpb.RecvOptions{
			"a peer":            {Requester: s1.Task().String(), RequesterIncarnation: s1.Incarnation(), LeftGeneration: 1, Id: 3, Attempt: 1},
			"a known requester": {Requester: client.String(), RequesterIncarnation: 4, Finished: []uint64{1}, Id: 3, Attempt: 1},
			"a new requester":   {Requester: "/job:client/replica:0/task:10", RequesterIncarnation: 6, Id: 3, Attempt: 1},
		} {
			t.Run(name+", "+who, func(t *testing.T) {
				key := good
				change(&key, o)
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				if _, err := c.RecvTensor(ctx, rawRequest(t, key, o)); err == nil || ctx.Err() != nil {
					t.Errorf("it was not refused: %v", err)
				}
			})
		}
	}
	if is := s0.Kept(); is != before {
		t.Errorf("the table of answers has %+v, and had %+v", is, before)
	}
	w.exchange(2, s0, s1, 2)
	if n := breaksOf(s0) - breaks; n != 0 {
		t.Errorf("%d channels were left", n)
	}
	if _, err := c.MarkRecvFinished(t.Context(), &tfpb.MarkRecvFinishedRequest{Requester: client.String(), RequesterIncarnation: 4, Finished: []uint64{1}}); err != nil {
		t.Error(err)
	}
}

// mutual is a cluster of two servers with mutual TLS. Its certificates have the names
// of tasks.
type mutual struct {
	t       *testing.T
	a       *certtest.Authority
	servers [2]*Server
}

func newMutual(t *testing.T) *mutual { return newMutualWith(t, Options{}) }

func newMutualWith(t *testing.T, o Options) *mutual {
	m := &mutual{t: t, a: certtest.New(t)}
	at := twoPlaces(t)
	for i := range 3 {
		m.a.MakeFor(cluster.Task{Job: "worker", Index: i}.String(), certificateOf(i), certtest.Loopback)
	}
	for i := range m.servers {
		c := at(i)
		c.TLS = TLS(m.a.Pair(certificateOf(i)))
		c.TLS.RequireClientCert = true
		m.servers[i] = start(t, c, o)
	}
	return m
}

// certificateOf is the file name of the certificate of a task.
func certificateOf(i int) string { return fmt.Sprint("task", i) }

// dial connects to server 0 as the holder of a certificate.
func (m *mutual) dial(certificate string) *grpc.ClientConn {
	m.t.Helper()
	security, err := certificates.ClientTLS(certificates.Files(m.a.Pair(certificate)))
	if err != nil {
		m.t.Fatal(err)
	}
	return dialRaw(m.t, m.servers[0].Addr().String(), grpc.WithTransportCredentials(certificates.ClientCredentials(security)))
}

// TestNobodyActsInAnothersName: under mutual TLS each request of ours that names a requester is
// refused when the caller's certificate does not cover the name, and has no effect.
func TestNobodyActsInAnothersName(t *testing.T) {
	m := newMutual(t)
	s0, victim := m.servers[0], m.servers[1].Task()
	const incarnation = 4
	own, other := m.dial(certificateOf(1)), m.dial(certificateOf(2))
	x := float(t, 5)
	if err := s0.Send(77, victim.String(), "kept", x, false); err != nil {
		t.Fatal(err)
	}
	x.Release()
	options := func(id uint64) *trystpb.RecvOptions {
		return &trystpb.RecvOptions{Requester: victim.String(), RequesterIncarnation: incarnation, Id: id, Attempt: 1, Finished: []uint64{1}}
	}
	kept := rawRequest(t, rawKey(t, s0.Task(), s0.Incarnation(), victim, "kept"), options(1))
	if _, err := tensorflowgrpc.NewWorkerServiceClient(own).RecvTensor(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	before := s0.Kept()
	for name, call := range map[string]func(ctx context.Context, c *grpc.ClientConn) error{
		"RecvTensor": func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := tensorflowgrpc.NewWorkerServiceClient(c).RecvTensor(ctx, rawRequest(t, rawKey(t, s0.Task(), s0.Incarnation(), victim, "x"), options(2)))
			return err
		},
		"RecvTensor of another incarnation": func(ctx context.Context, c *grpc.ClientConn) error {
			o := options(2)
			o.RequesterIncarnation = 5
			_, err := tensorflowgrpc.NewWorkerServiceClient(c).RecvTensor(ctx, rawRequest(t, rawKey(t, s0.Task(), s0.Incarnation(), victim, "x"), o))
			return err
		},
		"MarkRecvFinished": func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := tensorflowgrpc.NewWorkerServiceClient(c).MarkRecvFinished(ctx,
				&tfpb.MarkRecvFinishedRequest{Requester: victim.String(), RequesterIncarnation: incarnation, Finished: []uint64{1}})
			return err
		},
		"Hello": func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := trystgrpc.NewPeersClient(c).Hello(ctx, &trystpb.HelloRequest{Requester: victim.String(), RequesterIncarnation: incarnation})
			return err
		},
		"Cancel": func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := trystgrpc.NewPeersClient(c).Cancel(ctx, &trystpb.CancelRequest{Requester: victim.String(), RequesterIncarnation: incarnation, Ids: []uint64{1}})
			return err
		},
		"Fetch": func(ctx context.Context, c *grpc.ClientConn) error {
			stream, err := trystgrpc.NewChunksClient(c).Fetch(ctx, &trystpb.FetchRequest{Requester: victim.String(), RequesterIncarnation: incarnation, Id: 1, Attempt: 1})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			err := call(ctx, other)
			if s := grpcstatus.Convert(err); s.Code() != codes.PermissionDenied || !strings.Contains(s.Message(), victim.String()) ||
				!strings.Contains(s.Message(), "task:2") || !strings.Contains(s.Message(), "tryst:") {
				t.Errorf("want PermissionDenied that names the claim, the certificate and the way out, got %v", err)
			}
			if is := s0.Kept(); is != before {
				t.Errorf("the table of answers has %+v, and had %+v", is, before)
			}
		})
	}
	if _, err := tensorflowgrpc.NewWorkerServiceClient(own).MarkRecvFinished(t.Context(),
		&tfpb.MarkRecvFinishedRequest{Requester: victim.String(), RequesterIncarnation: incarnation, Finished: []uint64{1}}); err != nil {
		t.Errorf("the holder of the name: %v", err)
	}
	if is := s0.Kept(); is.Kept != 0 {
		t.Errorf("after its holder has finished with it the table has %+v", is)
	}
}

// hello says Hello in a name, and returns the error and whether a worker answered it.
func hello(ctx context.Context, c *grpc.ClientConn, task cluster.Task, incarnation uint64) (code codes.Code, message string, answered bool) {
	var trailer metadata.MD
	_, err := trystgrpc.NewPeersClient(c).Hello(ctx, &trystpb.HelloRequest{Requester: task.String(), RequesterIncarnation: incarnation}, grpc.Trailer(&trailer))
	s := grpcstatus.Convert(err)
	return s.Code(), s.Message(), len(trailer.Get("tryst-answered")) > 0
}

// TestNobodyShutsOutAConnectedPeer: another process that takes its name is refused, since the
// address of the task is that of the peer. Nothing that is kept for the peer is let go.
func TestNobodyShutsOutAConnectedPeer(t *testing.T) {
	a, b := twoTasks(t)
	send := func(step int64, v float32) {
		x := float(t, v)
		defer x.Release()
		if err := a.Send(step, b.Task().String(), "x", x, false); err != nil {
			t.Fatal(err)
		}
	}
	send(1, 1)
	wantFloat(t, wait(t, b.recv(1, a.Task().String(), "x"), "the first"), 1)
	other := dialRaw(t, a.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if code, message, answered := hello(ctx, other, b.Task(), 0xbad); code != codes.PermissionDenied || !answered || !strings.Contains(message, "address") {
		t.Errorf("Hello of another process: %v %q", code, message)
	}
	_, err := tensorflowgrpc.NewWorkerServiceClient(other).RecvTensor(ctx, rawRequest(t, rawKey(t, a.Task(), a.Incarnation(), b.Task(), "x"),
		&trystpb.RecvOptions{Requester: b.Task().String(), RequesterIncarnation: 0xbad, Id: 1, Attempt: 1}))
	if grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("its RecvTensor: %v", err)
	}
	for _, method := range []string{"Hello", "RecvTensor"} {
		if n := refusedNames(t, a, method); n != 1 {
			t.Errorf("%v refused names of %s are counted, want 1", n, method)
		}
	}
	for step := int64(2); step < 5; step++ {
		send(step, float32(step))
		wantFloat(t, wait(t, b.recv(step, a.Task().String(), "x"), "a later one"), float32(step))
	}
}

// TestNameGoesToTheProcessAtItsAddress: somebody who was connected in the name of a peer does
// not keep the peer out.
func TestNameGoesToTheProcessAtItsAddress(t *testing.T) {
	at := twoPlaces(t)
	a := start(t, at(0), Options{})
	b := at(1)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	other := dialRaw(t, a.Addr().String())
	if code, message, _ := hello(ctx, other, taskOfName(t, b.Task), 0xbad); code != codes.OK {
		t.Fatalf("the first process of a name: %v %q", code, message)
	}
	peer := start(t, b, Options{})
	x := float(t, 1)
	if err := a.Send(1, b.Task, "x", x, false); err != nil {
		t.Fatal(err)
	}
	x.Release()
	wantFloat(t, wait(t, peer.recv(1, a.Task().String(), "x"), "the value"), 1)
	if code, message, _ := hello(ctx, other, taskOfName(t, b.Task), 0xbad); code != codes.Aborted {
		t.Errorf("the one that was displaced: %v %q", code, message)
	}
}

// TestRequestsWhileAnAddressIsCalled: one waits for the answer. The others, and that one too
// when no answer comes, are refused without the trailer of a worker: their requester takes the
// attempt for lost, and repeats it.
func TestRequestsWhileAnAddressIsCalled(t *testing.T) {
	at := twoPlaces(t)
	a := start(t, at(0), Options{})
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at(1).Listen)
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan net.Conn, 1)
	go func() {
		if conn, err := silent.Accept(); err == nil {
			called <- conn
		}
	}()
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	conns := [3]*grpc.ClientConn{}
	for i := range conns { // now, since the address is called for a bounded time
		conns[i] = dialRaw(t, a.Addr().String())
		conns[i].Connect()
		until(t, "a connection", func() bool { return conns[i].GetState() == connectivity.Ready })
	}
	task := taskOfName(t, at(1).Task)
	if code, message, _ := hello(ctx, conns[0], task, 5); code != codes.OK {
		t.Fatalf("the first process: %v %q", code, message)
	}
	type result struct {
		code     codes.Code
		message  string
		answered bool
	}
	first := make(chan result, 1)
	go func() {
		code, message, answered := hello(ctx, conns[1], task, 6)
		first <- result{code, message, answered}
	}()
	conn := wait(t, called, "the call of the address")
	defer conn.Close()
	if code, message, answered := hello(ctx, conns[2], task, 7); code != codes.Unavailable || answered || !strings.Contains(message, "is being called") {
		t.Errorf("a second newcomer meanwhile: %v %q, answered: %v", code, message, answered)
	}
	select {
	case r := <-first:
		t.Errorf("the first newcomer did not wait: %+v", r)
	default:
	}
	if r := wait(t, first, "the first newcomer"); r.code != codes.Unavailable || r.answered || !strings.Contains(r.message, "does not tell") {
		t.Errorf("the first newcomer: %+v", r)
	}
	if code, message, _ := hello(ctx, conns[0], task, 5); code != codes.OK {
		t.Errorf("the connected process: %v %q", code, message)
	}
}

// TestNameOfAClientIsItsOwn: nobody calls a client, so its name stays with the process that
// has it; another one is to draw a new name.
func TestNameOfAClientIsItsOwn(t *testing.T) {
	s := start(t, settings(), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	client := cluster.Task{Job: cluster.ClientJob, Index: 7}
	own, other := dialRaw(t, s.Addr().String()), dialRaw(t, s.Addr().String())
	if code, message, _ := hello(ctx, own, client, 1); code != codes.OK {
		t.Fatalf("the client: %v %q", code, message)
	}
	if code, message, answered := hello(ctx, other, client, 2); code != codes.AlreadyExists || !answered || !strings.Contains(message, "draw a new name") {
		t.Errorf("another process: %v %q", code, message)
	}
}

// TestLeftGenerationThatWasNotShown: a peer cannot have left a channel that was never there.
func TestLeftGenerationThatWasNotShown(t *testing.T) {
	w := newVerbsTown(t, 2)
	s0, s1 := w.start(0), w.start(1)
	w.up(s0, s1.Task())
	w.up(s1, s0.Task())
	w.exchange(1, s0, s1, 1)
	breaks := breaksOf(s0)
	c := tensorflowgrpc.NewWorkerServiceClient(dialRaw(t, s0.Addr().String()))
	for _, generation := range []uint32{1000, 1 << 31, 1<<32 - 1} {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		_, err := c.RecvTensor(ctx, rawRequest(t, rawKey(t, s0.Task(), s0.Incarnation(), s1.Task(), "x"), &trystpb.RecvOptions{
			Requester: s1.Task().String(), RequesterIncarnation: s1.Incarnation(), Id: 3, Attempt: 2, LeftGeneration: generation,
		}))
		if s := grpcstatus.Convert(err); s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), fmt.Sprint(generation)) {
			t.Errorf("generation %d: %v", generation, err)
		}
	}
	w.exchange(2, s0, s1, 2)
	if n := breaksOf(s0) - breaks; n != 0 {
		t.Errorf("%d channels were left", n)
	}
}

// TestClientDrawsAnotherName when its first one is another process's at the server.
func TestClientDrawsAnotherName(t *testing.T) {
	s := start(t, settings(), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	taken := cluster.Task{Job: cluster.ClientJob, Index: 7}
	if code, message, _ := hello(ctx, dialRaw(t, s.Addr().String()), taken, 1); code != codes.OK {
		t.Fatalf("the client that has it: %v %q", code, message)
	}
	draws := 0
	names := func(free int) Options {
		draws = 0
		return Options{clientTask: func() cluster.Task {
			if draws++; draws == free {
				return cluster.Task{Job: cluster.ClientJob, Index: 8}
			}
			return taken
		}}
	}
	c, err := Dial(ctx, clientConfig(TLS{}), s.Addr().String(), names(3))
	if err != nil {
		t.Fatal(err)
	}
	if c.Task().Index != 8 || draws != 3 {
		t.Errorf("after %d draws it is %v", draws, c.Task())
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	_, err = Dial(ctx, clientConfig(TLS{}), s.Addr().String(), names(100))
	wantError(t, err, status.AlreadyExists, " says: \"", taken.String(), "draw a new name")
	if draws != maxNameTries {
		t.Errorf("it has drawn %d names", draws)
	}
}
