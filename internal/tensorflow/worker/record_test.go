package worker

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/transport"
)

// began is when everything in these tests begins.
var began = time.UnixMicro(1_700_000_000_000_000)

// transfer is a receive of n bytes in a step that took 1 ms.
func transfer(step int64, n int64) transport.Transfer {
	return transport.Transfer{
		Step: step, Tensor: "edge_5_x", Source: cluster.DeviceOf(there), Destination: cluster.DeviceOf(here), Bytes: n,
		Start: began, End: began.Add(time.Millisecond),
	}
}

func (g *graphs) logging(req *tfpb.LoggingRequest) []*tfpb.LabeledStepStats {
	g.t.Helper()
	r, err := g.Logging(g.t.Context(), req)
	if err != nil {
		g.t.Fatal(err)
	}
	return r.GetStep()
}

// TestLoggingOfTransfers: a master enables the log, fetches a step, which drops it, and disables the
// log. A record has TensorFlow's label.
func TestLoggingOfTransfers(t *testing.T) {
	g := newGraphs(t, Options{})
	g.Transferred(transfer(1, 8)) // nobody wants it
	g.logging(&tfpb.LoggingRequest{EnableRpcLogging: true})
	g.Transferred(transfer(1, 8))
	g.Transferred(transfer(2, 16<<20))
	g.Transferred(transfer(2, 512<<20))
	if got := g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{7}}); len(got) != 0 {
		t.Errorf("an unknown step has %v", got)
	}
	steps := g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{1, 2}})
	var labels []string
	for _, s := range steps {
		for _, d := range s.GetStepStats().GetDevStats() {
			for _, n := range d.GetNodeStats() {
				labels = append(labels, fmt.Sprintf("%d %s %s %s", s.GetStepId(), d.GetDevice(), n.GetNodeName(), n.GetTimelineLabel()))
				if n.GetAllStartMicros() != began.UnixMicro() || n.GetAllEndRelMicros() != 1000 || n.GetOpEndRelMicros() != 1000 {
					t.Errorf("times of %v", n)
				}
				if len(n.GetOutput()) != 1 || n.GetOutput()[0].GetTensorDescription().GetAllocationDescription().GetRequestedBytes() == 0 {
					t.Errorf("output of %v", n)
				}
			}
		}
	}
	to := "/job:ps/replica:0/task:0/device:CPU:0"
	from := " edge_5_x from /job:worker/replica:0/task:3/device:CPU:0 to " + to
	want := []string{
		"1 " + to + " RecvTensor [8B] [0.064000Mb/s]" + from,
		"2 " + to + " RecvTensor [16.0MB] [134.2Gb/s]" + from,
		"2 " + to + " RecvTensor [512.0MB] [4295.0Gb/s]" + from,
	}
	if fmt.Sprint(labels) != fmt.Sprint(want) {
		t.Errorf("the log has\n%q, want\n%q", labels, want)
	}
	if got := g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{1, 2}}); len(got) != 0 {
		t.Errorf("fetched twice: %v", got)
	}
	g.logging(&tfpb.LoggingRequest{DisableRpcLogging: true})
	g.Transferred(transfer(3, 8))
	if got := g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{3}}); len(got) != 0 {
		t.Errorf("logged while disabled: %v", got)
	}
}

// TestLoggingIsCounted: one of several masters does not end the log for the others, and a request
// that neither enables nor fetches disables it, as masters of earlier releases do.
func TestLoggingIsCounted(t *testing.T) {
	g := newGraphs(t, Options{})
	logs := func() bool {
		g.Transferred(transfer(1, 8))
		return len(g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{1}})) > 0
	}
	g.logging(&tfpb.LoggingRequest{}) // too often: the count does not fall below 0
	g.logging(&tfpb.LoggingRequest{EnableRpcLogging: true})
	g.logging(&tfpb.LoggingRequest{EnableRpcLogging: true})
	g.logging(&tfpb.LoggingRequest{DisableRpcLogging: true})
	if !logs() {
		t.Error("one of two masters has ended the log")
	}
	g.Transferred(transfer(1, 8))
	g.logging(&tfpb.LoggingRequest{Clear: true})
	if got := g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{1}}); len(got) != 0 {
		t.Errorf("after clear: %v", got)
	}
	g.logging(&tfpb.LoggingRequest{})
	if logs() {
		t.Error("the last master has not ended the log")
	}
}

