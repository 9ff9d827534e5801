package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

const incarnation = 0x11223344556677ab

var (
	here  = cluster.Task{Job: "ps", Index: 0}
	there = cluster.Task{Job: "worker", Index: 3}
)

// fixture is a worker with its rendezvous and response cache, and an allocator that counts
// tensors.
type fixture struct {
	*Worker
	t       *testing.T
	manager *rendezvous.Manager
	kept    *delivery.ResponseCache
	live    atomic.Int64
}

func newFixture(t *testing.T, o Options) *fixture {
	f := &fixture{t: t}
	f.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: rendezvous.NewSession(here, incarnation, 1)})
	f.kept = delivery.NewResponseCache(f.manager, delivery.CacheOptions{})
	o.Task, o.Incarnation, o.Manager, o.Cache = here, incarnation, f.manager, f.kept
	f.Worker = New(o)
	return f
}

// close ends the fixture and checks that no reference is left.
func (f *fixture) close() {
	f.t.Helper()
	f.kept.Close()
	f.manager.Close()
	if n := f.live.Load(); n != 0 {
		f.t.Errorf("%d tensors were not released", n)
	}
}

func key(name string) string {
	return rendezvous.CreateKey(cluster.DeviceOf(here).String(), incarnation, cluster.DeviceOf(there).String(), name, rendezvous.FrameIter{})
}

// send sends a float to a key.
func (f *fixture) send(step int64, name string, value float32) {
	f.t.Helper()
	v, err := tensor.FromSlice(tensor.Shape{}, []float32{value})
	if err != nil {
		f.t.Fatal(err)
	}
	f.live.Add(1)
	x, err := tensor.New(tensor.Float32, tensor.Shape{}, tensor.NewBuffer(v.Bytes(), func() { f.live.Add(-1) }))
	if err != nil {
		f.t.Fatal(err)
	}
	defer x.Release()
	k, err := rendezvous.ParseKey(key(name))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.manager.Find(step).Send(k, rendezvous.Args{}, x, false); err != nil {
		f.t.Fatal(err)
	}
}

// value returns the float in a response and releases the response.
func value(t *testing.T, r *transport.TensorResponse, err error) float32 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Tensor.Release()
	v, err := tensor.Values[float32](r.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	return v[0]
}

func request(step int64, name string) *tfpb.RecvTensorRequest {
	return &tfpb.RecvTensorRequest{StepId: step, RendezvousKey: key(name)}
}

// asTryst makes req a request of a Tryst peer.
func asTryst(t *testing.T, req *tfpb.RecvTensorRequest, id uint64, attempt uint32) *tfpb.RecvTensorRequest {
	t.Helper()
	a, err := anypb.New(&trystpb.RecvOptions{
		Requester: there.String(), RequesterIncarnation: 5, SenderIncarnation: incarnation, Id: id, Attempt: attempt,
	})
	if err != nil {
		t.Fatal(err)
	}
	req.TransportOptions = a
	return req
}

func wantCode(t *testing.T, err error, code status.Code, text string) {
	t.Helper()
	if status.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}

func TestGetStatus(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	r, err := f.GetStatus(t.Context(), &tfpb.GetStatusRequest{})
	if err != nil || len(r.GetDeviceAttributes()) != 1 {
		t.Fatal(r, err)
	}
	d := r.GetDeviceAttributes()[0]
	if d.GetName() != "/job:ps/replica:0/task:0/device:CPU:0" || d.GetDeviceType() != "CPU" ||
		d.GetMemoryLimit() != 256<<20 || d.GetIncarnation() != incarnation || d.GetXlaGlobalId() != -1 {
		t.Errorf("device attributes %v", d)
	}
}

func TestRecvTensorOfATensorFlowPeer(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	f.send(1, "x", 3)
	r, err := f.RecvTensor(t.Context(), request(1, "x"))
	if got := value(t, r, err); got != 3 {
		t.Errorf("got %v", got)
	}
}

func TestRecvTensorBeforeTheStepExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		defer f.close()
		var got float32
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := f.RecvTensor(t.Context(), request(9, "x"))
			got = value(t, r, err)
		})
		synctest.Wait()
		f.send(9, "x", 4)
		wg.Wait()
		if got != 4 {
			t.Errorf("got %v", got)
		}
	})
}

func TestRecvTensorRefuses(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	ctx := t.Context()

	_, err := f.RecvTensor(ctx, &tfpb.RecvTensorRequest{RendezvousKey: "foo;bar;baz"})
	wantCode(t, err, status.InvalidArgument, "Invalid  rendezvous key: foo;bar;baz")

	other := rendezvous.CreateKey(cluster.DeviceOf(here).String(), 1, cluster.DeviceOf(there).String(), "x", rendezvous.FrameIter{})
	_, err = f.RecvTensor(ctx, &tfpb.RecvTensorRequest{RendezvousKey: other})
	wantCode(t, err, status.Aborted, "RecvTensor expects a different device incarnation: ")

	unknown := cluster.DeviceOf(here)
	unknown.Type, unknown.Index = "GPU", 7
	missing := rendezvous.CreateKey(unknown.String(), incarnation, cluster.DeviceOf(there).String(), "x", rendezvous.FrameIter{})
	_, err = f.RecvTensor(ctx, &tfpb.RecvTensorRequest{RendezvousKey: missing})
	if wantCode(t, err, status.InvalidArgument, ""); err != nil && status.From(err).Message() != "/device:GPU:7 unknown device." {
		t.Errorf("unknown device: %v", err)
	}
	_, err = f.RecvTensor(ctx, asTryst(t, &tfpb.RecvTensorRequest{RendezvousKey: missing}, 9, 1))
	wantCode(t, err, status.InvalidArgument, "/device:GPU:7 unknown device. ")

	foreign := rendezvous.CreateKey(cluster.DeviceOf(there).String(), incarnation, cluster.DeviceOf(here).String(), "x", rendezvous.FrameIter{})
	_, err = f.RecvTensor(ctx, asTryst(t, &tfpb.RecvTensorRequest{RendezvousKey: foreign}, 9, 1))
	wantCode(t, err, status.InvalidArgument, cluster.DeviceOf(there).String())

	f.send(1, "x", 1)
	req := request(1, "x")
	req.RequestId = 77
	r, err := f.RecvTensor(ctx, req)
	value(t, r, err)
	_, err = f.RecvTensor(ctx, req)
	wantCode(t, err, status.Aborted, "The same RecvTensor (GrpcWorker) request was received twice. ")

	bad := request(1, "x")
	bad.TransportOptions = &anypb.Any{TypeUrl: "type.googleapis.com/tryst.RecvOptions", Value: []byte{0xff}}
	_, err = f.RecvTensor(ctx, bad)
	wantCode(t, err, status.InvalidArgument, "cannot parse")
	_, err = f.RecvTensor(ctx, asTryst(t, request(1, "x"), 0, 1))
	wantCode(t, err, status.InvalidArgument, "none may be empty or 0")
}

// TestOptionsThatGrowAreRefused before they are parsed: the parser copies a list for each further part.
func TestOptionsThatGrowAreRefused(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	req := asTryst(t, request(1, "x"), 1, 1)
	part := protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), make([]byte, 8)) // finished
	for range 20_000 {
		req.TransportOptions.Value = append(req.TransportOptions.Value, part...)
	}
	_, err := f.RecvTensor(t.Context(), req)
	wantCode(t, err, status.ResourceExhausted, "takes more than")
}

