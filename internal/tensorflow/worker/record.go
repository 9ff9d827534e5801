package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/transport"
)

// recorder keeps what ran in some steps: kernels and transfers. It holds at most limit records of most bytes, and
// reserves these bytes before it keeps a record. It is safe for concurrent use.
type recorder struct {
	recorderOptions

	mu    sync.Mutex // guards what follows
	steps map[int64]*stepRecord
	order []int64 // of steps, the oldest first
	n     int     // records in all steps
	bytes int64   // what they take
	held  []*tensor.Buffer
	ended bool // later records are dropped: one was, or the recording is over
}

// recorderOptions are the bounds of a recorder.
type recorderOptions struct {
	limit  int              // records
	most   int64            // bytes; 0: no limit but that of memory
	memory tensor.Allocator // reserves them
	// forgets is what happens at a limit: the oldest step goes. Otherwise the record is dropped.
	forgets bool
}

// stepRecord is what ran in one step, by device.
type stepRecord struct {
	devices map[string][]*tfpb.NodeExecStats
	n       int
	bytes   int64
}

func newRecorder(o recorderOptions) *recorder {
	return &recorder{recorderOptions: o, steps: make(map[int64]*stepRecord)}
}

// add records something that ran on a device.
func (r *recorder) add(step int64, device string, stats *tfpb.NodeExecStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	size := recordSize(stats)
	for !r.roomLocked(step, device, size) {
		if !r.forgets {
			r.ended = true
			return
		}
		if len(r.order) == 0 || r.order[0] == step {
			return
		}
		oldest := r.order[0]
		r.order = r.order[1:] // a search would cost each transfer as much as there are steps
		r.forgetLocked(oldest)
	}
	s := r.steps[step]
	if s == nil {
		s = &stepRecord{devices: make(map[string][]*tfpb.NodeExecStats)}
		r.steps[step] = s
		r.order = append(r.order, step)
	}
	size += r.newBytesLocked(step, device)
	s.devices[device] = append(s.devices[device], stats)
	s.n++
	r.n++
	s.bytes += size
	r.bytes += size
}

// newBytesLocked is what a record takes beside itself: for a step and for a device that have none yet.
func (r *recorder) newBytesLocked(step int64, device string) (n int64) {
	s := r.steps[step]
	if s == nil {
		n = stepBytes
	}
	if s == nil || s.devices[device] == nil {
		n += deviceBytes + int64(len(device))
	}
	return n
}

// roomLocked reports whether there is room for a record, and reserves it.
func (r *recorder) roomLocked(step int64, device string, size int64) bool {
	want := r.bytes + size + r.newBytesLocked(step, device)
	if r.n >= r.limit || r.most != 0 && want > r.most {
		return false
	}
	for want > r.reservedLocked() {
		b, err := tensor.Reserve(r.memory, reserveStep)
		if err != nil {
			return false
		}
		r.held = append(r.held, b)
	}
	return true
}

func (r *recorder) reservedLocked() int64 { return int64(len(r.held)) * reserveStep }

// forgetLocked drops the records of a step, but not from the order, and gives back what they took.
func (r *recorder) forgetLocked(step int64) {
	s := r.steps[step]
	if s == nil {
		return
	}
	r.n -= s.n
	r.bytes -= s.bytes
	delete(r.steps, step)
	for len(r.held) > 0 && r.reservedLocked()-reserveStep >= r.bytes {
		last := len(r.held) - 1
		r.held[last].Release()
		r.held = r.held[:last]
	}
}

// take returns the records of a step, which it drops, with what is reserved for them; nil when there are none. The
// caller releases the reservation.
func (r *recorder) take(step int64) (stats *tfpb.StepStats, held []*tensor.Buffer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.steps[step]
	if s == nil {
		return nil, nil
	}
	whole := int(s.bytes / reserveStep)
	held = slices.Clone(r.held[:whole])
	r.held = slices.Delete(r.held, 0, whole)
	if rest, err := tensor.Reserve(r.memory, s.bytes%reserveStep); err == nil { // otherwise less than a step is missing
		held = append(held, rest)
	}
	r.order = slices.DeleteFunc(r.order, func(other int64) bool { return other == step })
	r.forgetLocked(step)
	return s.stats(), held
}

// end returns the records of all steps, the oldest first, and keeps no later ones: a step that runs may still report
// some. The caller calls release when it needs them no more.
func (r *recorder) end() (steps []*tfpb.LabeledStepStats, release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range r.order {
		steps = append(steps, &tfpb.LabeledStepStats{StepId: step, StepStats: r.steps[step].stats()})
	}
	held := r.held
	r.held, r.ended = nil, true
	r.clearLocked()
	return steps, func() {
		for _, b := range held {
			b.Release()
		}
	}
}

func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clearLocked()
}

func (r *recorder) clearLocked() {
	clear(r.steps)
	for _, b := range r.held {
		b.Release()
	}
	r.order, r.n, r.bytes, r.held = nil, 0, 0, nil
}

