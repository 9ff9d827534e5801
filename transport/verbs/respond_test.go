package verbstransport

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// newEmpty makes a tensor without elements.
func newEmpty() (*tensor.Tensor, error) {
	shape, err := tensor.NewShape(0)
	if err != nil {
		return nil, err
	}
	return tensor.FromSlice(shape, []float32{})
}

// TestResponsesThatAreThereAtOnce: a value of any kind reaches its request, also when
// later messages are handled before it is sent.
func TestResponsesThatAreThereAtOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		dead bool
		make func() (*tensor.Tensor, error)
	}{
		{"Plain", false, func() (*tensor.Tensor, error) { return tensor.FromSlice(tensor.Shape{}, []float32{1}) }},
		{"Empty", false, newEmpty},
		{"Dead", true, newEmpty},
		{"Strings", false, func() (*tensor.Tensor, error) { return tensor.FromStrings(tensor.Shape{}, []string{"a"}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newLeftPair(t)
			p.looks = func() error { return errors.New("the value was there") }
			p.takes = func() (rendezvous.Value, bool) {
				x, err := c.make()
				if err != nil {
					t.Error(err)
					return rendezvous.Value{}, false
				}
				return rendezvous.Value{Tensor: x, Dead: c.dead}, true
			}
			requester, responder := p.up(t, 0), p.up(t, 1)
			key := keyBetween(t, p.tasks[1], p.tasks[0])
			id := uint64(0)
			begin := func(incarnation uint64) *attempt {
				id++
				return requester.begin(&transport.Receive{
					Request: transport.Request{Requester: p.ends[0].opts.Self, ID: id, Attempt: 1, Step: 1, Key: key},
					Peer:    incarnation, Began: time.Now(),
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), stepLimit)
			defer cancel()
			refused := func(a *attempt) {
				t.Helper()
				_, err := a.Wait(ctx)
				if _, ok := errors.AsType[*transport.RestartedError](err); !ok {
					t.Errorf("a request to another process ends with %v", err)
				}
			}
			for range 5 {
				// While the first is refused, the others arrive and are handled together.
				const pause = 10 * time.Millisecond
				responder.mu.Lock()
				first := begin(9)
				<-time.After(pause)
				served, behind := begin(2), begin(9)
				<-time.After(pause)
				responder.mu.Unlock()
				refused(first)
				refused(behind)
				v, err := served.Wait(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if v.Dead != c.dead {
					t.Errorf("dead: %v", v.Dead)
				}
				v.Tensor.Release()
			}
		})
	}
}

// keyBetween is a key whose source process has incarnation 2.
func keyBetween(t *testing.T, from, to cluster.Task) rendezvous.Key {
	t.Helper()
	key, err := rendezvous.ParseKey(rendezvous.CreateKey(from.String()+"/device:CPU:0", 2, to.String()+"/device:CPU:0", "x", rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}