// TestALogThatNobodyUsesEnds: a master that dies does not disable the log. One that lives fetches.
func TestALogThatNobodyUsesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGraphs(t, Options{})
		g.logging(&tfpb.LoggingRequest{EnableRpcLogging: true})
		for step := range int64(3) { // each fetch keeps it on
			time.Sleep(logIdle - time.Second)
			g.Transferred(transfer(step, 8))
			if got := g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{step}}); len(got) != 1 {
				t.Fatalf("the log has %v while a master fetches", got)
			}
		}
		g.Transferred(transfer(7, 8))
		time.Sleep(logIdle)
		synctest.Wait()
		if n := g.records.log.n; n != 0 {
			t.Errorf("the log keeps %d records", n)
		}
		g.Transferred(transfer(8, 8))
		if got := g.logging(&tfpb.LoggingRequest{FetchStepId: []int64{7, 8}}); len(got) != 0 {
			t.Errorf("a log that nobody uses has %v", got)
		}
		g.Close()
		g.manager.Close()
	})
}

// TestRecordsAreBounded: a log forgets its oldest steps, a recording drops what comes too late.
func TestRecordsAreBounded(t *testing.T) {
	memory := tensortest.NewAllocator(t)
	log, rec := newRecorder(recorderOptions{limit: 10, memory: memory, forgets: true}), newRecorder(recorderOptions{limit: 10, memory: memory})
	for step := range int64(10) {
		for range 3 {
			log.add(step, "d", new(tfpb.NodeExecStats))
			rec.add(step, "d", new(tfpb.NodeExecStats))
		}
	}
	for range 100 { // in one step
		log.add(9, "d", new(tfpb.NodeExecStats))
	}
	take := func(step int64) *tfpb.StepStats {
		stats, held := log.take(step)
		giveBack(held)
		return stats
	}
	if log.n != 10 || take(6) != nil || len(take(9).GetDevStats()[0].GetNodeStats()) != 10 || log.n != 0 || log.bytes != 0 || len(log.held) != 0 {
		t.Errorf("the log has %d records of the steps %v, of %d bytes", log.n, log.order, log.bytes)
	}
	steps, release := rec.end()
	defer release()
	if len(steps) != 4 || steps[0].GetStepId() != 0 || rec.n != 0 {
		t.Errorf("the recording has %v", steps)
	}
}

// observed is a program that reports two kernels, as an executor does.
func observed(t *testing.T) (program, *graph.Graph) {
	x := &graph.Node{ID: 0, Name: "x", Op: "_Recv", Device: cluster.DeviceOf(here).String(), OutTypes: []tensor.DType{tensor.Float32},
		Def: &tfpb.NodeDef{Name: "x", Op: "_Recv", Attr: map[string]*tfpb.AttrValue{
			"tensor_name": {Value: &tfpb.AttrValue_S{S: []byte("edge_5_x")}}, "send_device": {Value: &tfpb.AttrValue_S{S: []byte("/job:chief")}},
		}}}
	y := &graph.Node{ID: 1, Name: "y", Op: "Neg", Device: cluster.DeviceOf(here).String(), OutTypes: []tensor.DType{tensor.Float32},
		In: []graph.Output{{Node: x}}, ControlIn: []*graph.Node{x}, Def: &tfpb.NodeDef{Name: "y", Op: "Neg", Input: []string{"x", "^x"}}}
	return func(_ context.Context, step *graph.Step) error {
		if step.Observe == nil {
			return nil
		}
		v, err := tensor.FromSlice(tensor.Vector(3), []float32{1, 2, 3})
		if err != nil {
			return err
		}
		defer v.Release()
		for _, n := range []*graph.Node{x, y, y} {
			step.Observe(graph.NodeRun{Node: n, Scheduled: began, Start: began.Add(time.Millisecond), End: began.Add(3 * time.Millisecond),
				Outputs: []graph.Value{{Tensor: v}}})
		}
		return nil
	}, &graph.Graph{Nodes: []*graph.Node{x, y}, Producer: 1395}
}

