package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
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

// WriteChrome writes a trace of the steps.
func WriteChrome(w io.Writer, steps []*tfpb.LabeledStepStats) error {
	out := bufio.NewWriter(w)
	b := builder{pids: make(map[string]int), lanes: make(map[int][]float64)}
	for _, s := range steps {
		for _, d := range s.GetStepStats().GetDevStats() {
			for _, n := range d.GetNodeStats() {
				b.add(s.GetStepId(), d.GetDevice(), n)
			}
		}
	}
	fmt.Fprint(out, `{"displayTimeUnit":"ms","traceEvents":[`)
	for i, e := range b.finish() {
		if i > 0 {
			fmt.Fprint(out, ",")
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s", line)
	}
	fmt.Fprint(out, "\n]}\n")
	return out.Flush() // the error of any write
}

// builder collects the events of a trace.
type builder struct {
	pids   map[string]int // by the name of the process
	names  []string       // by pid
	lanes  map[int][]float64
	events []event
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
	e := event{Phase: "X", Name: opOf(n), Cat: "kernel", Args: args{Name: n.GetNodeName(), Label: n.GetTimelineLabel(), Step: step}}
	process := device
	if n.GetNodeName() == recvTensor {
		process, e.Cat = device+" receives", "transfer"
	}
	e.PID = b.pid(process)
	e.TS, e.Dur = times(n)
	if ready := float64(n.GetScheduledMicros()); ready > 0 {
		e.Args.Waited = max(0, e.TS-ready)
	}
	for _, o := range n.GetOutput() {
		e.Args.Bytes += o.GetTensorDescription().GetAllocationDescription().GetRequestedBytes()
	}
	b.events = append(b.events, e)
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

// finish returns the events in order of time, each in the first lane of its process that is free, and
// before them the names of the processes.
func (b *builder) finish() []event {
	slices.SortStableFunc(b.events, func(x, y event) int { return cmp.Compare(x.TS, y.TS) })
	all := make([]event, 0, len(b.names)+len(b.events))
	for pid, name := range b.names {
		all = append(all, event{Phase: "M", Name: "process_name", PID: pid, Args: args{Name: name}})
	}
	for _, e := range b.events {
		lanes := b.lanes[e.PID]
		e.TID = slices.IndexFunc(lanes, func(end float64) bool { return end <= e.TS })
		switch {
		case e.TID >= 0:
		case len(lanes) < maxLanes:
			e.TID = len(lanes)
			lanes = append(lanes, 0)
		default:
			e.TID = maxLanes - 1
		}
		lanes[e.TID] = e.TS + e.Dur
		b.lanes[e.PID] = lanes
		all = append(all, e)
	}
	return all
}
