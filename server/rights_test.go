package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/doctest"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/refusals"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
	"github.com/tryst-rdma/tryst/transport"
)

// The table of docs/security.md that says what the holder of each kind of certificate may do under
// mutual TLS. It is made by calls, and TestRightsTable compares it with what they end with.

// The columns of the table. In each the same request is made: in the name of task 1, or for it, but in
// that of a client in the last one.
const (
	rightName  = iota // with the certificate of task 1
	hostName          // with one of its host and no task
	otherName         // with that of task 2, at the same host
	noName            // with one that names neither a task nor its host
	clientName        // likewise, in the name of a client
	rightColumns
)

// The cells of the table.
const (
	mayCall = "yes"
	refused = "PermissionDenied"
	noCase  = "–"
)

// rights is server 0, which requests are made to, and connections with each certificate.
type rights struct {
	*testing.T
	s           *VerbsServer
	conns       [rightColumns]*grpc.ClientConn
	victim      cluster.Task
	client      cluster.Task
	publication rendezvous.Key // of a published tensor, for the client
	n           int64          // numbers the steps, groups and ids
}

// right is one request of the table.
type right struct {
	*rights
	ctx  context.Context
	conn *grpc.ClientConn
	name cluster.Task // that the request needs
	n    int64        // of the request
	key  rendezvous.Key
	made any // by prepare
}

// rightsRow is a row of the table.
type rightsRow struct {
	method, form string // form distinguishes several rows of a method
	needs        string // which name the request needs; empty for none
	code         codes.Code
	prepare      func(*right)
	call         func(*right) error
	effect       func(*right) bool // whether it has taken effect; nil if nothing shows it
}

func (r *right) worker() tensorflowgrpc.WorkerServiceClient {
	return tensorflowgrpc.NewWorkerServiceClient(r.conn)
}

// owner is a connection of the process that the name belongs to.
func (r *right) owner() *grpc.ClientConn {
	if r.name == r.client {
		return r.conns[clientName]
	}
	return r.conns[rightName]
}

func (r *right) device() string { return cluster.DeviceOf(r.name).String() }

// send sends a value for the name in a step of its own.
func (r *right) send() {
	var err error
	if r.key, err = rendezvous.ParseKey(rawKey(r.T, r.s.Task(), r.s.Incarnation(), r.name, "x")); err != nil {
		r.Fatal(err)
	}
	x := float(r.T, 5)
	defer x.Release()
	if err := r.s.Rendezvous(r.n).Send(r.key, rendezvous.Args{}, x, false); err != nil {
		r.Fatal(err)
	}
}

// taken reports whether the value of send is gone.
func (r *right) taken() bool {
	v, there := r.s.manager.TakeLocal(r.n, r.key)
	if there {
		v.Tensor.Release()
	}
	return !there
}

func (r *right) process() transport.Process {
	return transport.Process{Name: r.name.String(), Incarnation: 4}
}

// request is a request of Tryst for a key.
func (r *right) request(key string) *tfpb.RecvTensorRequest {
	p := r.process()
	m := rawRequest(r.T, key, &trystpb.RecvOptions{Requester: p.Name, RequesterIncarnation: p.Incarnation, Id: uint64(r.n), Attempt: 1}) //nolint:gosec // small
	m.StepId = r.n
	return m
}

// keep makes the server keep a response for the owner of the name.
func (r *right) keep() {
	key := r.publication.String()
	if r.name != r.client {
		r.send()
		key = r.key.String()
	}
	if _, err := tensorflowgrpc.NewWorkerServiceClient(r.owner()).RecvTensor(r.ctx, r.request(key)); err != nil {
		r.Fatal(err)
	}
}

// kept reports whether that response is kept.
func (r *right) kept() bool {
	p := r.process()
	v, err := r.s.cache.Value(p, uint64(r.n), 1) //nolint:gosec // small
	if err == nil {
		v.Tensor.Release()
	}
	return err == nil
}

func (r *right) released() bool { return !r.kept() }

// register registers a graph without nodes.
func (r *right) register() {
	resp, err := tensorflowgrpc.NewWorkerServiceClient(r.conns[rightName]).RegisterGraph(r.ctx, &tfpb.RegisterGraphRequest{GraphDef: &tfpb.GraphDef{}})
	if err != nil {
		r.Fatal(err)
	}
	r.made = resp.GetGraphHandle()
}