// TestRunGraphRecords: the options of RunGraph ask for the timeline, the costs and the graphs of the
// partitions; without them the response has none.
func TestRunGraphRecords(t *testing.T) {
	g := newGraphs(t, Options{})
	p, nodes := observed(t)
	compile := g.compile
	g.compile = func(s *session, def *tfpb.GraphDef) ([]part, error) {
		parts, err := compile(s, def)
		for i := range parts {
			parts[i].graph, parts[i].partition = nodes, partition(nodes)
		}
		return parts, err
	}
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, p, p)
	run := func(step int64, o *tfpb.ExecutorOpts) *tfpb.RunGraphResponse {
		req := running(s, handle, step)
		req.ExecOpts = o
		r, err := g.RunGraph(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run(1, nil); r.GetStepStats() != nil || r.GetCostGraph() != nil || len(r.GetPartitionGraph()) != 0 {
		t.Errorf("without options: %v", r)
	}
	r := run(2, &tfpb.ExecutorOpts{RecordTimeline: true})
	if r.GetCostGraph() != nil || len(r.GetStepStats().GetDevStats()) != 1 {
		t.Fatal(r)
	}
	d := r.GetStepStats().GetDevStats()[0]
	if d.GetDevice() != cluster.DeviceOf(here).String() || len(d.GetNodeStats()) != 6 {
		t.Fatal(d)
	}
	n := d.GetNodeStats()[0]
	if n.GetNodeName() != "x" || n.GetTimelineLabel() != "x = _Recv(edge_5_x @/job:chief)" || n.GetScheduledMicros() != began.UnixMicro() ||
		n.GetAllStartMicros() != began.UnixMicro()+1000 || n.GetAllEndRelMicros() != 2000 || n.GetAllEndRelNanos() != 2_000_000 {
		t.Errorf("kernel %v", n)
	}
	if out := n.GetOutput()[0].GetTensorDescription(); out.GetDtype() != tfpb.DataType_DT_FLOAT || out.GetShape().GetDim()[0].GetSize() != 3 ||
		out.GetAllocationDescription().GetRequestedBytes() != 12 {
		t.Errorf("output %v", out)
	}
	if !slices.ContainsFunc(d.GetNodeStats(), func(n *tfpb.NodeExecStats) bool { return n.GetTimelineLabel() == "y = Neg(x, ^x)" }) { // two parts run at once
		t.Errorf("no node has the label of y: %v", d)
	}

	r = run(3, &tfpb.ExecutorOpts{RecordCosts: true, RecordPartitionGraphs: true})
	if c := r.GetCostGraph().GetNode(); len(c) != 4 || c[1].GetComputeCost() != 8000 || c[3].GetId() != 3 ||
		c[3].GetInputInfo()[0].GetPrecedingNode() != 2 || c[3].GetControlInput()[0] != 2 || c[0].GetOutputInfo()[0].GetSize() != 12 {
		t.Errorf("costs %v", c)
	}
	if parts := r.GetPartitionGraph(); len(parts) != 2 || parts[0].GetNode()[1].GetName() != "y" || parts[0].GetVersions().GetProducer() != 1395 {
		t.Errorf("partition graphs %v", parts)
	}
	if r.GetStepStats() == nil {
		t.Error("record_costs has no step stats; TensorFlow's master reads the costs from both")
	}
}

// TestRecord: a recording has the kernels and transfers of all steps while it is under way.
func TestRecord(t *testing.T) {
	g := newGraphs(t, Options{})
	p, _ := observed(t)
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, p)
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan []*tfpb.LabeledStepStats)
	go func() {
		steps, release := g.Record(ctx)
		release()
		got <- steps
	}()
	for len(g.records.recordings()) == 0 {
		runtime.Gosched()
	}
	if _, err := g.RunGraph(t.Context(), running(s, handle, 5)); err != nil {
		t.Fatal(err)
	}
	g.Transferred(transfer(6, 8))
	stop()
	steps := <-got
	if len(steps) != 2 || steps[0].GetStepId() != 5 || len(steps[0].GetStepStats().GetDevStats()[0].GetNodeStats()) != 3 || steps[1].GetStepId() != 6 {
		t.Errorf("recorded %v", steps)
	}
	g.Transferred(transfer(7, 8))
	if n := len(g.records.recordings()); n != 0 {
		t.Errorf("%d recordings are left", n)
	}
}

// TestKernelsOfFunctionsHaveADevice: the nodes of a function body name none. They run on the device of
// their caller.
func TestKernelsOfFunctionsHaveADevice(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, func(_ context.Context, step *graph.Step) error {
		step.Observe(graph.NodeRun{Node: &graph.Node{Name: "inner", Op: "Neg"}, Start: began, End: began})
		return nil
	})
	req := running(s, handle, 1)
	req.ExecOpts = &tfpb.ExecutorOpts{RecordTimeline: true}
	r, err := g.RunGraph(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if d := r.GetStepStats().GetDevStats(); len(d) != 1 || d[0].GetDevice() != cluster.DeviceOf(here).String() {
		t.Errorf("the timeline has %v, want one kernel on %s", d, cluster.DeviceOf(here))
	}
}

