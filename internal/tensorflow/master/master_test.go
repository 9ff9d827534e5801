package master_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deviceName = "/job:worker/replica:0/task:3/device:CPU:0"

// fakeWorker answers as a worker whose graphs return what they are fed, in order.
type fakeWorker struct {
	transport.Worker
	devices []*tfpb.DeviceAttributes
	session *tfpb.CreateWorkerSessionRequest
	graph   *tfpb.GraphDef
	run     *tfpb.RunGraphRequest
	cleaned []int64
	// change, if not nil, changes the response of RunGraph.
	change func(*tfpb.RunGraphResponse)
}

func newFake() *fakeWorker {
	return &fakeWorker{devices: []*tfpb.DeviceAttributes{{Name: deviceName, Incarnation: 0x1ed2}}}
}

func (w *fakeWorker) GetStatus(context.Context, *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	return &tfpb.GetStatusResponse{DeviceAttributes: w.devices}, nil
}

func (w *fakeWorker) CreateWorkerSession(_ context.Context, r *tfpb.CreateWorkerSessionRequest) (*tfpb.CreateWorkerSessionResponse, error) {
	w.session = r
	return &tfpb.CreateWorkerSessionResponse{}, nil
}

func (w *fakeWorker) RegisterGraph(_ context.Context, r *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error) {
	w.graph = r.GetGraphDef()
	return &tfpb.RegisterGraphResponse{GraphHandle: "0000000000000001"}, nil
}

func (w *fakeWorker) RunGraph(_ context.Context, r *tfpb.RunGraphRequest) (*tfpb.RunGraphResponse, error) {
	w.run = r
	response := &tfpb.RunGraphResponse{}
	for i, key := range r.GetRecvKey() {
		response.Recv = append(response.Recv, &tfpb.NamedTensorProto{Name: key, Tensor: r.GetSend()[i].GetTensor()})
	}
	if w.change != nil {
		w.change(response)
	}
	return response, nil
}

func (w *fakeWorker) CleanupGraph(_ context.Context, r *tfpb.CleanupGraphRequest) (*tfpb.CleanupGraphResponse, error) {
	w.cleaned = append(w.cleaned, r.GetStepId())
	return &tfpb.CleanupGraphResponse{}, nil
}

