package bench

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// route is how two processes reach each other, and the only one that both have while it is
// measured.
type route struct {
	name     string
	provider string // of the queue pairs; "" for gRPC
	tls      bool
}

var (
	routeShm  = &route{name: "shm", provider: "shm"}
	routeTCP  = &route{name: "tcp", provider: "tcp"}
	routeTLS  = &route{name: "tls", provider: "tcp", tls: true}
	routeRoCE = &route{name: "roce", provider: server.ProviderRoCE}
	routeGRPC = &route{name: "grpc"}
)

// routesFile is where the rows of routes are saved.
const routesFile = "routes"

// ofRoutes lists the benchmarks of routes: each measures tensors over one route beside what
// is next to it, and the table in docs/performance.md has a row for each.
func ofRoutes() []benchmark {
	all := func(b benchmark, r *route) benchmark {
		b.route, b.transport, b.group = r, verbstransport.Name, routesFile
		if r.provider == "" {
			b.transport = grpctransport.Name
		}
		return b
	}
	bandwidth := func(name string, r *route, baselines ...bareBaseline) benchmark {
		return all(benchmark{name: name, takes: perReceive(len(baselines)), run: func(s *suite, ctx context.Context) error {
			return s.bandwidthBesideBare(ctx, baselines)
		}}, r)
	}
	small := func(name string, r *route, run func(*suite, context.Context) error) benchmark {
		return all(benchmark{name: name, takes: func(s *suite) time.Duration { return secondTime + contests(1)(s) }, run: run}, r)
	}
	idle := func(r *route) benchmark {
		return all(benchmark{name: "route-idle-" + r.name, run: (*suite).idleRoute, takes: func(s *suite) time.Duration { return secondTime + s.settle + s.idle }}, r)
	}
	steps := func(r *route) []benchmark { return ofSteps("route-"+r.name, all(benchmark{}, r)) }
	return slices.Concat([]benchmark{
		bandwidth("route-shm-copy", routeShm, oneCopy, severalCopies),
		all(benchmark{name: "route-shm-grpc", takes: perReceive(1), run: (*suite).bandwidthBesideGRPC}, routeShm),
		small("route-shm-small", routeShm, (*suite).busyBesideGRPC),
		small("route-shm-wait", routeShm, func(s *suite, ctx context.Context) error { return s.smallBesideBare(ctx, UnixSocket, 0) }),
		bandwidth("route-tcp", routeTCP, plainTCP),
		small("route-tcp-small", routeTCP, func(s *suite, ctx context.Context) error { return s.smallBesideBare(ctx, RawTCP, tcpSmallTarget) }),
		bandwidth("route-tls", routeTLS, secretTCP),
	}, steps(routeShm), steps(routeTCP), steps(routeGRPC), []benchmark{
		idle(routeShm), idle(routeTCP), idle(routeRoCE), idle(routeGRPC),
	})
}

// The targets of routes, several receives in flight: of the bandwidth of each baseline by
// size, and of the time that a small receive takes. docs/performance.md has their reasons.
var (
	copyTargets = map[int64]float64{1 << 20: 0.70, 16 << 20: 0.70}
	tcpTargets  = map[int64]float64{1 << 20: 0.80, 16 << 20: 0.90}
	tlsTargets  = map[int64]float64{16 << 20: 0.90}
	// grpcTargets is how many times as fast as our own gRPC.
	grpcTargets = map[int64]float64{1 << 20: 5, 16 << 20: 4}
)

const (
	tcpSmallTarget = 2.5
	shmSmallTarget = 0.2
)

// bareBaseline is a bare baseline of bandwidth.
type bareBaseline struct {
	name    string // in the rows
	targets map[int64]float64
	run     func(s *suite, size int64, inflight int) bareRun
}

