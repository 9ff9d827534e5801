package bench

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// writeTargets are of the bandwidth beside perftest, by size, with several receives in
// flight.
var writeTargets = map[int64]float64{1 << 20: 0.90, 16 << 20: 0.95}

// waits are the ways to wait for completions whose latency is measured. They have no
// target: most of these rows come from a VM with an emulated processor, and the ratio
// there is that of Go code to C code on such a processor.
var waits = []struct {
	poll  string
	event bool // perftest's way of waiting
}{
	{"busy", false},
	{"adaptive", false},
	{"event", true},
}

// smallWays are the ways to receive one: by a callback, and by a call that waits,
// whose goroutine then does the polling itself.
var smallWays = []struct {
	suffix string
	how    func(*receiver, target) side
}{
	{"", (*receiver).callback},
	{"-recv", (*receiver).blocking},
}

// smallSize is the tensor whose latency is measured.
const smallSize = 8

// endpoints are the ends of what is measured over verbs: this process's, and the
// second one's.
type endpoints struct{ here, there discovery.Choice }

// devices chooses as the two processes will.
//
// What is measured beside programs of RDMA's own needs devices of the kernel.
func (s *suite) devices() (d endpoints, err error) {
	if s.client().Provider == server.ProviderRoCE {
		return d, status.New(status.FailedPrecondition, "it is measured beside programs that need RDMA of the kernel, and --provider roce was asked for")
	}
	host, err := discovery.Host()
	if err != nil {
		return d, err
	}
	inventory, err := host.Read()
	if err != nil {
		return d, err
	}
	here := s.client().RDMA
	if d.here, err = chosen(inventory, here); err == nil {
		d.there, err = chosen(inventory, s.peerRDMA(here))
	}
	return d, err
}

func chosen(i discovery.Inventory, c server.RDMA) (discovery.Choice, error) {
	return discovery.Choose(i, discovery.Want{
		Device: c.Device, Port: uint8(c.Port), GIDIndex: c.GIDIndex, MTU: verbs.MTU(c.MTU), //nolint:gosec // limits of the settings
	})
}

// peerRDMA is how the second process sends: as this one, from its own device.
func (s *suite) peerRDMA(c server.RDMA) server.RDMA {
	if s.PeerDevice != "" {
		c.Device = s.PeerDevice
	}
	return c
}

// recvVerbs sets receives against ib_write_bw, which writes as much, as often, and
// tells nobody. Where tensors go over several queue pairs, its writes over as many are
// beside them, too: that they should be as fast is not asked for, but tells what is the
// queue pairs' and what is Tryst's.
func (s *suite) recvVerbs(ctx context.Context) error {
	ends, err := s.devices()
	if err != nil {
		return err
	}
	return s.eachReceive(ctx, func(ctx context.Context, p *session, t target, inflight int) error {
		var aim float64
		if inflight > 1 {
			aim = writeTargets[t.size]
		}
		ours := load(inflight, 1, p.ours.receive(t, inflight))
		more := func(r *Row) {
			r.Inflight = inflight
			r.moved(t.size)
		}
		theirs := &perftest{program: WriteBandwidth, ends: ends, size: t.size}
		if err := s.besidePerftest(ctx, theirs, ours, aim, more); err != nil || theirs.missing() != nil {
			return err
		}
		pairs := s.queuePairs(t.size, inflight)
		if pairs < 2 {
			return nil
		}
		return s.besidePerftest(ctx, &perftest{program: WriteBandwidth, ends: ends, size: t.size, pairs: pairs}, ours, 0, more)
	})
}

// queuePairs is over how many queue pairs tensors of a size go that are under way
// together: one of 2 MiB and more over several, smaller ones over each in turn, and what
// fits into a message over the first (PROTOCOL.md section 8.5).
func (s *suite) queuePairs(size int64, inflight int) int {
	c := s.client().WithDefaults()
	if size <= c.RDMA.EagerLimit {
		return 1
	}
	pairs := c.RDMA.QueuePairs
	if pairs == 0 {
		pairs = providers.NICQueuePairs
	}
	return int(min(int64(pairs), int64(inflight)*max(size>>20, 1)))
}

// besidePerftest measures ours beside a program of perftest, or alone where that is
// not installed.
func (s *suite) besidePerftest(ctx context.Context, theirs *perftest, ours side, target float64, more func(*Row)) error {
	complete := func(r *Row) {
		if !r.itself {
			r.Provider = s.now.provider()
		}
		more(r)
	}
	c := s.contest()
	if missing := theirs.missing(); missing != nil {
		s.say("%s, alone: %v", config.FormatSize(theirs.size), missing)
		o, err := c.measure(ctx, ours)
		if err != nil {
			return err
		}
		r := rowOf(s.now.name, &o)
		r.Transport = s.now.transport
		complete(&r)
		s.add(r)
		return nil
	}
	s.say("%s, beside %s", config.FormatSize(theirs.size), theirs)
	o, own, err := c.compare(ctx, ours, theirs.run)
	if err != nil {
		return err
	}
	better := Higher
	if theirs.program == SendLatency {
		better = Lower
		o.ratio, own.ratio = o.ratio.inverse(), own.ratio.inverse()
	}
	s.addPair(&o, &own, theirs.String(), better, target, complete)
	return nil
}

// provider is the provider in the rows of the benchmark.
func (b benchmark) provider() string {
	if b.transport == verbstransport.Name {
		return "libibverbs"
	}
	return ""
}

