package grpctransport

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// holdingWorker reserves memory for the responses of its graphs.
type holdingWorker struct {
	transport.Worker
	memory *tensortest.Allocator
	size   int
	err    error
}

func (w holdingWorker) RunGraph(ctx context.Context, _ *tfpb.RunGraphRequest) (*tfpb.RunGraphResponse, error) {
	b, err := w.memory.Reserve(int64(w.size))
	if err != nil {
		return nil, err
	}
	transport.HoldForResponse(ctx, b)
	if w.err != nil {
		return nil, w.err
	}
	resp := new(tfpb.RunGraphResponse)
	_ = proto.Size(resp) // keeps the size in resp
	resp.Recv = []*tfpb.NamedTensorProto{{Tensor: &tfpb.TensorProto{TensorContent: make([]byte, w.size)}}}
	return resp, nil
}

// TestResponsesOfGraphsHoldMemoryUntilTheyAreRead: and until their client has gone. A response that is small, or an
// error, holds none.
func TestResponsesOfGraphsHoldMemoryUntilTheyAreRead(t *testing.T) {
	const size = 1 << 20
	for name, tt := range map[string]struct {
		size  int
		err   error
		holds int64
		read  bool
	}{
		"that nobody reads": {size, nil, 3 * size, false},
		"that are read":     {size, nil, 3 * size, true},
		"small":             {100, nil, 0, false},
		"an error":          {size, errors.New("no"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			memory := tensortest.NewAllocator(t)
			n := new(testCluster).start(t, 0, nodeOptions{wrap: func(w transport.Worker) transport.Worker {
				return holdingWorker{w, memory, tt.size, tt.err}
			}})
			c := newRawClient(t, n.address)
			for stream := uint32(1); stream < 7; stream += 2 {
				c.whole(stream, tensorflowgrpc.WorkerService_RunGraph_FullMethodName)
			}
			mustHold(t, memory, tt.holds)
			if tt.read {
				for stream := uint32(1); stream < 7; stream += 2 {
					c.reads(stream, 2*size)
				}
				go func() {
					for {
						if _, err := c.ReadFrame(); err != nil {
							return
						}
					}
				}()
			} else {
				c.must(c.Close())
			}
			mustHold(t, memory, 0)
		})
	}
}

// mustHold waits until so many bytes are reserved.
func mustHold(t *testing.T, memory *tensortest.Allocator, want int64) {
	t.Helper()
	for end := time.Now().Add(waitLimit); memory.InUse() != want; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are reserved, want %d", memory.InUse(), want)
		}
	}
}
