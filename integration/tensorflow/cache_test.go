//go:build interop

package tensorflow_test

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestCacheRPCResponse: with cache_rpc_response on both sides each answer asks
// for MarkRecvFinished, which lets it go, and a request id that comes again is
// answered again, with the same bytes.
func TestCacheRPCResponse(t *testing.T) {
	w := start(t, options{
		workerArgs: []string{"--cache-rpc-response"},
		config:     func(c *config.Config) { c.CacheRPCResponse = true },
	})
	x := slice[float32](t, 1, 2, 3)
	t.Run("there and back", func(t *testing.T) {
		w := w.in(t)
		s := w.run(w.echo(tensor.Float32))
		w.send(s, "there", x)
		w.wantValue(s, "back", x)
		w.until("TensorFlow's MarkRecvFinished", func() bool {
			return w.metric("tryst_rpcs_total", "/tensorflow.WorkerService/MarkRecvFinished") == 1
		})
		if n := w.metric("tryst_cached_responses", ""); n != 0 {
			t.Errorf("%v answers are kept", n)
		}
		s.end()
	})
	t.Run("asked again", func(t *testing.T) {
		w := w.in(t)
		g := w.graph()
		g.send("x", g.constant("c", x), x.DType())
		s := w.run(g)
		w.send(s, "x", x)
		var answers [][]byte
		for _, from := range []struct {
			task cluster.Task
			key  rendezvous.Key
		}{{tfTask, w.toTryst("x")}, {w.server.Task(), w.toTF("x")}} {
			for range 2 {
				answers = append(answers, w.captureID(from.task, s, from.key, 4711))
			}
		}
		for _, a := range answers[1:] {
			if !bytes.Equal(a, answers[0]) {
				t.Errorf("TensorFlow twice, Tryst twice:\n%x", answers)
				break
			}
		}
		if requireAck := []byte{0x28, 1}; !bytes.Contains(answers[0], requireAck) {
			t.Errorf("no require_ack in %x", answers[0])
		}
		s.end()
		if n := w.metric("tryst_cached_responses", ""); n != 0 {
			t.Errorf("%v answers are kept beyond their step", n)
		}
	})
}