// echo opens a session at w and registers a graph that fetches what it is fed.
func echo(t *testing.T, w *fakeWorker) *master.Program {
	t.Helper()
	s, err := master.Open(t.Context(), w, master.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := s.NewGraph()
	g.Fetch("y", g.Feed("x", tensor.Float32), tensor.Float32)
	p, err := s.Register(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func one(t *testing.T) *tensor.Tensor {
	t.Helper()
	x, err := tensor.FromSlice(tensor.Shape{}, []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func wantInvalid(t *testing.T, err error, code status.Code, text string) {
	t.Helper()
	if status.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}

// TestFeedAndFetchKeys: the keys of feeds and fetches are those that the nodes of the graph build,
// and the step is cleaned up after its run.
func TestFeedAndFetchKeys(t *testing.T) {
	w := newFake()
	values, err := echo(t, w).Step(t.Context(), map[string]*tensor.Tensor{"x": one(t)})
	if err != nil {
		t.Fatal(err)
	}
	tensortest.RequireEqual(t, one(t), values["y"])
	key := func(n *tfpb.NodeDef) string {
		a := n.GetAttr()
		if n.GetDevice() != deviceName || string(a["send_device"].GetS()) != deviceName || string(a["recv_device"].GetS()) != deviceName {
			t.Errorf("node %v is not of %s alone", n, deviceName)
		}
		return deviceName + ";0000000000001ed2;" + deviceName + ";" + string(a["tensor_name"].GetS()) + ";0:0"
	}
	if got, want := w.run.GetSend()[0].GetName(), key(w.graph.GetNode()[0]); got != want {
		t.Errorf("fed the key %s, want %s", got, want)
	}
	if got, want := w.run.GetRecvKey()[0], key(w.graph.GetNode()[1]); got != want {
		t.Errorf("fetched the key %s, want %s", got, want)
	}
	if len(w.cleaned) != 1 || w.cleaned[0] != w.run.GetStepId() {
		t.Errorf("cleaned up steps %x, want %x", w.cleaned, w.run.GetStepId())
	}
}

// TestNodeNamesAreUnique: two graphs of a session have no node name in common, except those of
// AddNamed.
func TestNodeNamesAreUnique(t *testing.T) {
	s, err := master.Open(t.Context(), newFake(), master.Options{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for range 2 {
		g := s.NewGraph()
		g.Fetch("y", g.Identity("same", g.Feed("x", tensor.Float32), tensor.Float32), tensor.Float32)
		for _, n := range g.Def().GetNode() {
			if names[n.GetName()] {
				t.Errorf("two nodes have the name %s", n.GetName())
			}
			names[n.GetName()] = true
		}
		if got := g.AddNamed("v", "NoOp", nil); got != "v" {
			t.Errorf("AddNamed returned %q, want v", got)
		}
	}
}

// TestFeedsAreChecked: a feed that the graph lacks, and one without a value, are refused before the
// worker is called.
func TestFeedsAreChecked(t *testing.T) {
	p := echo(t, newFake())
	_, err := p.Step(t.Context(), map[string]*tensor.Tensor{"x": one(t), "z": one(t)})
	wantInvalid(t, err, status.InvalidArgument, `the graph has no feed "z"; it has ["x"]`)
	_, err = p.Step(t.Context(), nil)
	wantInvalid(t, err, status.InvalidArgument, `feed "x" has no value`)
}

// TestResponseIsChecked: a worker that returns other fetches than those of the graph is refused.
func TestResponseIsChecked(t *testing.T) {
	w := newFake()
	p := echo(t, w)
	for name, c := range map[string]struct {
		change func(*tfpb.RunGraphResponse)
		text   string
	}{
		"none":    {func(r *tfpb.RunGraphResponse) { r.Recv = nil }, `no value for the fetch "y"`},
		"twice":   {func(r *tfpb.RunGraphResponse) { r.Recv = append(r.Recv, r.Recv[0]) }, "which was not asked for"},
		"another": {func(r *tfpb.RunGraphResponse) { r.Recv[0].Name = "other" }, `the key "other", which was not asked for`},
		"broken":  {func(r *tfpb.RunGraphResponse) { r.Recv[0].Tensor = &tfpb.TensorProto{} }, "fetch y"},
	} {
		t.Run(name, func(t *testing.T) {
			w.change = c.change
			if values, err := p.Step(t.Context(), map[string]*tensor.Tensor{"x": one(t)}); err == nil || !strings.Contains(err.Error(), c.text) || values != nil {
				t.Errorf("got %v, %v, want an error with %q", values, err, c.text)
			}
		})
	}
}

// TestOpenNamesTheCaller: a session has the name and incarnation of the process, so that the worker
// can delete the sessions of an earlier start.
func TestOpenNamesTheCaller(t *testing.T) {
	w := newFake()
	s, err := master.Open(t.Context(), w, master.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := master.Open(t.Context(), w, master.Options{Self: s.Devices()[0], Isolate: true}); err != nil {
		t.Fatal(err)
	}
	got := w.session
	if got.GetMasterTask() != "/job:worker/replica:0/task:3" || got.GetMasterIncarnation() != 0x1ed2 || !got.GetIsolateSessionState() || got.GetServerDef().GetTaskIndex() != 3 {
		t.Errorf("CreateWorkerSession got %v", got)
	}
}

// TestS9NameOfTheWorker: server_def has job, replica and task of the worker, which are its name in TensorFlow.
func TestS9NameOfTheWorker(t *testing.T) {
	w := newFake()
	w.devices[0].Name = "/job:worker/replica:2/task:3/device:CPU:0"
	if _, err := master.Open(t.Context(), w, master.Options{}); err != nil {
		t.Fatal(err)
	}
	if d := w.session.GetServerDef(); d.GetJobName() != "worker" || d.GetReplica() != 2 || d.GetTaskIndex() != 3 {
		t.Errorf("server_def %v", d)
	}
}

// TestH11RemoteDevices: the session has the devices that GetStatus lists: names, types, incarnations and memory.
func TestH11RemoteDevices(t *testing.T) {
	w := newFake()
	w.devices = []*tfpb.DeviceAttributes{
		{Name: deviceName, DeviceType: "CPU", MemoryLimit: 256 << 20, Incarnation: 7},
		{Name: "/job:worker/replica:0/task:3/device:GPU:1", DeviceType: "GPU", MemoryLimit: 1 << 34, Incarnation: 8},
	}
	s, err := master.Open(t.Context(), w, master.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range s.Devices() {
		a := s.Attributes()[i]
		if want := w.devices[i]; d.Device.String() != want.GetName() || d.Device.Type != want.GetDeviceType() || d.Incarnation != want.GetIncarnation() || !proto.Equal(a, want) {
			t.Errorf("device %d is %v with %v, the worker reports %v", i, d, a, want)
		}
	}
	if n := len(s.Devices()); n != 2 {
		t.Errorf("%d devices", n)
	}
}

// TestOpenChecksDevices: a worker without devices, or with one whose name does not parse, is
// refused.
func TestOpenChecksDevices(t *testing.T) {
	w := newFake()
	w.devices[0].Name = "CPU"
	_, err := master.Open(t.Context(), w, master.Options{})
	wantInvalid(t, err, status.InvalidArgument, "GetStatus: device of the worker")
	w.devices = nil
	_, err = master.Open(t.Context(), w, master.Options{})
	wantInvalid(t, err, status.Internal, "reports no devices")
}
