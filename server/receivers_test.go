package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Who gets a value under mutual TLS. TestRightsTable has each kind of request.

// TestNobodyReceivesWhatIsForAnother: the holder of another certificate gets no value by the name of a
// task or of a client, in either form of request. The task gets it afterwards, and its step goes on.
func TestNobodyReceivesWhatIsForAnother(t *testing.T) {
	for _, cached := range []bool{false, true} {
		t.Run(fmt.Sprintf("cache-rpc-response %v", cached), func(t *testing.T) {
			a, at := certtest.New(t), twoPlaces(t)
			var servers [2]*Server
			for i := range 3 {
				a.MakeFor(taskOf("worker", i).String(), certificateOf(i), certtest.Loopback)
			}
			for i := range servers {
				c := at(i)
				c.TLS, c.TLS.RequireClientCert, c.GRPC.CacheRPCResponse = TLS(a.Pair(certificateOf(i))), true, cached
				servers[i] = start(t, c, Options{})
			}
			m := &mutual{t: t, a: a, servers: servers}
			s0, s1 := servers[0], servers[1]
			other := tensorflowgrpc.NewWorkerServiceClient(m.dial(certificateOf(2)))
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			got := s1.recv(77, s0.Task().String(), "waits")
			for i, name := range []string{"there", "waits"} {
				key := rawKey(t, s0.Task(), s0.Incarnation(), s1.Task(), name)
				if name == "there" {
					x := float(t, 5)
					if err := s0.Send(77, s1.Task().String(), name, x, false); err != nil {
						t.Fatal(err)
					}
					x.Release()
				}
				for form, req := range map[string]*tfpb.RecvTensorRequest{
					"TensorFlow": {StepId: 77, RendezvousKey: key, RequestId: int64(4711 + i)},
					"a client": rawRequest(t, key, &trystpb.RecvOptions{
						Requester: "/job:client/replica:0/task:99", RequesterIncarnation: 9, Id: uint64(12 + i), Attempt: 1,
					}),
				} {
					_, err := other.RecvTensor(ctx, req)
					if s := grpcstatus.Convert(err); s.Code() != codes.PermissionDenied || !strings.Contains(s.Message(), name) ||
						!strings.Contains(s.Message(), "it is for "+s1.Task().String()+" alone") {
						t.Errorf("%q in the form of %s: %v", name, form, err)
					}
				}
			}
			x := float(t, 6)
			if err := s0.Send(77, s1.Task().String(), "waits", x, false); err != nil {
				t.Fatal(err)
			}
			x.Release()
			wantFloat(t, wait(t, got, "the value that it waits for"), 6)
			wantFloat(t, wait(t, s1.recv(77, s0.Task().String(), "there"), "the value that was there"), 5)
		})
	}
}

// aSend is a step of a session that sends a value.
type aSend struct {
	c    *ownCluster
	step int64
	run  *master.Program
	x    *tensor.Tensor
}

// newSend makes the step, which is not begun, of a session at the first member.
func newSend(t *testing.T, c *ownCluster, to cluster.Task) *aSend {
	g := c.sessions[0].NewGraphOn(c.peer(0))
	g.Send("x", g.Feed("x", tensor.Float32), tensor.Float32, cluster.DeviceOf(to))
	return &aSend{c: c, step: master.NewStep(), run: registerGraph(t, c.sessions[0], g), x: float(t, 5)}
}

func (s *aSend) key(t *testing.T, to cluster.Task) string {
	return rawKey(t, s.c.members[0].task, s.c.members[0].server.Incarnation(), to, "x")
}

func (s *aSend) begin(t *testing.T) {
	t.Helper()
	if _, err := s.run.Run(t.Context(), s.step, map[string]*tensor.Tensor{"x": s.x}); err != nil {
		t.Fatal(err)
	}
	s.x.Release()
}

