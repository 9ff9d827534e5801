package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
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
	if _, err := c.MarkRecvFinished(t.Context(), &tfpb.MarkRecvFinishedRequest{AskerIncarnation: 4, Finished: []uint64{1}}); err != nil {
		t.Error(err)
	}
}