func (r *right) handle() string { return fmt.Sprint(r.made) }

// session makes a session.
func (r *right) session() {
	r.made = fmt.Sprint("session ", r.n)
	if _, err := tensorflowgrpc.NewWorkerServiceClient(r.conns[rightName]).CreateWorkerSession(r.ctx, &tfpb.CreateWorkerSessionRequest{SessionHandle: r.handle()}); err != nil {
		r.Fatal(err)
	}
}

// hasSession reports whether there is that session.
func (r *right) hasSession() bool {
	_, err := tensorflowgrpc.NewWorkerServiceClient(r.conns[rightName]).RegisterGraph(r.ctx,
		&tfpb.RegisterGraphRequest{SessionHandle: r.handle(), CreateWorkerSessionCalled: true, GraphDef: &tfpb.GraphDef{}})
	return err == nil
}

// enter enters the device of the name into a group.
func (r *right) enter(conn *grpc.ClientConn) error {
	_, err := tensorflowgrpc.NewWorkerServiceClient(conn).CompleteGroup(r.ctx, &tfpb.CompleteGroupRequest{
		GroupKey: int32(r.n), GroupSize: 1, DeviceType: "CPU", //nolint:gosec // small
		DeviceAttributes: &tfpb.DeviceAttributes{Name: r.device(), DeviceType: "CPU", Incarnation: 5},
	})
	return err
}

// operate enters an operation of that group.
func (r *right) operate(conn *grpc.ClientConn) error {
	_, err := tensorflowgrpc.NewWorkerServiceClient(conn).CompleteInstance(r.ctx, &tfpb.CompleteInstanceRequest{
		GroupKey: int32(r.n), GroupSize: 1, InstanceKey: 1, DeviceType: "CPU", Device: r.device(), DataType: tfpb.DataType_DT_FLOAT, Shape: &tfpb.TensorShapeProto{}, //nolint:gosec // small
	})
	return err
}