// The copies have as many destinations as receives in flight, so that both are in the caches
// or neither is.
var (
	oneCopy = bareBaseline{MemfdCopy, copyTargets, func(_ *suite, size int64, inflight int) bareRun {
		return bareRun{Baseline: MemfdCopy, Inflight: 1, Buffers: inflight, Size: size}
	}}
	severalCopies = bareBaseline{MemfdCopies, nil, func(_ *suite, size int64, inflight int) bareRun {
		return bareRun{Baseline: MemfdCopy, Inflight: inflight, Buffers: inflight, Size: size}
	}}
	plainTCP  = bareBaseline{RawTCP, tcpTargets, overConnections(RawTCP)}
	secretTCP = bareBaseline{RawTLS, tlsTargets, overConnections(RawTLS)}
)

// overConnections uses as many connections as carry contents in Tryst.
func overConnections(baseline string) func(*suite, int64, int) bareRun {
	return func(s *suite, size int64, inflight int) bareRun {
		return bareRun{Baseline: baseline, Conns: contentConnections(s.queuePairs(size, inflight)), Inflight: inflight, Size: size}
	}
}

// contentConnections is how many of the queue pairs of a channel over TCP carry contents: the first
// one carries messages alone if there are more (PROTOCOL.md section 8.5).
func contentConnections(pairs int) int { return max(1, pairs-1) }

// apply makes it the only route of a process. provider is the one of the route, or that which
// stands in for it.
func (r *route) apply(c *server.Config, provider string) {
	if r.provider == "" {
		c.Transport = grpctransport.Name
		return
	}
	c.Transport, c.Fallback, c.Provider = verbstransport.Name, server.FallbackNone, provider
}

// routeProvider returns the provider of the route that is measured, or the one that stands in for
// it. It is "" if this build does not have it.
func (s *suite) routeProvider() string {
	p := s.now.route.provider
	if p = cmp.Or(s.standIns[p], p); slices.Contains(config.Providers(), p) {
		return p
	}
	return ""
}

// missing reports why the route cannot be measured, or "".
func (s *suite) missingRoute() string {
	if r := s.now.route; r != nil && r.provider != "" && s.routeProvider() == "" {
		return "this build has no provider " + r.provider
	}
	return ""
}

// withRoute starts a second process that has the current route only, and dials it. do gets
// the session and the tensors.
func (s *suite) withRoute(ctx context.Context, sizes []int64, do func(context.Context, *session, []target) error) (err error) {
	if why := s.missingRoute(); why != "" {
		s.say("left out: %s", why)
		return nil
	}
	c := s.client()
	if s.now.route.tls {
		dir, err := os.MkdirTemp("", "tryst-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		pair, err := newCertificate()
		if err != nil {
			return err
		}
		if c.TLS, err = pair.save(dir); err != nil {
			return err
		}
	}
	p, ctx, err := s.pairAs(ctx, c, sizes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	targets, err := p.ours.targets(sizes)
	if err == nil {
		err = s.checkRoute(ctx, p.ours, targets[0])
	}
	if err == nil {
		err = do(ctx, p, targets)
	}
	return ended(ctx, err)
}

// checkRoute receives once and checks what carried it: the ratio of another route means
// nothing.
func (s *suite) checkRoute(ctx context.Context, r *receiver, t target) error {
	if err := r.receive(t, 1)(ctx, 0, 1); err != nil {
		return err
	}
	all := r.client.Transfers()
	if len(all) == 0 {
		return status.New(status.Internal, "a receive has left no record")
	}
	last := all[len(all)-1]
	if last.Transport != s.now.transport || !strings.HasPrefix(last.Device, s.routeProvider()) {
		return status.Errorf(status.FailedPrecondition, "a receive over %s went over %s, device %q", s.now.route.name, last.Transport, last.Device)
	}
	return nil
}

// withBare is withRoute with the processes of the bare baselines.
func (s *suite) withBare(ctx context.Context, sizes []int64, do func(context.Context, *session, *bare, []target) error) error {
	return s.withRoute(ctx, sizes, func(ctx context.Context, p *session, targets []target) error {
		b, ctx, err := s.startBare(ctx, sizes)
		if err != nil {
			return err
		}
		defer b.close()
		return do(ctx, p, b, targets)
	})
}

// bandwidthBesideBare sets receives against each of the baselines.
func (s *suite) bandwidthBesideBare(ctx context.Context, baselines []bareBaseline) error {
	return s.withBare(ctx, s.Sizes, func(ctx context.Context, p *session, b *bare, targets []target) error {
		for _, t := range targets {
			for _, inflight := range s.Inflight {
				for _, w := range baselines {
					run := w.run(s, t.size, inflight)
					if !b.has(run.Baseline) {
						s.say("left out: this system has no %s", w.name)
						continue
					}
					s.say("%s, %d in flight, beside %s", config.FormatSize(t.size), inflight, w.name)
					o, own, err := s.contest().compare(ctx, load(inflight, 1, p.ours.receive(t, inflight)), b.side(run))
					if err != nil {
						return err
					}
					s.addPair(&o, &own, w.name, Higher, several(w.targets, t.size, inflight), func(r *Row) {
						r.Inflight = inflight
						r.moved(t.size)
						s.over(r)
					})
				}
			}
		}
		return nil
	})
}

// several is the target of a size, which holds with several in flight; 0 for none.
func several(targets map[int64]float64, size int64, inflight int) float64 {
	if inflight < 2 {
		return 0
	}
	return targets[size]
}

// over says which provider moved the bytes of a row of ours.
func (s *suite) over(r *Row) {
	if !r.itself {
		r.Provider = s.routeProvider()
	}
}

// bandwidthBesideGRPC sets receives over the route against those over gRPC from the same process.
func (s *suite) bandwidthBesideGRPC(ctx context.Context) error {
	return s.withRoute(ctx, s.Sizes, func(ctx context.Context, p *session, ours []target) (err error) {
		client := s.client()
		client.Transport = grpctransport.Name
		g, err := dialReceiver(ctx, client, p.child.Server, p.pool)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.close()) }()
		theirs, err := g.targets(s.Sizes)
		if err != nil {
			return err
		}
		return s.eachBesideGRPC(ctx, p.ours, g, ours, theirs, func(size int64, inflight int) float64 { return several(grpcTargets, size, inflight) })
	})
}

