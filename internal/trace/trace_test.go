package trace

import (
	"bytes"
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// stats has two kernels that overlap, one after them, and a transfer.
func stats() *tfpb.StepStats {
	node := func(name, label string, start, took int64) *tfpb.NodeExecStats {
		return &tfpb.NodeExecStats{NodeName: name, TimelineLabel: label, AllStartMicros: start, AllEndRelMicros: took, ScheduledMicros: start - 2}
	}
	return &tfpb.StepStats{DevStats: []*tfpb.DeviceStepStats{{Device: "/job:ps/replica:0/task:0/device:CPU:0", NodeStats: []*tfpb.NodeExecStats{
		node("later", "later = Add(a, b)", 30, 5),
		node("a", "a = MatMul(x, y)", 10, 20),
		node("b", "b = _Recv(edge_1 @/job:chief)", 15, 10),
		node("RecvTensor", "[8B] [1Mb/s] edge_1 from /job:chief to /job:ps", 12, 12),
	}}}}
}

// TestWriteChrome: each device is a process with its receives beside it, what overlaps is in lanes of
// its own, and an event has its op, times and label.
func TestWriteChrome(t *testing.T) {
	var b bytes.Buffer
	if err := WriteChrome(&b, []*tfpb.LabeledStepStats{{StepId: 7, StepStats: stats()}}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []struct {
			Ph, Name string
			PID, TID int
			TS, Dur  float64
			Args     struct {
				Name  string
				Label string
				Step  int
				Wait  float64 `json:"waited_us"`
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	type row struct {
		ph, name string
		pid, tid int
		ts, dur  float64
		arg      string
	}
	want := []row{
		{"M", "process_name", 0, 0, 0, 0, "/job:ps/replica:0/task:0/device:CPU:0"},
		{"M", "process_name", 1, 0, 0, 0, "/job:ps/replica:0/task:0/device:CPU:0 receives"},
		{"X", "MatMul", 0, 0, 10, 20, "a"},
		{"X", "RecvTensor", 1, 0, 12, 12, "RecvTensor"},
		{"X", "_Recv", 0, 1, 15, 10, "b"},
		{"X", "Add", 0, 0, 30, 5, "later"},
	}
	if len(got.TraceEvents) != len(want) {
		t.Fatalf("%s", b.String())
	}
	for i, e := range got.TraceEvents {
		if is := (row{e.Ph, e.Name, e.PID, e.TID, e.TS, e.Dur, e.Args.Name}); is != want[i] {
			t.Errorf("event %d is %v, want %v", i, is, want[i])
		}
		if e.Ph == "X" && (e.Args.Step != 7 || e.Args.Wait != 2 || e.Args.Label == "") {
			t.Errorf("event %d has %+v", i, e.Args)
		}
	}
}

// TestEmptyTrace: a trace without steps is valid, too.
func TestEmptyTrace(t *testing.T) {
	var b bytes.Buffer
	if err := WriteChrome(&b, nil); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestParse: a file may have a RunMetadata or a StepStats; anything else is refused.
func TestParse(t *testing.T) {
	plain, err := proto.Marshal(stats())
	if err != nil {
		t.Fatal(err)
	}
	metadata := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte("costs"))
	metadata = protowire.AppendBytes(protowire.AppendTag(metadata, stepStatsField, protowire.BytesType), plain)
	for name, b := range map[string][]byte{"StepStats": plain, "RunMetadata": metadata} {
		if s, err := Parse(b); err != nil || !proto.Equal(s, stats()) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	for _, b := range [][]byte{nil, []byte("text"), metadata[:10], plain[:9], {0x0a, 0}} {
		if _, err := Parse(b); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// FuzzParse: no file makes Parse or WriteChrome panic.
func FuzzParse(f *testing.F) {
	plain, err := proto.Marshal(stats())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add(protowire.AppendBytes(protowire.AppendTag(nil, stepStatsField, protowire.BytesType), plain))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteChrome(&out, []*tfpb.LabeledStepStats{{StepStats: s}}); err != nil || !json.Valid(out.Bytes()) {
			t.Errorf("%v: %s", err, out.String())
		}
	})
}