func TestRecvTensorForAnEarlierProcess(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	a, err := anypb.New(&trystpb.RecvOptions{Requester: there.String(), RequesterIncarnation: 5, SenderIncarnation: 99, Id: 1, Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	req := request(1, "x")
	req.TransportOptions = a
	_, err = f.RecvTensor(t.Context(), req)
	if _, ok := status.From(err).Payload("type.googleapis.com/tryst.OtherProcess"); !ok {
		t.Errorf("got %v", err)
	}
	if _, ok := status.From(err).Payload(status.PayloadPossiblyRestarted); !ok {
		t.Error("no word that the worker may have restarted")
	}
}

// A TensorFlow peer may request the value of another task, before this process has begun the step:
// the request waits, as in TensorFlow, and counts as a waiting one.
func TestRequestForAnotherTasksValueWaits(t *testing.T) {
	for _, cache := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, Options{CacheRPCResponse: cache, MaxWaiting: 1})
			defer f.close()
			req := &tfpb.RecvTensorRequest{
				StepId: 1, RequestId: 5,
				RendezvousKey: rendezvous.CreateKey(cluster.DeviceOf(there).String(), incarnation, cluster.DeviceOf(here).String(), "x", rendezvous.FrameIter{}),
			}
			got := make(chan error, 1)
			go func() {
				_, err := f.RecvTensor(t.Context(), req)
				got <- err
			}()
			time.Sleep(time.Hour)
			select {
			case err := <-got:
				t.Fatalf("cache %v: the request ended with %v", cache, err)
			default:
			}
			if !cache {
				_, err := f.RecvTensor(t.Context(), request(1, "y"))
				wantCode(t, err, status.ResourceExhausted, "1 receives")
			}
			f.manager.Find(1)
			wantCode(t, <-got, status.InvalidArgument, "Invalid rendezvous key (src): ")
		})
	}
}

// The incarnation in a key may have upper-case digits: the value is found.
func TestRecvTensorWithAnUpperCaseIncarnation(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	f.send(1, "x", 3)
	upper := strings.Replace(key("x"), fmt.Sprintf("%016x", uint64(incarnation)), fmt.Sprintf("%016X", uint64(incarnation)), 1)
	r, err := f.RecvTensor(t.Context(), &tfpb.RecvTensorRequest{StepId: 1, RendezvousKey: upper})
	if got := value(t, r, err); got != 3 {
		t.Errorf("got %v", got)
	}
}

// A TensorFlow peer cannot send a cancel: the end of its call aborts the step after a second.
func TestEndOfATensorFlowCallAbortsTheStep(t *testing.T) {
	for _, cache := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, Options{CacheRPCResponse: cache})
			defer f.close()
			ctx, cancel := context.WithCancel(t.Context())
			req := request(1, "x")
			req.RequestId = 5
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := f.RecvTensor(ctx, req)
				wantCode(t, err, status.Cancelled, "")
			})
			synctest.Wait()
			step := f.manager.Find(1)
			cancel()
			wg.Wait()
			if err := step.Err(); err != nil {
				t.Errorf("cache %v: aborted at once: %v", cache, err)
			}
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			wantCode(t, step.Err(), status.Aborted, "Step 1 cancelled.  Cancelling rendezvous.")
		})
	}
}

// For a Tryst peer the end of a call is a lost connection: the step continues, and the next attempt
// gets the value.
func TestEndOfATrystCallLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		defer f.close()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := f.RecvTensor(ctx, asTryst(t, request(1, "x"), 42, 1))
			wantCode(t, err, status.Cancelled, "")
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		time.Sleep(5 * time.Second)
		f.send(1, "x", 6)
		for attempt := uint32(2); attempt < 5; attempt++ { // the answer stays until it is finished
			r, err := f.RecvTensor(t.Context(), asTryst(t, request(1, "x"), 42, attempt))
			if got := value(t, r, err); got != 6 {
				t.Errorf("attempt %d: got %v", attempt, got)
			}
		}
		if s := f.kept.Stats(); s.Kept != 1 {
			t.Errorf("kept %+v", s)
		}
		if _, err := f.MarkRecvFinished(t.Context(), &tfpb.MarkRecvFinishedRequest{RequestId: 42, Requester: there.String(), RequesterIncarnation: 5, Finished: []uint64{42}}); err != nil {
			t.Fatal(err)
		}
		if s := f.kept.Stats(); s.Kept != 0 || s.Bytes != 0 {
			t.Errorf("after ACK kept %+v", s)
		}
	})
}