// TestTheSessionOfAStepSaysWhoReceives: two sessions give one name to different processes. A request
// that comes before its step begins waits until its session is known: only the process that the name
// means there gets the value.
func TestTheSessionOfAStepSaysWhoReceives(t *testing.T) {
	a := certtest.New(t)
	for i := range 3 {
		a.MakeFor(taskOf("worker", i).String(), certificateOf(i), certtest.Loopback)
	}
	w := newVerbsTown(t, 3)
	var servers [3]*VerbsServer
	for i := range servers {
		servers[i] = startRouteWith(t, w.settings(i, func(c *Config) {
			c.TLS, c.TLS.RequireClientCert, c.Provider, c.RDMA.Timeout, c.Fallback = TLS(a.Pair(certificateOf(i))), true, "tcp", 0, "none"
		}), Options{Kernels: ops.New()})
	}
	m := &mutual{t: t, a: a, servers: [2]*Server{servers[0].Server, servers[1].Server}}
	security, err := certificates.ClientTLS(certificates.Files(a.Pair(certificateOf(2))))
	if err != nil {
		t.Fatal(err)
	}
	dial := grpctransport.DialOptions{Credentials: certificates.ClientCredentials(security)}
	ps, trainer := taskOf("ps", 0), taskOf("trainer", 0)
	honest := propagate(t, dial, member{task: ps, server: servers[0].Server}, member{task: trainer, address: servers[1].Addr().String()})
	defer honest.close()
	hostile := propagate(t, dial, member{task: ps, server: servers[0].Server}, member{task: trainer, address: servers[2].Addr().String()})
	defer hostile.close()

	own, other := tensorflowgrpc.NewWorkerServiceClient(m.dial(certificateOf(1))), tensorflowgrpc.NewWorkerServiceClient(m.dial(certificateOf(2)))
	plain := func(c tensorflowgrpc.WorkerServiceClient) func(context.Context, *aSend) error {
		return func(ctx context.Context, s *aSend) error {
			_, err := c.RecvTensor(ctx, &tfpb.RecvTensorRequest{StepId: s.step, RendezvousKey: s.key(t, trainer), RequestId: transport.NewRequestID()})
			return err
		}
	}
	tryst := func(c tensorflowgrpc.WorkerServiceClient, client uint64) func(context.Context, *aSend) error {
		return func(ctx context.Context, s *aSend) error {
			r := rawRequest(t, s.key(t, trainer), &trystpb.RecvOptions{
				Requester: fmt.Sprint("/job:client/replica:0/task:", client), RequesterIncarnation: client, Id: uint64(transport.NewRequestID()), Attempt: 1,
			})
			r.StepId = s.step
			_, err := c.RecvTensor(ctx, r)
			if err == nil {
				servers[0].worker.EndStep(s.step) // lets go of the response
			}
			return err
		}
	}
	channel := func(s *VerbsServer) func(context.Context, *aSend) error {
		return func(ctx context.Context, one *aSend) error {
			key, err := rendezvous.ParseKey(one.key(t, trainer))
			if err != nil {
				return err
			}
			v, err := s.rdma.Transport.RecvFrom(servers[0].Task(), one.step, key, rendezvous.Args{}, nil).Wait(ctx)
			if err == nil {
				v.Tensor.Release()
			}
			return err
		}
	}
	for name, both := range map[string]struct {
		wrong, right func(context.Context, *aSend) error
	}{
		"TensorFlow's form": {plain(other), plain(own)},
		"Tryst's form":      {tryst(other, 98), tryst(own, 99)},
		"verbs":             {channel(servers[2]), channel(servers[1])},
	} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, early %v", name, early), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				s := newSend(t, honest, trainer)
				if !early {
					s.begin(t)
				}
				steps := servers[0].manager.Steps()
				wrong := make(chan error, 1)
				go func() { wrong <- both.wrong(ctx, s) }()
				if early {
					until(t, "the early request", func() bool { return servers[0].manager.Steps() > steps })
					s.begin(t)
				}
				if err := wait(t, wrong, "the other"); status.CodeOf(status.From(grpcError(err))) != status.PermissionDenied {
					t.Errorf("the process that has the name in another session: %v", err)
				}
				if err := servers[0].manager.Err(s.step); err != nil {
					t.Errorf("the step: %v", err)
				}
				if err := both.right(ctx, s); err != nil {
					t.Errorf("the process that has the name: %v", err)
				}
			})
		}
	}
}

