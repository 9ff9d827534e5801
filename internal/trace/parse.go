package trace

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// stepStatsField is the number of step_stats in RunMetadata, and of dev_stats in StepStats.
const stepStatsField = 1

// Parse returns the step stats in a serialised RunMetadata, as a client of TensorFlow gets it with
// FULL_TRACE, or in a serialised StepStats.
func Parse(b []byte) (*tfpb.StepStats, error) {
	if s := ofRunMetadata(b); s != nil {
		return s, nil
	}
	s := new(tfpb.StepStats)
	if proto.Unmarshal(b, s) != nil || !valid(s) {
		return nil, status.New(status.InvalidArgument, "it is neither a RunMetadata nor a StepStats of TensorFlow; write run_metadata.SerializeToString() to a file")
	}
	return s, nil
}

// ofRunMetadata returns the step stats of a RunMetadata; nil if b is none.
func ofRunMetadata(b []byte) *tfpb.StepStats {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if number == stepStatsField && kind == protowire.BytesType {
			field, n := protowire.ConsumeBytes(b)
			s := new(tfpb.StepStats)
			if n < 0 || proto.Unmarshal(field, s) != nil || !valid(s) {
				return nil
			}
			return s
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil
		}
		b = b[n:]
	}
	return nil
}

// valid reports whether each device has a name, and there is one.
func valid(s *tfpb.StepStats) bool {
	for _, d := range s.GetDevStats() {
		if d.GetDevice() == "" {
			return false
		}
	}
	return len(s.GetDevStats()) > 0
}
