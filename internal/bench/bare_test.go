package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// TestBareBaselines run in two processes of their own, over each way.
func TestBareBaselines(t *testing.T) {
	s := &suite{Options: smoke(t)}
	b, ctx, err := s.startBare(t.Context(), []int64{8, 100_000})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	ways := []bareRun{
		{Baseline: RawTCP, Conns: 1, Inflight: 1, Size: 8, Median: true},
		{Baseline: RawTCP, Conns: 2, Inflight: 4, Size: 100_000},
		{Baseline: RawTLS, Conns: 2, Inflight: 4, Size: 100_000},
		{Baseline: SpinTCP, Conns: 1, Inflight: 1, Size: 8, Median: true},
		{Baseline: SpinUnix, Conns: 1, Inflight: 1, Size: 100_000, Median: true},
		{Baseline: UnixSocket, Conns: 1, Inflight: 1, Size: 8, Median: true, Pause: time.Millisecond},
	}
	if b.has(MemfdCopy) {
		ways = append(ways,
			bareRun{Baseline: MemfdCopy, Inflight: 1, Buffers: 4, Size: 100_000}, bareRun{Baseline: MemfdCopy, Inflight: 3, Buffers: 4, Size: 100_000})
	}
	for _, w := range ways {
		for range 2 {
			r, err := b.side(w)(ctx, 2*time.Millisecond)
			if err != nil {
				t.Fatalf("%+v: %v", w, err)
			}
			if r.count < 1 || r.score <= 0 || r.latencies.count != r.count || !r.counted {
				t.Errorf("%+v: %d operations, %d of them timed, the score is %v", w, r.count, r.latencies.count, r.score)
			}
		}
	}
	for _, w := range []bareRun{
		{Baseline: "pigeon", Conns: 1, Inflight: 1, Size: 8},
		{Baseline: RawTCP, Inflight: 1, Size: 8},
		{Baseline: RawTCP, Conns: 1, Inflight: 1, Size: 9}, // there is no such tensor
		{Baseline: MemfdCopy, Inflight: 1, Buffers: 1, Size: 9},
	} {
		if _, err := b.side(w)(ctx, time.Millisecond); err == nil {
			t.Errorf("%+v: no error", w)
		}
	}
	if r, err := b.side(ways[0])(ctx, time.Millisecond); err != nil || r.count < 1 {
		t.Errorf("after these: %d operations, %v", r.count, err)
	}
}

// TestBareProcessLeavesNoSocket in the file system when its input ends.
func TestBareProcessLeavesNoSocket(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	if err := Serve(t.Context(), strings.NewReader(`{"sizes":[8,8,0],"bare":{}}`), &out); err != nil {
		t.Fatal(err)
	}
	var h hello
	if err := json.Unmarshal(out.Bytes(), &h); err != nil || h.Bare == nil || h.Bare.TCP == "" || h.Bare.Unix == "" || h.Bare.TLS == "" || h.Server != "" {
		t.Errorf("it said %s: %v", &out, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left in the directory for temporary files: %v, %v", left, err)
	}
	if err := Serve(t.Context(), strings.NewReader(`{"bare":{"from":{}}}`), &out); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("without a certificate: %v", err)
	}
}
