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

// recorder keeps what ran in some steps: kernels and transfers. It holds at most limit records. It is
// safe for concurrent use.
type recorder struct {
	limit int
	// forgets is what happens at the limit: the oldest step goes. Otherwise the record is dropped.
	forgets bool

	mu    sync.Mutex // guards what follows
	steps map[int64]*stepRecord
	order []int64 // of steps, the oldest first
	n     int     // records in all steps
}

// stepRecord is what ran in one step, by device.
type stepRecord struct {
	devices map[string][]*tfpb.NodeExecStats
	n       int
}

func newRecorder(limit int, forgets bool) *recorder {
	return &recorder{limit: limit, forgets: forgets, steps: make(map[int64]*stepRecord)}
}

// add records something that ran on a device.
func (r *recorder) add(step int64, device string, stats *tfpb.NodeExecStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.n >= r.limit {
		if !r.forgets || len(r.order) == 0 || r.order[0] == step {
			return
		}
		r.n -= r.steps[r.order[0]].n
		delete(r.steps, r.order[0])
		r.order = r.order[1:] // a search would cost each transfer as much as there are steps
	}
	s := r.steps[step]
	if s == nil {
		s = &stepRecord{devices: make(map[string][]*tfpb.NodeExecStats)}
		r.steps[step] = s
		r.order = append(r.order, step)
	}
	s.devices[device] = append(s.devices[device], stats)
	s.n++
	r.n++
}

func (r *recorder) dropLocked(step int64) {
	if s := r.steps[step]; s != nil {
		r.n -= s.n
		delete(r.steps, step)
		r.order = slices.DeleteFunc(r.order, func(other int64) bool { return other == step })
	}
}

// take returns the records of a step, which it drops; nil when there are none.
func (r *recorder) take(step int64) *tfpb.StepStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.steps[step]
	r.dropLocked(step)
	return s.stats()
}

// all returns the records of all steps, the oldest first, and drops them.
func (r *recorder) all() (steps []*tfpb.LabeledStepStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range r.order {
		steps = append(steps, &tfpb.LabeledStepStats{StepId: step, StepStats: r.steps[step].stats()})
	}
	r.clearLocked()
	return steps
}

func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clearLocked()
}

func (r *recorder) clearLocked() {
	clear(r.steps)
	r.order, r.n = nil, 0
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
	for i, v := range run.Outputs {
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
	args := strings.Join(n.Def.GetInput(), ", ")
	switch n.Op {
	case "_Send", "_HostSend":
		args = n.Text("tensor_name") + " @" + n.Text("recv_device")
	case "_Recv", "_HostRecv":
		args = n.Text("tensor_name") + " @" + n.Text("send_device")
	}
	return n.Name + " = " + n.Op + "(" + args + ")"
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
