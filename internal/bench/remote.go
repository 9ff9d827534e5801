package bench

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// session is the second process and everything that is measured between it and
// this one.
type session struct {
	child     *child
	client    server.Config // the settings of ours
	pool      *tensor.Pool
	ours      *receiver
	baselines *baselines
	tcp       *tcpClient
	udp       *loopClient // nil for none
}

// pair starts a second process that publishes tensors of the sizes, and connects
// to it. The context that it returns ends when that process does.
func (s *suite) pair(ctx context.Context, sizes []int64) (_ *session, _ context.Context, err error) {
	return s.pairAs(ctx, s.client(), sizes)
}

// pairAs is pair with settings of its own.
func (s *suite) pairAs(ctx context.Context, client server.Config, sizes []int64) (_ *session, _ context.Context, err error) {
	p := &session{pool: s.newPool(), client: client}
	if p.child, ctx, err = startChild(ctx, s.Command, setup{Sizes: sizes, Profile: s.Profile, Pin: s.second, TLS: client.TLS, verbsSetup: s.verbsOf(client)}); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.ours, err = dialReceiver(ctx, client, p.child.Server, p.pool); err != nil {
		return nil, nil, err
	}
	probed := client.WithDefaults().GRPC
	if p.baselines, err = dialBaselines(p.child.Baselines, p.pool, grpctransport.DialOptions{
		KeepaliveTime: probed.KeepaliveTime, KeepaliveTimeout: probed.KeepaliveTimeout,
	}); err != nil {
		return nil, nil, err
	}
	if p.tcp, err = dialTCP(ctx, p.child.TCP, p.pool); err != nil {
		return nil, nil, err
	}
	if p.child.UDP != "" {
		if p.udp, err = dialLoop(ctx, p.child.UDP, p.pool); err != nil {
			return nil, nil, err
		}
	}
	return p, ctx, nil
}

func (s *suite) newPool() *tensor.Pool {
	if s.pool != nil {
		return s.pool
	}
	return tensor.NewPool(tensor.PoolOptions{})
}

func (p *session) close() (err error) {
	if p.tcp != nil {
		p.tcp.close()
	}
	if p.udp != nil {
		p.udp.close()
	}
	if p.baselines != nil {
		err = p.baselines.close()
	}
	if p.ours != nil {
		err = errors.Join(err, p.ours.close())
	}
	p.child.close()
	return err
}

// pairTargets are what the ratio of a receive should reach: by baseline and
// size.
var pairTargets = map[string]map[int64]float64{
	PassThrough: {1 << 20: 0.90, 16 << 20: 0.90},
	Generated:   {1 << 20: 1.5, 16 << 20: 1.3},
}

// recv sets a receive against each baseline.
func (s *suite) recv(ctx context.Context) error { return s.eachReceive(ctx, s.recvOne) }

// eachReceive starts a second process and measures one thing for each size and
// number in flight.
func (s *suite) eachReceive(ctx context.Context, one func(context.Context, *session, target, int) error) (err error) {
	p, ctx, err := s.pair(ctx, s.Sizes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	targets, err := p.ours.targets(s.Sizes)
	if err != nil {
		return err
	}
	for _, t := range targets {
		for _, inflight := range s.Inflight {
			if err := one(ctx, p, t, inflight); err != nil {
				return ended(ctx, err)
			}
		}
	}
	return nil
}

// ended returns why something between the processes failed. When the second one
// has died, everything fails, and often before its death is known.
func ended(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(deathWait):
		return err
	}
}

// recvOne is recv of one tensor with so many in flight.
func (s *suite) recvOne(ctx context.Context, p *session, t target, inflight int) error {
	text := t.key.String()
	ours := load(inflight, 1, p.ours.receive(t, inflight))
	for _, beside := range []struct {
		name string
		call func(context.Context) error
	}{
		{PassThrough, func(ctx context.Context) error { return p.baselines.passThrough(ctx, t.size, text) }},
		{Generated, func(ctx context.Context) error { return p.baselines.generated(ctx, t.size, text) }},
		{RawTCP, func(context.Context) error { return p.tcp.receive(t.size) }},
	} {
		s.say("%s, %d in flight, beside %s", config.FormatSize(t.size), inflight, beside.name)
		theirs := load(inflight, 1, func(ctx context.Context, _, _ int) error { return beside.call(ctx) })
		o, own, err := s.contest().compare(ctx, ours, theirs)
		if err != nil {
			return err
		}
		s.addPair(&o, &own, beside.name, Higher, pairTargets[beside.name][t.size], func(r *Row) {
			r.Inflight = inflight
			r.moved(t.size)
		})
	}
	return nil
}

// besideUDP sets a receive against the bare UDP loop.
func (s *suite) besideUDP(ctx context.Context) error {
	return s.eachReceive(ctx, func(ctx context.Context, p *session, t target, inflight int) error {
		if p.udp == nil {
			s.say("left out: this system has no super-packets")
			return nil
		}
		s.say("%s, %d in flight, beside %s", config.FormatSize(t.size), inflight, UDPLoop)
		theirs := load(inflight, 1, func(context.Context, int, int) error { return p.udp.receive(t.size) })
		o, own, err := s.contest().compare(ctx, load(inflight, 1, p.ours.receive(t, inflight)), theirs)
		if err != nil {
			return err
		}
		var aim float64
		if s.now.transport == verbstransport.Name {
			aim = softwareTarget(UDPLoop, t.size, inflight)
		}
		s.addPair(&o, &own, UDPLoop, Higher, aim, func(r *Row) {
			r.Inflight = inflight
			r.moved(t.size)
			r.providedBy(p.ours)
		})
		return nil
	})
}

// addPair adds the baseline's own row and ours, each completed by more.
func (s *suite) addPair(ours, own *outcome, baseline string, better Better, target float64, more func(*Row)) {
	for _, o := range []*outcome{own, ours} {
		r := rowOf(s.now.name, o)
		r.Baseline = baseline
		if o == ours {
			r.Transport = s.now.transport
			r.judge(better, target, own.ratio.deviation())
		} else {
			r.itself = true
			r.judge(better, 0, 0)
		}
		more(&r)
		s.add(r)
	}
}

// recvFrom measures receives from a server elsewhere.
func (s *suite) recvFrom(ctx context.Context) (err error) {
	r, err := dialReceiver(ctx, s.client(), s.From, s.newPool())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	targets, err := r.targets(s.Sizes)
	if err != nil {
		return err
	}
	for _, t := range targets {
		for _, inflight := range s.Inflight {
			s.say("%s, %d in flight, from %s", config.FormatSize(t.size), inflight, s.From)
			o, err := s.contest().measure(ctx, load(inflight, 1, r.receive(t, inflight)))
			if err != nil {
				return err
			}
			row := rowOf(s.now.name, &o)
			row.Transport, row.Provider, row.Inflight = s.now.transport, r.provider(), inflight
			row.moved(t.size)
			s.add(row)
		}
	}
	return nil
}