func TestFinishedRidesOnRequests(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	f.send(1, "x", 1)
	f.send(1, "y", 2)
	r, err := f.RecvTensor(t.Context(), asTryst(t, request(1, "x"), 1, 1))
	value(t, r, err)
	req := request(1, "y")
	req.TransportOptions, err = anypb.New(&trystpb.RecvOptions{
		Requester: there.String(), RequesterIncarnation: 5, Id: 2, Attempt: 1, Finished: []uint64{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err = f.RecvTensor(t.Context(), req)
	value(t, r, err)
	if s := f.kept.Stats(); s.Kept != 1 {
		t.Errorf("kept %+v, want only the second", s)
	}
}

// With cache_rpc_response a TensorFlow peer may repeat a request until its MarkRecvFinished, which
// the response requires.
func TestCacheRPCResponse(t *testing.T) {
	f := newFixture(t, Options{CacheRPCResponse: true})
	defer f.close()
	f.send(1, "x", 8)
	req := request(1, "x")
	req.RequestId = -3 // ids are random 64-bit numbers, so some are negative
	for range 2 {
		r, err := f.RecvTensor(t.Context(), req)
		if err == nil && !r.RequireAck {
			t.Error("the answer does not ask for MarkRecvFinished")
		}
		if got := value(t, r, err); got != 8 {
			t.Errorf("got %v", got)
		}
	}
	if _, err := f.MarkRecvFinished(t.Context(), &tfpb.MarkRecvFinishedRequest{RequestId: -3}); err != nil {
		t.Fatal(err)
	}
	if s := f.kept.Stats(); s.Kept != 0 {
		t.Errorf("kept %+v", s)
	}
}

func TestCleanupGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		defer f.close()
		f.send(1, "x", 1)
		r, err := f.RecvTensor(t.Context(), asTryst(t, request(1, "x"), 1, 1))
		value(t, r, err)
		f.send(1, "never-asked", 2)
		var wg sync.WaitGroup
		for i, req := range []*tfpb.RecvTensorRequest{request(1, "y"), asTryst(t, request(1, "z"), 2, 1)} {
			wg.Go(func() {
				_, err := f.RecvTensor(t.Context(), req)
				if status.CodeOf(err) != status.Aborted {
					t.Errorf("receive %d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		if _, err := f.CleanupGraph(t.Context(), &tfpb.CleanupGraphRequest{StepId: 1}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		synctest.Wait() // their owner is told by a goroutine
		if n := f.live.Load(); n != 0 {
			t.Errorf("%d tensors outlive their step", n)
		}
		_, err = f.RecvTensor(t.Context(), request(1, "y"))
		wantCode(t, err, status.Aborted, "")
	})
}

func TestMaxWaitingOfATensorFlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{MaxWaiting: 2})
		defer f.close()
		ctx, cancel := context.WithCancel(transport.WithCaller(t.Context(), transport.Caller{Address: "192.0.2.1:5000"}))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = f.RecvTensor(ctx, request(1, "x")) })
		}
		synctest.Wait()
		again := transport.WithCaller(t.Context(), transport.Caller{Address: "192.0.2.1:5001"})
		_, err := f.RecvTensor(again, request(1, "x"))
		wantCode(t, err, status.ResourceExhausted, "192.0.2.1")
		cancel()
		wg.Wait()
		f.send(2, "x", 1)
		r, err := f.RecvTensor(again, request(2, "x"))
		value(t, r, err)
	})
}

