package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
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
	for _, l := range s.Links() {
		n += l.Stats.Breaks
	}
	return n
}

// TestRefusedRequestHasNoEffect: it leaves no channel, makes no asker known, and lets no answer go.
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
	if err := s0.Send(77, client.String(), "kept", x, false); err != nil {
		t.Fatal(err)
	}
	x.Release()
	kept := rawRequest(t, rawKey(t, s0.Task(), s0.Incarnation(), client, "kept"), &trystpb.RecvOptions{Asker: client.String(), AskerIncarnation: 4, Id: 1, Attempt: 1})
	if _, err := c.RecvTensor(t.Context(), kept); err != nil {
		t.Fatal(err)
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
		"no incarnation":                 func(_ *string, o *trystpb.RecvOptions) { o.AskerIncarnation = 0 },
		"a name that is none":            func(_ *string, o *trystpb.RecvOptions) { o.Asker = "somebody" },
	} {
		for who, o := range map[string]*trystpb.RecvOptions{
			"a peer":        {Asker: s1.Task().String(), AskerIncarnation: s1.Incarnation(), LeftGeneration: 1, Id: 3, Attempt: 1},
			"a known asker": {Asker: client.String(), AskerIncarnation: 4, Finished: []uint64{1}, Id: 3, Attempt: 1},
			"a new asker":   {Asker: "/job:client/replica:0/task:10", AskerIncarnation: 6, Id: 3, Attempt: 1},
		} {
			t.Run(name+", "+who, func(t *testing.T) {
				key := good
				change(&key, o)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
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
	if _, err := c.MarkRecvFinished(t.Context(), &tfpb.MarkRecvFinishedRequest{Asker: client.String(), AskerIncarnation: 4, Finished: []uint64{1}}); err != nil {
		t.Error(err)
	}
}

// mutual is a cluster of two servers with mutual TLS. Its certificates have the names
// of tasks.
type mutual struct {
	t       *testing.T
	a       *authority
	servers [2]*Server
}

func newMutual(t *testing.T) *mutual {
	m := &mutual{t: t, a: newAuthority(t)}
	at := twoPlaces(t)
	for i := range 3 {
		m.a.makeFor(cluster.Task{Job: "worker", Index: i}.String(), certificateOf(i), loopbackIPs)
	}
	for i := range m.servers {
		c := at(i)
		c.TLS = m.a.pair(certificateOf(i))
		c.TLS.RequireClientCert = true
		m.servers[i] = start(t, c, Options{})
	}
	return m
}

// certificateOf is the file name of the certificate of a task.
func certificateOf(i int) string { return fmt.Sprint("task", i) }

// dial connects to server 0 as the holder of a certificate.
func (m *mutual) dial(certificate string) *grpc.ClientConn {
	m.t.Helper()
	creds, err := clientCredentials(m.a.pair(certificate))
	if err != nil {
		m.t.Fatal(err)
	}
	return dialRaw(m.t, m.servers[0].Addr().String(), grpc.WithTransportCredentials(creds))
}

// TestNobodyActsInAnothersName: under mutual TLS each request of ours that names an asker is
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
		return &trystpb.RecvOptions{Asker: victim.String(), AskerIncarnation: incarnation, Id: id, Attempt: 1, Finished: []uint64{1}}
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
			o.AskerIncarnation = 5
			_, err := tensorflowgrpc.NewWorkerServiceClient(c).RecvTensor(ctx, rawRequest(t, rawKey(t, s0.Task(), s0.Incarnation(), victim, "x"), o))
			return err
		},
		"MarkRecvFinished": func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := tensorflowgrpc.NewWorkerServiceClient(c).MarkRecvFinished(ctx,
				&tfpb.MarkRecvFinishedRequest{Asker: victim.String(), AskerIncarnation: incarnation, Finished: []uint64{1}})
			return err
		},
		"Hello": func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := trystgrpc.NewPeersClient(c).Hello(ctx, &trystpb.HelloRequest{Asker: victim.String(), AskerIncarnation: incarnation})
			return err
		},
		"Cancel": func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := trystgrpc.NewPeersClient(c).Cancel(ctx, &trystpb.CancelRequest{Asker: victim.String(), AskerIncarnation: incarnation, Ids: []uint64{1}})
			return err
		},
		"Fetch": func(ctx context.Context, c *grpc.ClientConn) error {
			stream, err := trystgrpc.NewChunksClient(c).Fetch(ctx, &trystpb.FetchRequest{Asker: victim.String(), AskerIncarnation: incarnation, Id: 1, Attempt: 1})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
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
		&tfpb.MarkRecvFinishedRequest{Asker: victim.String(), AskerIncarnation: incarnation, Finished: []uint64{1}}); err != nil {
		t.Errorf("the holder of the name: %v", err)
	}
	if is := s0.Kept(); is.Kept != 0 {
		t.Errorf("after its holder has finished with it the table has %+v", is)
	}
}
