package delivery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
)

// TestArrivalCountsAllAttempts: the record of a value counts each request for it, also those to
// an earlier process of the peer, and lasts from the first request to the value.
func TestArrivalCountsAllAttempts(t *testing.T) {
	const name, delay = "memory", time.Second
	for _, c := range []struct {
		name   string
		change func(p *memPeer) // before the receive
		want   int
	}{
		{"the first brings it", func(*memPeer) {}, 1},
		{"one is lost on its way", func(p *memPeer) {
			p.fault = func(a *transport.Receive) fault {
				if a.Attempt == 1 {
					return faultBefore
				}
				return faultNone
			}
		}, 2},
		{"the response is lost twice", func(p *memPeer) {
			p.fault = func(a *transport.Receive) fault {
				if a.Attempt < 3 {
					return faultAfter
				}
				return faultNone
			}
		}, 3},
		{"the peer is another process", func(p *memPeer) { p.incarnation++ }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, memOptions{}, func(t *testing.T, p *pair) {
				p.send(key(t, "before"), 'a') // the peer is known when the receive begins
				p.wantValue(p.begin(t.Context(), key(t, "before")), 'a')
				p.set(func() { p.transport, p.delay = name, delay; c.change(p.memPeer) })
				k := key(t, "k")
				begun := time.Now()
				in := p.begin(t.Context(), k)
				time.Sleep(time.Minute)
				synctest.Wait()
				p.send(k, 'b')
				o := <-in
				if o.err != nil {
					t.Fatal(o.err)
				}
				defer o.v.Tensor.Release()
				want := rendezvous.Arrival{Transport: name, Device: "mem0", Bytes: o.v.Tensor.Size(), Duration: time.Since(begun), Attempts: c.want}
				if got := o.v.Arrival(); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if time.Since(begun) < time.Minute {
					t.Error("the value came before it was sent")
				}
			})
		})
	}
}

// TestArrivalForACallerThatWaits: Wait has the record, too.
func TestArrivalForACallerThatWaits(t *testing.T) {
	bubble(t, memOptions{}, func(t *testing.T, p *pair) {
		p.set(func() { p.transport, p.delay = "memory", time.Second })
		k := key(t, "k")
		p.send(k, 'a')
		v, err := p.RecvFromRemoteAsync(1, k, rendezvous.Args{}, nil).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer v.Tensor.Release()
		if got, want := v.Arrival(), (rendezvous.Arrival{Transport: "memory", Device: "mem0", Bytes: 10, Duration: 2 * time.Second, Attempts: 1}); got != want {
			t.Errorf("got %+v, want %+v: the request and the response take a second each", got, want)
		}
	})
}