// TestKernelsAreSampled: the kernels of the first step, and of one in sampleSteps, are counted by op.
func TestKernelsAreSampled(t *testing.T) {
	g := newGraphs(t, Options{})
	p, _ := observed(t)
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, p)
	for step := range int64(sampleSteps + 1) {
		if _, err := g.RunGraph(t.Context(), running(s, handle, step+1)); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]OpTime{}
	g.OpTimes(func(op string, t OpTime) { got[op] = t })
	if got["_Recv"] != (OpTime{2, 4 * time.Millisecond}) || got["Neg"] != (OpTime{4, 8 * time.Millisecond}) {
		t.Errorf("ops %v", got)
	}
}

// TestCallsByNameAreCountedAsOne: a node may call a function by its name, which a master chooses. The
// number of names that are counted is bounded all the same.
func TestCallsByNameAreCountedAsOne(t *testing.T) {
	g := newGraphs(t, Options{})
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, func(_ context.Context, step *graph.Step) error {
		for _, op := range []string{"f1", "f2", "Neg", "Merge", graph.SubgraphOp} {
			step.Observe(graph.NodeRun{Node: &graph.Node{Op: op}, Start: began, End: began.Add(time.Millisecond)})
		}
		return nil
	})
	if _, err := g.RunGraph(t.Context(), running(s, handle, 1)); err != nil { // the first step is sampled
		t.Fatal(err)
	}
	got := map[string]OpTime{}
	g.OpTimes(func(op string, t OpTime) { got[op] = t })
	one := OpTime{1, time.Millisecond}
	if want := map[string]OpTime{"function": {2, 2 * time.Millisecond}, "Neg": one, "Merge": one, graph.SubgraphOp: one}; !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// TestTracing: as in TensorFlow's worker; the text says what to use.
func TestTracing(t *testing.T) {
	g := newGraphs(t, Options{})
	_, err := g.Tracing(t.Context(), &tfpb.TracingRequest{})
	wantCode(t, err, status.Unimplemented, "tryst trace")
}

func giveBack(held []*tensor.Buffer) {
	for _, b := range held {
		b.Release()
	}
}

// TestRecordsAreReserved: records take memory that was reserved for them. Without more of it a recording keeps what it
// has, and a log forgets its oldest steps. A recording has a limit of its own, too.
func TestRecordsAreReserved(t *testing.T) {
	memory := tensortest.NewAllocator(t)
	memory.SetLimit(10 * reserveStep)
	long := &tfpb.NodeExecStats{TimelineLabel: strings.Repeat("x", reserveStep/2)}
	rec := newRecorder(recorderOptions{limit: 1000, memory: memory})
	for range 100 {
		rec.add(1, "d", long)
	}
	rec.add(1, "d", new(tfpb.NodeExecStats)) // later ones are dropped, too
	if in := memory.InUse(); rec.n < 15 || rec.n > 19 || in != 10*reserveStep {
		t.Errorf("a recording has %d records and %d bytes", rec.n, in)
	}
	_, release := rec.end()
	if memory.InUse() == 0 {
		t.Error("the memory was given back before the records were")
	}
	release()
	log := newRecorder(recorderOptions{limit: 1000, memory: memory, forgets: true})
	for step := range int64(100) {
		log.add(step, "d", long)
	}
	if len(log.order) < 15 || log.order[len(log.order)-1] != 99 {
		t.Errorf("a log has the steps %v", log.order)
	}
	stats, held := log.take(99)
	if giveBack(held); stats == nil {
		t.Error("the log has lost its last step")
	}
	log.clear()
	small := newRecorder(recorderOptions{limit: 1000, most: reserveStep, memory: memory})
	for range 100 {
		small.add(1, "d", long)
	}
	if small.n != 1 {
		t.Errorf("a recording of %d bytes has %d records of %d", reserveStep, small.n, len(long.GetTimelineLabel()))
	}
	small.clear()
	if in := memory.InUse(); in != 0 {
		t.Errorf("%d bytes are left", in)
	}
}

// TestStepsThatOutliveARecordingReserveNothing: a step that began during a recording reports its kernels after the
// recording has ended, when nobody takes them any more.
func TestStepsThatOutliveARecordingReserveNothing(t *testing.T) {
	memory := tensortest.NewAllocator(t)
	r := newRecords(memory, 0)
	rec, stop := r.start()
	stop()
	steps, release := rec.end()
	rec.add(1, "d", new(tfpb.NodeExecStats))
	release()
	r.close()
	r.log.add(1, "d", new(tfpb.NodeExecStats))
	if in := memory.InUse(); in != 0 || len(steps) != 0 {
		t.Errorf("%d bytes are left, of the steps %v", in, steps)
	}
}

