package bench

import (
	"errors"
	"math"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Row is one line of the results: what ours did beside one baseline, or what
// the baseline itself did.
type Row struct {
	// Name is the benchmark's.
	Name string `json:"name"`
	// Transport is how the bytes travel, or "local" where nothing leaves the process; empty
	// in the baseline's own row.
	Transport string `json:"transport"`
	// Provider is the provider of that transport; empty for gRPC, which has none.
	Provider string `json:"provider"`
	// Size is the content of one tensor in bytes. In the rows on waiting keys
	// it is the memory of one of them.
	Size int64 `json:"size"`
	// Inflight is how many operations are under way at once.
	Inflight int `json:"inflight"`
	// Count is how many operations were measured, in Seconds altogether.
	Count   int64   `json:"count"`
	Seconds float64 `json:"seconds"`
	// GBytesPerSecond is Size * Count / Seconds, in 10^9 bytes; 0 where
	// nothing is moved.
	GBytesPerSecond float64 `json:"gbytes_per_second"`
	// P50, P90 and P99 are the median, the 90th and the 99th percentile of one operation,
	// in microseconds.
	P50 float64 `json:"p50_us"`
	P90 float64 `json:"p90_us"`
	P99 float64 `json:"p99_us"`
	// AllocsPerOp is how often one operation allocates on the heap of this
	// process.
	AllocsPerOp float64 `json:"allocs_per_op"`
	// Baseline is what Ratio is to, or whose own row this is.
	Baseline string `json:"baseline"`
	// Ratio is the median of the pairs, and RatioQ1 and RatioQ3 are their
	// quartiles. In a baseline's own row they are those to itself; 0 without a
	// baseline.
	Ratio   float64 `json:"ratio"`
	RatioQ1 float64 `json:"ratio_q1"`
	RatioQ3 float64 `json:"ratio_q3"`
	// Better says which ratios are better.
	Better Better `json:"better"`
	// Target is what Ratio should reach; 0 for none.
	Target float64 `json:"target"`
	// OK is false when the target is missed by more than noise.
	OK bool `json:"ok"`
	// Changed is the share of the elements that differ from the version before, in rows of versions.
	Changed *float64 `json:"changed,omitempty"`
	// Load is the machine's load average before the first benchmark; -1 where the
	// system does not report one.
	Load float64 `json:"load"`
	// Processor is the model of the machine's processor, and how many of them the system has.
	Processor string `json:"processor"`

	file   string // where it is saved, without .jsonl
	noise  bool   // the target is missed by no more than noise
	itself bool   // the row is the baseline's own
}

// Better is the direction in which a ratio improves.
type Better string

// The two directions.
const (
	Higher Better = "higher"
	Lower  Better = "lower"
)

// The baselines.
const (
	PassThrough = "grpc-passthrough" // a bare gRPC call with the content as its message
	Generated   = "grpc-generated"   // the same call with the generated RecvTensorResponse
	LockedMap   = "locked-map"       // a map under a lock
	OwnGRPC     = "grpc-transport"   // the same receive over the project's gRPC transport
	RawTCP      = "raw-tcp"          // a TCP connection and nothing above it
	RawTLS      = "raw-tls"          // the same over crypto/tls
	UnixSocket  = "unix-socket"      // the same over a unix socket
	SpinTCP     = "raw-tcp-spin"     // RawTCP, both of whose sides spin
	SpinUnix    = "unix-socket-spin" // the same over a unix socket
	MemfdCopy   = "memfd-copy"       // copies out of memory of another process, one at a time
	MemfdCopies = "memfd-copies"     // the same, as many at once as receives
	UDPLoop     = "udp-loop"         // UDP sockets, one CRC for each packet and nothing above it
	OneCore     = "one-core"         // a processor that does nothing else
	OwnMedian   = "own-p50"          // the median of the same calls, beside their 99th percentile
	None        = "none"
)

// rowOf returns the row of an outcome.
func rowOf(name string, o *outcome) Row {
	return Row{
		Name: name, Count: o.count, Seconds: o.time.Seconds(),
		P50: microseconds(o.latencies.percentile(0.50)), P90: microseconds(o.latencies.percentile(0.90)), P99: microseconds(o.latencies.percentile(0.99)),
		AllocsPerOp: o.allocs,
		Ratio:       o.ratio.median, RatioQ1: o.ratio.q1, RatioQ3: o.ratio.q3,
		Better: Higher, Baseline: None, OK: true,
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// moved says that each operation moved size bytes.
func (r *Row) moved(size int64) {
	r.Size = size
	if r.Seconds > 0 {
		r.GBytesPerSecond = float64(size) * float64(r.Count) / r.Seconds / 1e9
	}
}

// judge holds the ratio against the target. deviation is how far the baseline
// is from itself.
func (r *Row) judge(better Better, target, deviation float64) {
	r.Better, r.Target = better, target
	if target == 0 {
		return
	}
	missed, far := r.Ratio < target, r.Ratio < target*(1-deviation)
	if better == Lower {
		missed, far = r.Ratio > target, r.Ratio > target*(1+deviation)
	}
	if math.IsNaN(r.Ratio) {
		missed, far = true, true
	}
	r.noise, r.OK = missed && !far, !far
}

// Missed returns an error that names the rows whose targets are missed by more
// than noise, or nil.
func Missed(rows []Row) error {
	var missed []error
	for i := range rows {
		if !rows[i].OK {
			missed = append(missed, status.New(status.FailedPrecondition, rows[i].verdict()))
		}
	}
	return errors.Join(missed...)
}