func TestMethodsThatNeedGraphsAreUnimplemented(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	ctx := t.Context()
	calls := map[string]func() error{
		"CreateWorkerSession": func() error { _, err := f.CreateWorkerSession(ctx, nil); return err },
		"DeleteWorkerSession": func() error { _, err := f.DeleteWorkerSession(ctx, nil); return err },
		"RegisterGraph":       func() error { _, err := f.RegisterGraph(ctx, nil); return err },
		"DeregisterGraph":     func() error { _, err := f.DeregisterGraph(ctx, nil); return err },
		"RunGraph":            func() error { _, err := f.RunGraph(ctx, nil); return err },
		"Tracing":             func() error { _, err := f.Tracing(ctx, nil); return err },
	}
	for name, call := range calls {
		if err := call(); status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]func() error{
		"RecvBuf":          func() error { _, err := f.RecvBuf(ctx, nil); return err },
		"CompleteGroup":    func() error { _, err := f.CompleteGroup(ctx, nil); return err },
		"CompleteInstance": func() error { _, err := f.CompleteInstance(ctx, nil); return err },
		"GetStepSequence":  func() error { _, err := f.GetStepSequence(ctx, nil); return err },
	} {
		if err := call(); status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "Runtime not initialized with CollectiveExecutorMgr") {
			t.Errorf("%s without collectives: %v", name, err)
		}
	}
	if _, err := f.CleanupAll(ctx, &tfpb.CleanupAllRequest{Container: []string{"c"}}); err != nil {
		t.Errorf("CleanupAll: %v; a master of TensorFlow 2.6 dies of it", err)
	}
}

// TestRecvTensorOfAValueThatIsNotSent: a response that the transport cannot encode is an error
// from then on, for the sender of the value and for the peer, which may acknowledge it.
func TestRecvTensorOfAValueThatIsNotSent(t *testing.T) {
	for _, peer := range []string{"TensorFlow", "Tryst"} {
		t.Run(peer, func(t *testing.T) {
			f := newFixture(t, Options{CacheRPCResponse: true})
			defer f.close()
			k, err := rendezvous.ParseKey(key("x"))
			if err != nil {
				t.Fatal(err)
			}
			v, err := tensor.FromSlice(tensor.Shape{}, []float32{3})
			if err != nil {
				t.Fatal(err)
			}
			d, err := f.manager.Find(1).SendWait(t.Context(), k, rendezvous.Args{}, v, false)
			v.Release()
			if err != nil {
				t.Fatal(err)
			}
			req, end := request(1, "x"), &tfpb.MarkRecvFinishedRequest{RequestId: 5}
			if peer == "Tryst" {
				req = asTryst(t, req, 5, 1)
				end = &tfpb.MarkRecvFinishedRequest{Requester: there.String(), RequesterIncarnation: 5, Finished: []uint64{5}}
			} else {
				req.RequestId = 5
			}
			r, err := f.RecvTensor(t.Context(), req)
			value(t, r, err)
			r.Failed(status.New(status.Internal, "too large"))
			_, err = f.RecvTensor(t.Context(), req)
			wantCode(t, err, status.Internal, "too large")
			if _, err := f.MarkRecvFinished(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			<-d.Done()
			wantCode(t, d.Err(), status.Internal, "too large")
		})
	}
}

// TestRecvTensorTellsTheSender: a value for a peer that acknowledges nothing has its outcome when
// the response is given to the connection.
func TestRecvTensorTellsTheSender(t *testing.T) {
	f := newFixture(t, Options{})
	defer f.close()
	k, err := rendezvous.ParseKey(key("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range []error{nil, status.New(status.Unavailable, "the connection has ended")} {
		v, err := tensor.FromSlice(tensor.Shape{}, []float32{3})
		if err != nil {
			t.Fatal(err)
		}
		d, err := f.manager.Find(1).SendWait(t.Context(), k, rendezvous.Args{}, v, false)
		v.Release()
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.RecvTensor(t.Context(), request(1, "x"))
		value(t, r, err)
		select {
		case <-d.Done():
			t.Error("it has its outcome before the response was sent")
		default:
		}
		r.Sent(sent)
		if <-d.Done(); d.Err() != sent { //nolint:errorlint // the same one
			t.Errorf("the outcome is %v, want %v", d.Err(), sent)
		}
	}
}