// TestRecordsTakeNoMoreThanIsReserved compares what is reserved for records with the Go heap.
func TestRecordsTakeNoMoreThanIsReserved(t *testing.T) {
	v, err := tensor.FromSlice(tensor.Vector(3), []float32{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	node := &graph.Node{Name: "x", Op: "Neg", Def: &tfpb.NodeDef{Input: []string{"y", "z"}}}
	for name, outputs := range map[string][]graph.Value{"none": nil, "one": {{Tensor: v}}, "some": {{Tensor: v}, {Tensor: v}, {Tensor: v}, {Tensor: v}, {Tensor: v}}} {
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc) //nolint:gosec // small
		}
		before := heap()
		rec := newRecorder(recorderOptions{limit: 1 << 20, memory: tensor.Heap{}})
		for i := range int64(20_000) {
			rec.add(i%5000, "/job:worker", kernelStats(graph.NodeRun{Node: node, Outputs: outputs}))
		}
		if took := heap() - before; took > rec.bytes {
			t.Errorf("with outputs (%s) %d records take %d bytes, and %d are reserved", name, rec.n, took, rec.bytes)
		}
		rec.clear()
	}
}

// TestRecordsOfLargeNodesAreBounded: a node may have millions of inputs and outputs, and long texts.
func TestRecordsOfLargeNodesAreBounded(t *testing.T) {
	v, err := tensor.FromSlice(tensor.Vector(3), []float32{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	long := strings.Repeat("ä", 100_000)
	attrs := map[string]*tfpb.AttrValue{"tensor_name": {Value: &tfpb.AttrValue_S{S: []byte("x" + long)}}, "send_device": {Value: &tfpb.AttrValue_S{S: []byte(long)}}}
	for _, n := range []*graph.Node{
		{Name: "x", Op: "AddN", Def: &tfpb.NodeDef{Input: slices.Repeat([]string{"in"}, 100_000)}},
		{Name: "x", Op: "_Recv", Def: &tfpb.NodeDef{Attr: attrs}},
	} {
		s := kernelStats(graph.NodeRun{Node: n, Outputs: slices.Repeat([]graph.Value{{Tensor: v}}, 100_000)})
		if len(s.GetOutput()) != maxOutputs || len(s.GetTimelineLabel()) > 3*maxLabel || !strings.Contains(s.GetTimelineLabel(), "...") || !utf8.ValidString(s.GetTimelineLabel()) {
			t.Errorf("a record of %s has %d outputs and a label of %d bytes", n.Op, len(s.GetOutput()), len(s.GetTimelineLabel()))
		}
	}
}

// TestResponsesOfStepsHoldTheirMemory: what a response has of a step is reserved before it is copied, and until the
// response is written. Without room the step ends with an error.
func TestResponsesOfStepsHoldTheirMemory(t *testing.T) {
	const size = 1 << 20
	memory := tensortest.NewAllocator(t)
	g := newGraphs(t, Options{Allocator: memory})
	x, err := tensor.FromSlice(tensor.Vector(size/4), make([]float32, size/4))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	s := g.open(&tfpb.CreateWorkerSessionRequest{})
	handle := g.register(s, func(_ context.Context, step *graph.Step) error {
		return rendezvous.SendTensors(step.Rendezvous, []rendezvous.Key{mustKey(t, inside("x"))}, []*tensor.Tensor{x})
	})
	req := running(s, handle, 1)
	req.RecvKey = []string{inside("x")}
	held := new(transport.ResponseMemory)
	r, err := g.RunGraph(transport.WithResponseMemory(t.Context(), held), req)
	if err != nil {
		t.Fatal(err)
	}
	if in := memory.InUse(); len(r.GetRecv()) != 1 || in < 2*size {
		t.Errorf("the response has %d values, and %d bytes are reserved", len(r.GetRecv()), in)
	}
	held.Release()
	if in := memory.InUse(); in != 0 {
		t.Errorf("%d bytes are reserved after the response was written", in)
	}
	memory.SetLimit(size)
	req.StepId = 2
	if _, err := g.RunGraph(t.Context(), req); status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "the response: cannot allocate") {
		t.Errorf("without memory: %v", err)
	}
}
