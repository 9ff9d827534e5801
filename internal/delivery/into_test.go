package delivery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestRequesterGivesTheMemoryBackFirst: when the callback of a receive into the receiver's own
// memory runs, the transfer has no reference to it any more, unless an attempt is still under
// way; then it has none when that has ended.
func TestRequesterGivesTheMemoryBackFirst(t *testing.T) {
	for _, end := range []string{"value", "unreached", "cancel before the request", "cancel", "close", "after close", "in use"} {
		t.Run(end, func(t *testing.T) {
			bubble(t, memOptions{}, func(t *testing.T, p *pair) {
				k := key(t, "k")
				dst, err := tensor.Allocate(tensor.Heap{}, tensor.Uint8, tensor.Vector(10))
				if err != nil {
					t.Fatal(err)
				}
				into, err := rendezvous.NewInto(dst)
				if err != nil {
					t.Fatal(err)
				}
				switch end {
				case "unreached", "cancel before the request":
					p.set(func() { p.down = true })
				case "after close":
					p.close()
				case "in use":
					dst.Retain()
				}
				type outcome struct {
					unique bool
					err    error
				}
				c := make(chan outcome, 1)
				x := p.RecvFromRemoteAsync(1, k, into.Args(), func(v rendezvous.Value, _ rendezvous.Args, err error) {
					if err == nil {
						v.Tensor.Release()
					}
					c <- outcome{dst.Buffer().Unique(), err}
				})
				synctest.Wait()
				want := status.Cancelled
				switch end {
				case "value":
					p.send(k, 'a')
					want = status.OK
				case "cancel", "cancel before the request":
					x.Cancel(status.New(status.Cancelled, "enough"))
				case "close":
					p.close()
				case "unreached":
					want = status.Unavailable
				case "in use":
					want = status.FailedPrecondition
				}
				o := <-c
				if status.CodeOf(o.err) != want {
					t.Errorf("ended with %v, want %v", o.err, want)
				}
				if end == "in use" {
					dst.Release()
				} else if underWay := end == "cancel" || end == "close"; !o.unique && !underWay {
					t.Error("the callback ran while the transfer had a reference")
				}
				time.Sleep(time.Second)
				if !dst.Buffer().Unique() {
					t.Error("a reference is left")
				}
			})
		})
	}
}
