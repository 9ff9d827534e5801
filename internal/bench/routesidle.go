package bench

import (
	"context"
	"errors"
	"time"
)

// idleRoute measures what idle peers cost the second process: the memory of each, the
// processor time, and how often one of its threads was woken while nothing moved.
func (s *suite) idleRoute(ctx context.Context) error {
	sizes := []int64{smallSize}
	return s.withRoute(ctx, sizes, func(ctx context.Context, p *session, _ []target) (err error) {
		before, err := p.child.obey(ctx, command{Resident: true})
		if err != nil {
			return err
		}
		peers := []*receiver{p.ours}
		defer func() {
			for _, r := range peers[1:] {
				err = errors.Join(err, r.close())
			}
		}()
		for range s.idlePeers {
			r, err := dialReceiver(ctx, p.client, p.child.Server, p.pool)
			if err != nil {
				return err
			}
			peers = append(peers, r)
			targets, err := r.targets(sizes)
			if err == nil {
				err = s.checkRoute(ctx, r, targets[0])
			}
			if err != nil {
				return err
			}
		}
		after, err := p.child.obey(ctx, command{Resident: true})
		if err != nil {
			return err
		}
		s.say("%d peers for %v, after %v", len(peers), s.idle, s.settle)
		if err := pause(ctx, s.settle); err != nil {
			return err
		}
		from, err := p.child.obey(ctx, command{Used: true})
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := pause(ctx, s.idle); err != nil {
			return err
		}
		to, err := p.child.obey(ctx, command{Used: true})
		if err != nil {
			return err
		}
		took := time.Since(begin)
		r := rowOf(s.now.name, &outcome{run: run{count: to.Switches - from.Switches, time: took}})
		r.Transport, r.Inflight, r.Baseline = s.now.transport, len(peers), OneCore
		r.Size = (after.Resident - before.Resident) / int64(s.idlePeers)
		r.Ratio = (to.Used - from.Used).Seconds() / took.Seconds()
		r.RatioQ1, r.RatioQ3 = r.Ratio, r.Ratio
		r.judge(Lower, 0, 0)
		s.over(&r)
		s.add(r)
		return nil
	})
}

// pause waits for a time, or for the end of ctx, whose cause it returns.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
