package delivery

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// TestPool: it does everything at once, keeps no more goroutines than it may, and none
// after its end.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPool()
		for range 3 {
			var running, all sync.WaitGroup
			release := make(chan struct{})
			for range 2 * maxIdleWorkers {
				running.Add(1)
				all.Add(1)
				c.Go(func() {
					defer all.Done()
					running.Done()
					<-release
				})
			}
			running.Wait() // all at once, whatever the others wait for
			close(release)
			all.Wait()
			synctest.Wait()
			if n := c.idle.Load(); n != maxIdleWorkers {
				t.Errorf("%d goroutines wait, want %d", n, maxIdleWorkers)
			}
		}
		c.close()
		c.close()
		if n := c.idle.Load(); n != 0 {
			t.Errorf("%d goroutines wait after the end", n)
		}
	})
}

// TestCallbacksReceiveInAChain: each of 1,000 callbacks receives the next value and waits
// for it, so that all of them are under way at once. The last value comes last, and no time
// passes before all callbacks have returned.
func TestCallbacksReceiveInAChain(t *testing.T) {
	const depth = 1000
	for name, waits := range map[string]func(p *pair, k rendezvous.Key) <-chan outcome{
		"by callback": func(p *pair, k rendezvous.Key) <-chan outcome { return p.begin(p.t.Context(), k) },
		"by a caller that waits": func(p *pair, k rendezvous.Key) <-chan outcome {
			c := make(chan outcome, 1)
			r := p.RecvFromRemoteAsync(1, k, rendezvous.Args{}, nil)
			go func() {
				v, err := r.Wait(context.Background())
				c <- outcome{v, err}
			}()
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, memOptions{})
				k, last := key(t, "k"), key(t, "last")
				for range depth - 1 {
					p.send(k, 'a')
				}
				running := 0
				all := make(chan struct{})
				var callback func(v rendezvous.Value, _ rendezvous.Args, err error)
				callback = func(v rendezvous.Value, _ rendezvous.Args, err error) {
					if err != nil {
						t.Error(err)
						return
					}
					v.Tensor.Release()
					running++
					if running == depth-1 {
						c := waits(p, last)
						synctest.Wait() // it does not come before it is sent
						p.send(last, 'z')
						p.wantValue(c, 'z')
						close(all)
						return
					}
					p.RecvFromRemoteAsync(1, k, rendezvous.Args{}, callback)
					<-all
				}
				p.RecvFromRemoteAsync(1, k, rendezvous.Args{}, callback)
				<-all
				if running != depth-1 {
					t.Errorf("%d callbacks ran, want %d", running, depth-1)
				}
				p.close()
			})
		})
	}
}