// recordSize is what a record takes in bytes, and its event in a trace.
func recordSize(s *tfpb.NodeExecStats) int64 {
	n := recordBytes + int64(len(s.GetNodeName())+len(s.GetTimelineLabel()))
	for _, o := range s.GetOutput() {
		n += outputBytes + dimBytes*int64(len(o.GetTensorDescription().GetShape().GetDim()))
	}
	return n
}

// stats returns the records as TensorFlow's message; nil when there are none.
func (s *stepRecord) stats() *tfpb.StepStats {
	if s == nil {
		return nil
	}
	stats := new(tfpb.StepStats)
	for _, device := range slices.Sorted(maps.Keys(s.devices)) {
		stats.DevStats = append(stats.DevStats, &tfpb.DeviceStepStats{Device: device, NodeStats: s.devices[device]})
	}
	return stats
}

// kernelStats is the record of a kernel, as TensorFlow writes it.
func kernelStats(run graph.NodeRun) *tfpb.NodeExecStats {
	s := span(run.Start, run.End)
	s.NodeName, s.TimelineLabel = run.Node.Name, kernelLabel(run.Node)
	s.ScheduledMicros, s.ScheduledNanos = run.Scheduled.UnixMicro(), run.Scheduled.UnixNano()
	for i, v := range run.Outputs[:min(len(run.Outputs), maxOutputs)] {
		v.Look(func(t *tensor.Tensor) {
			if t != nil {
				s.Output = append(s.Output, output(i, t.DType(), tensorproto.ShapeToProto(t.Shape()), t.Size()))
			}
		})
	}
	return s
}

// span is a record of something that began at start and ended at end.
func span(start, end time.Time) *tfpb.NodeExecStats {
	took := max(0, end.Sub(start))
	return &tfpb.NodeExecStats{
		AllStartMicros: start.UnixMicro(), OpEndRelMicros: took.Microseconds(), AllEndRelMicros: took.Microseconds(),
		AllStartNanos: start.UnixNano(), OpEndRelNanos: took.Nanoseconds(), AllEndRelNanos: took.Nanoseconds(),
	}
}

func output(slot int, dtype tensor.DType, shape *tfpb.TensorShapeProto, bytes int64) *tfpb.NodeOutput {
	return &tfpb.NodeOutput{Slot: int32(slot), TensorDescription: &tfpb.TensorDescription{ //nolint:gosec // an index of an output
		Dtype: tensorproto.DTypeToProto(dtype), Shape: shape,
		AllocationDescription: &tfpb.AllocationDescription{RequestedBytes: bytes, AllocatedBytes: bytes, AllocatorName: allocatorName},
	}}
}

// allocatorName is the name that TensorFlow's timelines show for the memory of CPUs.
const allocatorName = "cpu"

// kernelLabel is the text that a timeline shows for a node: NAME = OP(INPUTS), and the tensor with the
// other device for a node that sends or receives.
func kernelLabel(n *graph.Node) string {
	args := firstOf(n.Def.GetInput())
	switch n.Op {
	case "_Send", "_HostSend":
		args = cut(n.Text("tensor_name")) + " @" + cut(n.Text("recv_device"))
	case "_Recv", "_HostRecv":
		args = cut(n.Text("tensor_name")) + " @" + cut(n.Text("send_device"))
	}
	return n.Name + " = " + n.Op + "(" + args + ")"
}

// firstOf joins the first inputs of a node: a graph may have a node with millions.
func firstOf(inputs []string) string {
	size := 0
	for i, in := range inputs {
		if size += len(in); size > maxLabel {
			return strings.Join(append(slices.Clone(inputs[:i]), "..."), ", ")
		}
	}
	return strings.Join(inputs, ", ")
}

// cut returns the beginning of a long text.
func cut(s string) string {
	if len(s) <= maxLabel {
		return s
	}
	return strings.ToValidUTF8(s[:maxLabel], "") + "..."
}

// transferStats is the record of a transfer, as TensorFlow's worker writes it.
func transferStats(t transport.Transfer) *tfpb.NodeExecStats {
	s := span(t.Start, t.End)
	s.NodeName, s.TimelineLabel = "RecvTensor", transferLabel(t)
	// TensorFlow, too, does not know the type of what a transfer carried.
	s.Output = []*tfpb.NodeOutput{output(0, tensor.Float32, nil, t.Bytes)}
	return s
}

// transferLabel is TensorFlow's text: [SIZE] [RATE] NAME from DEVICE to DEVICE.
func transferLabel(t transport.Transfer) string {
	const mib = 1 << 20
	size := fmt.Sprintf("[%dB] ", t.Bytes)
	if float64(t.Bytes) >= 0.1*mib {
		size = fmt.Sprintf("[%.1fMB] ", float64(t.Bytes)/mib)
	}
	micros := max(1, t.End.Sub(t.Start).Microseconds())
	rate := 8 * float64(t.Bytes) / float64(micros)
	text := fmt.Sprintf("[%fMb/s] ", rate)
	if rate >= 1000 {
		text = fmt.Sprintf("[%.1fGb/s] ", rate/1000)
	}
	return size + text + t.Tensor + " from " + t.Source.String() + " to " + t.Destination.String()
}
