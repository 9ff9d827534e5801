package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// recvTensor is the name of the nodes that stand for transfers.
const recvTensor = "RecvTensor"

// event is one event of Chrome's trace format. Times are microseconds.
type event struct {
	Phase string  `json:"ph"` // X: something with a duration; M: the name of a process
	Name  string  `json:"name"`
	Cat   string  `json:"cat,omitempty"`
	PID   int     `json:"pid"`
	TID   int     `json:"tid"`
	TS    float64 `json:"ts"`
	Dur   float64 `json:"dur"`
	Args  args    `json:"args"`
}

// args are the details that a viewer shows for an event.
type args struct {
	Name  string `json:"name"`
	Label string `json:"label,omitempty"`
	Step  int64  `json:"step,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	// Waited is the time from when the node was ready to its start, in microseconds.
	Waited float64 `json:"waited_us,omitempty"`
}

// WriteChrome writes a trace of the steps. Beside them it holds a reference for each node, and one event at a time.
func WriteChrome(w io.Writer, steps []*tfpb.LabeledStepStats) error {
	out := bufio.NewWriter(w)
	b := builder{pids: make(map[string]int), lanes: make(map[int][]float64), nodes: make([]node, 0, count(steps))}
	for _, s := range steps {
		for _, d := range s.GetStepStats().GetDevStats() {
			for _, n := range d.GetNodeStats() {
				b.add(s.GetStepId(), d.GetDevice(), n)
			}
		}
	}
	fmt.Fprint(out, `{"displayTimeUnit":"ms","traceEvents":[`)
	before := "\n"
	for e := range b.events() {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s%s", before, line); err != nil {
			return err
		}
		before = ",\n"
	}
	fmt.Fprint(out, "\n]}\n")
	return out.Flush() // the error of any write
}

// count returns how many nodes ran in the steps.
func count(steps []*tfpb.LabeledStepStats) (n int) {
	for _, s := range steps {
		for _, d := range s.GetStepStats().GetDevStats() {
			n += len(d.GetNodeStats())
		}
	}
	return n
}

// node is what ran, in a step and a process.
type node struct {
	*tfpb.NodeExecStats
	step int64
	pid  int
}

// builder collects the nodes of a trace.
type builder struct {
	pids  map[string]int // by the name of the process
	names []string       // by pid
	lanes map[int][]float64
	nodes []node
}

func (b *builder) pid(process string) int {
	pid, ok := b.pids[process]
	if !ok {
		pid = len(b.names)
		b.pids[process] = pid
		b.names = append(b.names, process)
	}
	return pid
}

func (b *builder) add(step int64, device string, n *tfpb.NodeExecStats) {
	process := device
	if n.GetNodeName() == recvTensor {
		process = device + " receives"
	}
	b.nodes = append(b.nodes, node{n, step, b.pid(process)})
}

// eventOf returns the event of a node, without its lane.
func eventOf(n node) event {
	e := event{
		Phase: "X", Name: opOf(n.NodeExecStats), Cat: "kernel", PID: n.pid,
		Args: args{Name: n.GetNodeName(), Label: n.GetTimelineLabel(), Step: n.step},
	}
	if n.GetNodeName() == recvTensor {
		e.Cat = "transfer"
	}
	e.TS, e.Dur = times(n.NodeExecStats)
	if ready := float64(n.GetScheduledMicros()); ready > 0 {
		e.Args.Waited = max(0, e.TS-ready)
	}
	for _, o := range n.GetOutput() {
		e.Args.Bytes += o.GetTensorDescription().GetAllocationDescription().GetRequestedBytes()
	}
	return e
}

// times returns when a node began and how long it took. Workers of earlier releases have microseconds
// only.
func times(n *tfpb.NodeExecStats) (start, took float64) {
	if n.GetAllStartNanos() != 0 {
		return float64(n.GetAllStartNanos()) / 1000, float64(n.GetAllEndRelNanos()) / 1000
	}
	return float64(n.GetAllStartMicros()), float64(n.GetAllEndRelMicros())
}

// opOf returns the op of a node, which is in its label: NAME = OP(INPUTS).
func opOf(n *tfpb.NodeExecStats) string {
	_, text, ok := strings.Cut(n.GetTimelineLabel(), " = ")
	op, _, call := strings.Cut(text, "(")
	if !ok || !call || op == "" {
		return n.GetNodeName()
	}
	return op
}

// events yields the events in order of time, each in the first lane of its process that is free, and before them the
// names of the processes.
func (b *builder) events() iter.Seq[event] {
	slices.SortStableFunc(b.nodes, func(x, y node) int {
		xs, _ := times(x.NodeExecStats)
		ys, _ := times(y.NodeExecStats)
		return cmp.Compare(xs, ys)
	})
	return func(yield func(event) bool) {
		for pid, name := range b.names {
			if !yield(event{Phase: "M", Name: "process_name", PID: pid, Args: args{Name: name}}) {
				return
			}
		}
		for _, n := range b.nodes {
			e := eventOf(n)
			e.TID = b.lane(e)
			if !yield(e) {
				return
			}
		}
	}
}

// lane returns the lane of an event.
func (b *builder) lane(e event) int {
	lanes := b.lanes[e.PID]
	lane := slices.IndexFunc(lanes, func(end float64) bool { return end <= e.TS })
	switch {
	case lane >= 0:
	case len(lanes) < maxLanes:
		lane = len(lanes)
		lanes = append(lanes, 0)
	default:
		lane = maxLanes - 1
	}
	lanes[lane] = e.TS + e.Dur
	b.lanes[e.PID] = lanes
	return lane
}
