package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// waiters are receives from the second process that wait for their values.
type waiters struct {
	work sync.WaitGroup
	mu   sync.Mutex // guards what follows
	end  time.Time  // of the last one
	errs []error
}

// wait begins n receives of keys that nobody has sent, and returns when the
// second process has them all.
func (p *session) wait(ctx context.Context, n int) (*waiters, error) {
	src, err := cluster.ParseDevice(p.child.Device)
	if err != nil {
		return nil, err
	}
	dst := cluster.DeviceOf(p.ours.client.Task())
	w := new(waiters)
	for i := range n {
		key, err := rendezvous.NewKey(src, p.child.Incarnation, dst, edge(i), rendezvous.FrameIter{})
		if err != nil {
			return nil, err
		}
		w.work.Add(1)
		p.ours.client.RecvAsync(ctx, benchStep, key, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			defer w.work.Done()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.end = time.Now()
			switch {
			case err != nil:
				w.errs = append(w.errs, err)
			case v.Tensor.Size() != 8:
				w.errs = append(w.errs, status.Errorf(status.DataLoss, "%s: %d bytes arrived in place of 8", key.Describe(), v.Tensor.Size()))
				fallthrough
			default:
				v.Tensor.Release()
			}
		})
	}
	for {
		st, err := p.child.obey(ctx, command{})
		if err != nil || st.Waiting >= n {
			return w, err
		}
	}
}

// send makes the second process send the n values that w waits for, and returns when
// all have come.
func (p *session) send(ctx context.Context, w *waiters, n int) error {
	to := cluster.DeviceOf(p.ours.client.Task()).String()
	_, err := p.child.obey(ctx, command{Send: &sendCommand{Step: benchStep, To: to, Count: n}})
	if err == nil {
		w.work.Wait()
		err = errors.Join(w.errs...)
	}
	return ended(ctx, err)
}

// recvMany begins many receives at once, sends their values, and counts them.
func (s *suite) recvMany(ctx context.Context) (err error) {
	p, ctx, err := s.pair(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	s.say("%d at once", s.many)
	w, err := p.wait(ctx, s.many)
	if err != nil {
		return ended(ctx, err)
	}
	begin := time.Now()
	if err := p.send(ctx, w, s.many); err != nil {
		return err
	}
	o := outcome{run: run{count: int64(s.many), time: w.end.Sub(begin)}}
	r := rowOf(s.now.name, &o)
	r.Transport, r.Inflight = s.now.transport, s.many
	r.moved(8)
	s.add(r)
	return nil
}