// busyBesideGRPC sets one small receive, whose processes poll busily, against one over gRPC.
// Each run has processes of its own, since busy ones take processors from the other side.
func (s *suite) busyBesideGRPC(ctx context.Context) error {
	if why := s.missingRoute(); why != "" {
		s.say("left out: %s", why)
		return nil
	}
	busy, plain := s.client(), s.client()
	busy.RDMA.Poll, plain.Transport = "busy", grpctransport.Name
	s.say("%s, poll busy, beside %s", config.FormatSize(smallSize), OwnGRPC)
	o, own, err := s.contest().compare(ctx, s.smallOf(busy, (*receiver).callback), s.smallOf(plain, (*receiver).callback))
	if err != nil {
		return err
	}
	s.addSmall(&o, &own, OwnGRPC, shmSmallTarget)
	return nil
}

// smallBesideBare sets one small receive against a bare round trip of as much.
func (s *suite) smallBesideBare(ctx context.Context, baseline string, aim float64) error {
	sizes := []int64{smallSize}
	return s.withBare(ctx, sizes, func(ctx context.Context, p *session, b *bare, targets []target) error {
		t := targets[0]
		theirs := b.side(bareRun{Baseline: baseline, Conns: 1, Inflight: 1, Size: t.size, Median: true})
		s.say("%s, beside %s", config.FormatSize(t.size), baseline)
		o, own, err := s.contest().compare(ctx, p.ours.callback(t), theirs)
		if err != nil {
			return err
		}
		s.addSmall(&o, &own, baseline, aim)
		return nil
	})
}

// addSmall adds the rows of a contest of small receives: the ratio is of times.
func (s *suite) addSmall(ours, own *outcome, baseline string, aim float64) {
	ours.ratio, own.ratio = ours.ratio.inverse(), own.ratio.inverse()
	s.addPair(ours, own, baseline, Lower, aim, func(r *Row) {
		r.Inflight, r.Size = 1, smallSize
		s.over(r)
	})
}