// streamed is the error of the first message of a stream.
func streamed[T any](s interface{ Recv() (T, error) }, err error) error {
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

var rightsRows = []rightsRow{
	{method: "/tensorflow.WorkerService/GetStatus", call: func(r *right) error {
		_, err := r.worker().GetStatus(r.ctx, &tfpb.GetStatusRequest{})
		return err
	}},
	{method: "/tensorflow.WorkerService/CreateWorkerSession", needs: "the master's, if the request has one", call: func(r *right) error {
		r.made = fmt.Sprint("session ", r.n)
		_, err := r.worker().CreateWorkerSession(r.ctx, &tfpb.CreateWorkerSessionRequest{SessionHandle: r.handle(), MasterTask: r.name.String(), MasterIncarnation: r.n})
		return err
	}, effect: (*right).hasSession},
	{method: "/tensorflow.WorkerService/DeleteWorkerSession", prepare: (*right).session, call: func(r *right) error {
		_, err := r.worker().DeleteWorkerSession(r.ctx, &tfpb.DeleteWorkerSessionRequest{SessionHandle: r.handle()})
		return err
	}, effect: func(r *right) bool { return !r.hasSession() }},
	{method: "/tensorflow.WorkerService/RegisterGraph", call: func(r *right) error {
		_, err := r.worker().RegisterGraph(r.ctx, &tfpb.RegisterGraphRequest{GraphDef: &tfpb.GraphDef{}})
		return err
	}},
	{method: "/tensorflow.WorkerService/DeregisterGraph", prepare: (*right).register, call: func(r *right) error {
		_, err := r.worker().DeregisterGraph(r.ctx, &tfpb.DeregisterGraphRequest{GraphHandle: r.handle()})
		return err
	}},
	{method: "/tensorflow.WorkerService/RunGraph", prepare: (*right).register, call: func(r *right) error {
		_, err := r.worker().RunGraph(r.ctx, &tfpb.RunGraphRequest{GraphHandle: r.handle(), StepId: r.n})
		return err
	}, effect: func(r *right) bool { return r.s.manager.Err(r.n) == nil }},
	{method: "/tensorflow.WorkerService/CleanupGraph", prepare: (*right).send, call: func(r *right) error {
		_, err := r.worker().CleanupGraph(r.ctx, &tfpb.CleanupGraphRequest{StepId: r.n})
		return err
	}, effect: (*right).taken},
	{method: "/tensorflow.WorkerService/CleanupAll", call: func(r *right) error {
		_, err := r.worker().CleanupAll(r.ctx, &tfpb.CleanupAllRequest{})
		return err
	}},
	{method: "/tensorflow.WorkerService/RecvTensor", form: "of TensorFlow", needs: "the destination of the key", prepare: (*right).send, call: func(r *right) error {
		_, err := r.worker().RecvTensor(r.ctx, &tfpb.RecvTensorRequest{StepId: r.n, RendezvousKey: r.key.String(), RequestId: r.n})
		return err
	}, effect: (*right).taken},
	{method: "/tensorflow.WorkerService/RecvTensor", form: "of Tryst", needs: "the destination of the key, and the requester's", prepare: (*right).send, call: func(r *right) error {
		_, err := r.worker().RecvTensor(r.ctx, r.request(r.key.String()))
		return err
	}, effect: (*right).taken},
	{method: "/tensorflow.WorkerService/RecvTensor", form: "of a published tensor", needs: "the destination of the key, and the requester's", call: func(r *right) error {
		p := r.publication
		_, err := r.worker().RecvTensor(r.ctx, r.request(rawKey(r.T, p.Src().Task, p.SrcIncarnation(), r.name, p.Edge())))
		return err
	}, effect: (*right).kept},
	{method: "/tensorflow.WorkerService/RecvBuf", needs: "that of the destination's device", code: codes.FailedPrecondition, call: func(r *right) error {
		_, err := r.worker().RecvBuf(r.ctx, &tfpb.RecvBufRequest{ // of an earlier process: otherwise it waits
			StepId: r.n, BufRendezvousKey: "k", SrcDevice: r.s.Device().String(), SrcIncarnation: 1, DstDevice: r.device(), RequestId: r.n,
		})
		return err
	}},
	{method: "/tensorflow.WorkerService/Logging", call: func(r *right) error {
		_, err := r.worker().Logging(r.ctx, &tfpb.LoggingRequest{})
		return err
	}},
	{method: "/tensorflow.WorkerService/Tracing", code: codes.Unimplemented, call: func(r *right) error {
		_, err := r.worker().Tracing(r.ctx, &tfpb.TracingRequest{})
		return err
	}},
	{method: "/tensorflow.WorkerService/CompleteGroup", needs: "that of the device", call: func(r *right) error { return r.enter(r.conn) },
		effect: func(r *right) bool { return r.operate(r.owner()) == nil }},
	{method: "/tensorflow.WorkerService/CompleteInstance", needs: "that of the device", prepare: func(r *right) {
		if err := r.enter(r.owner()); err != nil && r.name != r.client {
			r.Fatal(err)
		}
	}, call: func(r *right) error { return r.operate(r.conn) }},
	{method: "/tensorflow.WorkerService/GetStepSequence", call: func(r *right) error {
		_, err := r.worker().GetStepSequence(r.ctx, &tfpb.GetStepSequenceRequest{})
		return err
	}},
	{method: "/tensorflow.WorkerService/MarkRecvFinished", needs: "the requester's", prepare: (*right).keep, call: func(r *right) error {
		p := r.process()
		_, err := r.worker().MarkRecvFinished(r.ctx, &tfpb.MarkRecvFinishedRequest{Requester: p.Name, RequesterIncarnation: p.Incarnation, Finished: []uint64{uint64(r.n)}}) //nolint:gosec // small
		return err
	}, effect: (*right).released},
	{method: "/tensorflow.WorkerService/MarkRecvFinished", form: "of TensorFlow", call: func(r *right) error {
		_, err := r.worker().MarkRecvFinished(r.ctx, &tfpb.MarkRecvFinishedRequest{RequestId: r.n})
		return err
	}},
	{method: "/tensorflow.VerbsService/GetRemoteAddress", needs: "the caller's", call: func(r *right) error {
		_, err := tensorflowgrpc.NewVerbsServiceClient(r.conn).GetRemoteAddress(r.ctx, &tfpb.GetRemoteAddressRequest{
			HostName: r.name.String(), PeerName: r.s.Task().String(), Version: 4, Incarnation: 4,
		})
		return err
	}},
	{method: "/tryst.Peers/Hello", needs: "the requester's", call: func(r *right) error {
		p := r.process()
		_, err := trystgrpc.NewPeersClient(r.conn).Hello(r.ctx, &trystpb.HelloRequest{Requester: p.Name, RequesterIncarnation: p.Incarnation})
		return err
	}},
	{method: "/tryst.Peers/Cancel", needs: "the requester's", prepare: (*right).keep, call: func(r *right) error {
		p := r.process()
		_, err := trystgrpc.NewPeersClient(r.conn).Cancel(r.ctx, &trystpb.CancelRequest{Requester: p.Name, RequesterIncarnation: p.Incarnation, Ids: []uint64{uint64(r.n)}}) //nolint:gosec // small
		return err
	}, effect: (*right).released},
	{method: "/tryst.Chunks/Fetch", needs: "the requester's", prepare: (*right).keep, call: func(r *right) error {
		p := r.process()
		return streamed(trystgrpc.NewChunksClient(r.conn).Fetch(r.ctx, &trystpb.FetchRequest{Requester: p.Name, RequesterIncarnation: p.Incarnation, Id: uint64(r.n), Attempt: 1})) //nolint:gosec // small
	}},
	{method: "/tryst.Publications/List", call: func(r *right) error {
		_, err := trystgrpc.NewPublicationsClient(r.conn).List(r.ctx, &trystpb.ListRequest{})
		return err
	}},
	{method: "/tryst.Publications/Describe", call: func(r *right) error {
		_, err := trystgrpc.NewPublicationsClient(r.conn).Describe(r.ctx, &trystpb.DescribeRequest{Publication: "m"})
		return err
	}},
	{method: "/tryst.Publications/Open", needs: "the puller's", call: func(r *right) error {
		return streamed(trystgrpc.NewPublicationsClient(r.conn).Open(r.ctx, &trystpb.OpenRequest{Publication: "m", Puller: r.name.String()}))
	}},
	{method: "/tryst.Publications/Watch", needs: "the watcher's, if the request has one", call: func(r *right) error {
		return streamed(trystgrpc.NewPublicationsClient(r.conn).Watch(r.ctx, &trystpb.WatchRequest{Publication: "m", Watcher: r.name.String()}))
	}},
	{method: "/tryst.Publications/Alive", call: func(r *right) error {
		_, err := trystgrpc.NewPublicationsClient(r.conn).Alive(r.ctx, &trystpb.AliveRequest{StepId: 1})
		return err
	}},
	{method: "/grpc.health.v1.Health/Check", call: func(r *right) error {
		_, err := healthpb.NewHealthClient(r.conn).Check(r.ctx, &healthpb.HealthCheckRequest{})
		return err
	}},
	{method: "/grpc.health.v1.Health/List", call: func(r *right) error {
		_, err := healthpb.NewHealthClient(r.conn).List(r.ctx, &healthpb.HealthListRequest{})
		return err
	}},
	{method: "/grpc.health.v1.Health/Watch", call: func(r *right) error {
		return streamed(healthpb.NewHealthClient(r.conn).Watch(r.ctx, &healthpb.HealthCheckRequest{}))
	}},
	{method: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", call: func(r *right) error {
		s, err := reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(r.ctx)
		if err == nil {
			err = s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		}
		return streamed(s, err)
	}},
	{method: "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", call: func(r *right) error {
		s, err := reflectionalpha.NewServerReflectionClient(r.conn).ServerReflectionInfo(r.ctx)
		if err == nil {
			err = s.Send(&reflectionalpha.ServerReflectionRequest{MessageRequest: &reflectionalpha.ServerReflectionRequest_ListServices{}}) //nolint:staticcheck // the deprecated service is served, too
		}
		return streamed(s, err)
	}},
}