// latencyVerbs sets one small receive, from the request to the callback or until the
// call returns, against ib_send_lat and against a loop in Go that does what that does
// through the same provider: the difference to the one is what Go costs, to the other
// what Tryst does.
func (s *suite) latencyVerbs(ctx context.Context) error {
	ends, err := s.devices()
	if err != nil {
		return err
	}
	for _, w := range waits {
		if len(s.polls) > 0 && !slices.Contains(s.polls, w.poll) {
			continue
		}
		for _, by := range smallWays {
			name := func(r *Row) {
				r.Name = s.now.name + "-" + w.poll + by.suffix
				r.Inflight = 1
				r.moved(smallSize)
			}
			ours := s.smallReceives(w.poll, by.how)
			theirs := &perftest{program: SendLatency, ends: ends, size: smallSize, event: w.event, pin: s.second}
			if err := s.besidePerftest(ctx, theirs, ours, 0, name); err != nil {
				return err
			}
			s.say("%s, %s, beside %s", config.FormatSize(smallSize), w.poll, GoLoop)
			o, own, err := s.contest().compare(ctx, ours, s.goLoop(w.event))
			if err != nil {
				return err
			}
			o.ratio, own.ratio = o.ratio.inverse(), own.ratio.inverse()
			s.addPair(&o, &own, GoLoop, Lower, 0, func(r *Row) {
				if !r.itself {
					r.Provider = s.now.provider()
				}
				name(r)
			})
		}
	}
	return nil
}

// idleVerbs measures what a channel that carries nothing takes of a processor, in
// the process that takes more.
func (s *suite) idleVerbs(ctx context.Context) (err error) {
	p, ctx, err := s.pair(ctx, []int64{smallSize})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	targets, err := p.ours.targets([]int64{smallSize})
	if err != nil {
		return ended(ctx, err)
	}
	if err := p.ours.receive(targets[0], 1)(ctx, 0, 1); err != nil { // the channel is up
		return ended(ctx, err)
	}
	s.say("for %v", s.idle)
	here, there, err := p.used(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	select {
	case <-time.After(s.idle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	hereAfter, thereAfter, err := p.used(ctx)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	r := rowOf(s.now.name, &outcome{run: run{count: 1, time: took}})
	r.Transport, r.Provider, r.Inflight, r.Baseline = s.now.transport, s.now.provider(), 1, OneCore
	r.Ratio = max(hereAfter-here, thereAfter-there).Seconds() / took.Seconds()
	r.RatioQ1, r.RatioQ3 = r.Ratio, r.Ratio
	r.judge(Lower, idleTarget, 0)
	s.add(r)
	return nil
}

// idleTarget is the share of one processor.
const idleTarget = 0.02

// used is the time of processors that both processes have taken.
func (p *session) used(ctx context.Context) (here, there time.Duration, err error) {
	st, err := p.child.obey(ctx, command{Used: true})
	if err != nil {
		return 0, 0, ended(ctx, err)
	}
	here, err = used()
	return here, st.Used, err
}

// used is the time of processors that this process has taken.
func used() (time.Duration, error) {
	u, err := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

func usage() (u syscall.Rusage, err error) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return u, status.Errorf(status.Internal, "the time that this process has taken: %w", err)
	}
	return u, nil
}

// smallReceives is a side that scores the receives in a second, by their median.
// Each run has processes of its own, which are gone when the other side runs: busy
// polling takes a processor also when nothing comes.
func (s *suite) smallReceives(poll string, how func(*receiver, target) side) side {
	client := s.client()
	client.RDMA.Poll = poll
	return s.smallOf(client, how)
}

// smallOf is smallReceives with settings of its own.
func (s *suite) smallOf(client server.Config, how func(*receiver, target) side) side {
	return func(ctx context.Context, d time.Duration) (r run, err error) {
		p, ctx, err := s.pairAs(ctx, client, []int64{smallSize})
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, p.close()) }()
		targets, err := p.ours.targets([]int64{smallSize})
		if err != nil {
			return r, ended(ctx, err)
		}
		receive := how(p.ours, targets[0])
		if _, err := receive(ctx, d/10); err != nil { // with the bootstrap
			return r, ended(ctx, err)
		}
		r, err = counted(receive)(ctx, d)
		return r, ended(ctx, err)
	}
}

// byMedian makes the score of a run of one after the other that of the median.
func (r *run) byMedian() error {
	median := r.latencies.percentile(0.5)
	if median <= 0 {
		return status.New(status.Internal, "nothing was measured")
	}
	r.score = 1 / median.Seconds()
	return nil
}

// verbsOf are the settings of the second process.
func (s *suite) verbsOf(c server.Config) verbsSetup {
	return verbsSetup{
		Transport: c.Transport, Provider: c.Provider, RDMA: s.peerRDMA(c.RDMA),
	}
}

// verbsSetup is what the second process has to know for verbs.
type verbsSetup struct {
	Transport string      `json:"transport"`
	Provider  string      `json:"provider"`
	RDMA      server.RDMA `json:"rdma"`
}

func (v verbsSetup) apply(c *server.Config) {
	if v.Transport != verbstransport.Name {
		c.Transport = grpctransport.Name
		return
	}
	c.Transport, c.Fallback = v.Transport, server.FallbackNone // another transport would be measured in its place
	c.Provider, c.RDMA = v.Provider, v.RDMA
}
