//go:build interop

package tensorflow_test

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestCacheRPCResponse: with cache_rpc_response on both sides, each response requires
// MarkRecvFinished, after which it is dropped. A repeated request id gets the same response again.
func TestCacheRPCResponse(t *testing.T) {
	bed := start(t, options{
		workerArgs: []string{"--cache-rpc-response"},
		config:     func(c *server.Config) { c.GRPC.CacheRPCResponse = true },
	})
	x := slice[float32](t, 1, 2, 3)
	t.Run("there and back", func(t *testing.T) {
		bed := bed.in(t)
		s := bed.run(bed.echo(tensor.Float32))
		bed.send(s, "there", x)
		bed.wantValue(s, "back", x)
		bed.until("TensorFlow's MarkRecvFinished", func() bool {
			return bed.metric("tryst_rpcs_total", "/tensorflow.WorkerService/MarkRecvFinished") == 1
		})
		if n := bed.metric("tryst_cached_responses", ""); n != 0 {
			t.Errorf("%v responses are kept, want none", n)
		}
		s.end()
	})
	t.Run("requested again", func(t *testing.T) {
		bed := bed.in(t)
		g := bed.graph()
		g.send("x", g.Const("c", x), x.DType())
		s := bed.run(g)
		bed.send(s, "x", x)
		var responses [][]byte
		for _, from := range []struct {
			task cluster.Task
			key  rendezvous.Key
		}{{tfTask, bed.toTryst("x")}, {bed.server.Task(), bed.toTF("x")}} {
			for range 2 {
				responses = append(responses, bed.captureID(from.task, s, from.key, 4711))
			}
		}
		for _, a := range responses[1:] {
			if !bytes.Equal(a, responses[0]) {
				t.Errorf("responses differ (TensorFlow twice, Tryst twice):\n%x", responses)
				break
			}
		}
		if requireAck := []byte{0x28, 1}; !bytes.Contains(responses[0], requireAck) {
			t.Errorf("response %x has no require_ack", responses[0])
		}
		s.end()
		if n := bed.metric("tryst_cached_responses", ""); n != 0 {
			t.Errorf("%v responses are kept after their step, want none", n)
		}
	})
}