// newRights starts server 0 of three tasks, alone.
func newRights(t *testing.T, a *certtest.Authority) *rights {
	w := newVerbsTown(t, 3)
	r := &rights{T: t, victim: taskOf("worker", 1), client: cluster.Task{Job: cluster.ClientJob, Index: 7}}
	r.s = startRouteWith(t, w.settings(0, func(c *Config) {
		c.TLS, c.TLS.RequireClientCert, c.Provider, c.RDMA.Timeout = TLS(a.Pair(certificateOf(0))), true, "tcp", 0
	}), Options{Kernels: ops.New()})
	for i, certificate := range []string{certificateOf(1), "host", certificateOf(2), "none", "none"} {
		security, err := certificates.ClientTLS(certificates.Files(a.Pair(certificate)))
		if err != nil {
			t.Fatal(err)
		}
		r.conns[i] = dialRaw(t, r.s.Addr().String(), grpc.WithTransportCredentials(certificates.ClientCredentials(security)))
	}
	x := float(t, 1)
	defer x.Release()
	p, err := r.s.Catalog().PublishTensors(t.Context(), "m", x.Named("t"))
	if err != nil {
		t.Fatal(err)
	}
	r.publication, err = rendezvous.ParseKey(rawKey(t, r.s.Task(), r.s.Incarnation(), r.client, checkpoint.EdgeName("m", p.Version, "t")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rightsAuthority has a certificate for each column of the table.
func rightsAuthority(t *testing.T) *certtest.Authority {
	a := certtest.New(t)
	for i := range 3 {
		a.MakeFor(taskOf("worker", i).String(), certificateOf(i), certtest.Loopback)
	}
	a.Make("host", certtest.Loopback)
	a.Make("none", nil)
	return a
}

// state is what a refused request must not change.
func (r *rights) state() string {
	sessions := r.s.worker.Stats()
	return fmt.Sprint(r.s.Kept(), r.s.manager.Steps(), sessions.Sessions, sessions.Graphs)
}

// cell makes a request and returns what the table says of it.
func (r *rights) cell(row *rightsRow, column int) string {
	if row.needs == "" && column == clientName {
		return noCase
	}
	ctx, cancel := context.WithTimeout(r.Context(), soon)
	defer cancel()
	r.n++
	one := &right{rights: r, ctx: ctx, conn: r.conns[column], name: r.victim, n: 1000 + r.n}
	if column == clientName {
		one.name = r.client
	}
	where := fmt.Sprintf("%s %s, column %d", row.method, row.form, column)
	if row.prepare != nil {
		row.prepare(one)
	}
	before, count := r.state(), refusedNames(r.T, r.s.Server, row.method)
	err := row.call(one)
	code := grpcstatus.Code(err)
	denied := code == codes.PermissionDenied
	switch {
	case !denied && code != row.code:
		r.Errorf("%s: %v, want %v or PermissionDenied", where, err, row.code)
	case denied && r.state() != before:
		r.Errorf("%s: refused, but the server has %s, and had %s", where, r.state(), before)
	case denied && refusedNames(r.T, r.s.Server, row.method) != count+1:
		r.Errorf("%s: the refusal is not counted", where)
	}
	if row.effect != nil && row.effect(one) == denied {
		r.Errorf("%s: %v, but its effect is otherwise", where, err)
	}
	r.s.worker.EndStep(one.n)
	if denied {
		return refused
	}
	return mayCall
}

// refusedNames returns tryst_refused_names_total of a method.
func refusedNames(t *testing.T, s *Server, method string) float64 {
	t.Helper()
	series := fmt.Sprintf("tryst_refused_names_total{method=%q}", method[strings.LastIndexByte(method, '/')+1:])
	if text := metricsText(s.gatherer); strings.Contains(text, series) {
		return metric(t, text, series)
	}
	return 0
}

// overProvider makes the requests for a row of the table over one provider.
func overProvider(t *testing.T, a *certtest.Authority, provider string) (cells [rightColumns]string) {
	if provider == "shm" {
		needsSharedMemory(t)
	}
	w := newVerbsTown(t, 3)
	var servers [3]*VerbsServer
	options := func(i int) (o Options) {
		if provider == "libibverbs" {
			o.Provider = w.provider(i)
		}
		return o
	}
	for i := range servers {
		servers[i] = startRouteWith(t, w.settings(i, func(c *Config) {
			c.TLS, c.TLS.RequireClientCert, c.Fallback = TLS(a.Pair(certificateOf(i))), true, "none"
			if provider != "libibverbs" {
				c.Provider, c.RDMA.Timeout = provider, 0
			}
		}), options(i))
	}
	cc := clientConfig(TLS(a.Pair("none")))
	cc.Transport, cc.Fallback, cc.RDMA.Arena, cc.RDMA.ArenaLimit = "verbs", "none", 4<<20, 64<<20
	if provider != "libibverbs" {
		cc.Provider = provider
	}
	o := options(3)
	o.Allocator = tensortest.NewAllocator(t)
	cl, err := Dial(t.Context(), cc, servers[0].Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close(context.Background())
	s0 := servers[0]
	for i := range cells {
		n, to := servers[0].node, servers[1].Task()
		switch i {
		case rightName:
			n = servers[1].node
		case hostName:
			cells[i] = noCase // a channel has the name of a task
			continue
		case otherName:
			n = servers[2].node
		case noName:
			n = cl.node
		case clientName:
			n, to = cl.node, cl.Task()
		}
		key, err := rendezvous.ParseKey(rawKey(t, s0.Task(), s0.Incarnation(), to, "x"))
		if err != nil {
			t.Fatal(err)
		}
		step := int64(100 + i)
		x := float(t, 5)
		if err := s0.Rendezvous(step).Send(key, rendezvous.Args{}, x, false); err != nil {
			t.Fatal(err)
		}
		x.Release()
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		v, err := n.rdma.Transport.RecvFrom(s0.Task(), step, key, rendezvous.Args{}, nil).Wait(ctx)
		cancel()
		left, there := s0.manager.TakeLocal(step, key)
		if there {
			left.Tensor.Release()
		}
		switch {
		case err == nil && !there:
			cells[i] = mayCall
			v.Tensor.Release()
		case status.CodeOf(err) == status.PermissionDenied && there:
			cells[i] = refused
		default:
			t.Errorf("%s, column %d: %v; the value is there: %v", provider, i, err, there)
		}
	}
	until(t, provider+": the count of three refusals", func() bool { return refusedNames(t, s0.Server, refusals.VerbsRequest) == 3 })
	return cells
}

// throughMemory is what the providers themselves allow, without a request: rows of the table that no call
// makes. docs/security.md has the reasons.
var throughMemory = []struct{ what, cells string }{
	{"reading memory over `shm`", "a proven peer maps the whole sending arenas, with what is for others"},
	{"writing memory over `libibverbs`", "the rkey of a transfer reaches the whole receiving arena, with what comes from others"},
	{"memory over `roce` and `tcp`", "only the destination of a transfer under way"},
}

// TestRightsTable: each method of each service, and each provider, allows a request to the process whose name
// it needs, and to nobody else; a refused one changes nothing and is counted. docs/security.md has the
// table (go test -update writes it). A method without a row fails.
func TestRightsTable(t *testing.T) {
	a := rightsAuthority(t)
	r := newRights(t, a)
	for service, info := range r.s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			full := "/" + service + "/" + m.Name
			if !slices.ContainsFunc(rightsRows, func(row rightsRow) bool { return row.method == full }) {
				t.Errorf("%s has no row: what may the holder of which certificate do?", full)
			}
		}
	}
	var b strings.Builder
	b.WriteString("| request | the name that it needs | right name | its host | other name | no name | client's name |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	write := func(what, needs string, cells ...string) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", what, needs, strings.Join(cells, " | "))
	}
	for i := range rightsRows {
		row := &rightsRows[i]
		var cells []string
		for column := range rightColumns {
			cells = append(cells, r.cell(row, column))
		}
		what, needs := "`"+strings.TrimPrefix(row.method, "/")+"`", row.needs
		if row.form != "" {
			what += " " + row.form
		}
		if needs == "" {
			needs = "none"
		}
		write(what, needs, cells...)
	}
	for _, provider := range []string{"libibverbs", "roce", "tcp", "shm"} {
		cells := overProvider(t, a, provider)
		write("REQUEST over `"+provider+"`", "the destination of the key, and the channel's", cells[:]...)
	}
	for _, m := range throughMemory {
		write(m.what, "none", m.cells, noCase, "the same", "the same", "the same")
	}
	doctest.Block(t, "../docs/security.md", "rights", b.String(), *update, "go test ./server -run TestRightsTable -update")
}