// grpcError is an error of a call, or of a receive, with the code of either.
func grpcError(err error) error {
	if s, ok := grpcstatus.FromError(err); ok && err != nil {
		return status.New(status.Code(s.Code()), s.Message())
	}
	return err
}

// TestAPropagatedClusterUnderMutualTLS: two servers that do not know each other exchange values under the
// names of a session. Their certificates have their host, with or without the names of other tasks.
func TestAPropagatedClusterUnderMutualTLS(t *testing.T) {
	a := certtest.New(t)
	a.Make("host", certtest.Loopback)
	a.MakeFor(settings().WithDefaults().Task, "task", certtest.Loopback)
	for _, certificate := range []string{"host", "task"} {
		t.Run(certificate, func(t *testing.T) {
			c := settings(func(c *Config) { c.TLS, c.TLS.RequireClientCert = TLS(a.Pair(certificate)), true })
			one, two := start(t, c, Options{Kernels: ops.New()}), start(t, c, Options{Kernels: ops.New()})
			security, err := certificates.ClientTLS(certificates.Files(a.Pair(certificate)))
			if err != nil {
				t.Fatal(err)
			}
			p := propagate(t, grpctransport.DialOptions{Credentials: certificates.ClientCredentials(security)},
				member{task: taskOf("trainer", 0), server: one}, member{task: taskOf("trainer", 1), server: two})
			p.exchange(0, 1)
			p.exchange(1, 0)
			p.close()
		})
	}
}

// TestNobodyEntersAGroupInAnothersName: under mutual TLS the holder of another certificate neither ends a
// group nor completes one in the name of a member, and its own groups push out nobody's.
func TestNobodyEntersAGroupInAnothersName(t *testing.T) {
	m := newMutual(t)
	other := tensorflowgrpc.NewWorkerServiceClient(m.dial(certificateOf(2)))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	enter := func(key, size int32, of cluster.Task, incarnation uint64) error {
		_, err := other.CompleteGroup(ctx, &tfpb.CompleteGroupRequest{GroupKey: key, GroupSize: size, DeviceType: "CPU",
			DeviceAttributes: &tfpb.DeviceAttributes{Name: cluster.DeviceOf(of).String(), DeviceType: "CPU", Incarnation: incarnation}})
		return err
	}
	member := m.servers[1].Task()
	// The impostor comes first, and again when the group is complete.
	if err := enter(5, 2, member, 12345); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a group that begins: %v", err)
	}
	groups := make([]*collective.Group, 2)
	if err := errors.Join(together(2, func(i int) (err error) {
		groups[i], err = m.servers[i].collective.NewGroup(ctx, collective.GroupOptions{Key: 5, Size: 2})
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	round := func(when string) {
		t.Helper()
		if err := errors.Join(together(2, func(i int) error {
			in, err := tensor.FromSlice(tensor.Vector(4), []float32{1, 2, 3, 4})
			if err != nil {
				return err
			}
			defer in.Release()
			out, err := groups[i].AllReduce(ctx, in, collective.Add)
			if err == nil {
				out.Release()
			}
			return err
		})...); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	round("before")
	if err := enter(5, 2, member, 12345); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a complete group: %v", err)
	}
	round("after a refused member")
	for key := range int32(4200) { // more than a leader knows
		if err := enter(1000+key, 1, taskOf("worker", 2), 7); err != nil {
			t.Fatal(err)
		}
	}
	round("after many groups of another")
	own := tensorflowgrpc.NewWorkerServiceClient(m.dial(certificateOf(1)))
	if _, err := own.CompleteInstance(ctx, &tfpb.CompleteInstanceRequest{
		GroupKey: 5, GroupSize: 2, InstanceKey: 99, DeviceType: "CPU", Device: cluster.DeviceOf(member).String(), DataType: tfpb.DataType_DT_FLOAT, Shape: &tfpb.TensorShapeProto{},
	}); err != nil {
		t.Errorf("the leader has forgotten the group: %v", err)
	}
}
