package bench

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// stepCase is what is measured of a call.
type stepCase struct {
	size     int64
	inflight int
	pause    time.Duration // before each call
	busy     bool          // also under poll busy
}

// stepCases has those of each call.
var stepCases = map[string][]stepCase{
	callRecv: {
		{size: smallSize, inflight: 1}, {size: smallSize, inflight: manyCalls},
		{size: smallSize, inflight: 1, pause: shortPause}, {size: smallSize, inflight: 1, pause: longPause},
	},
	callRecvInto: {
		{size: smallSize, inflight: 1, busy: true}, {size: smallSize, inflight: manyCalls},
		{size: smallSize, inflight: 1, pause: shortPause}, {size: smallSize, inflight: 1, pause: idlePause}, {size: smallSize, inflight: 1, pause: longPause},
		{size: smallBlock, inflight: 1, busy: true}, {size: largeBlock, inflight: 1, busy: true},
	},
	callReply: {
		{size: smallSize, inflight: 1, busy: true},
		{size: smallSize, inflight: 1, pause: shortPause}, {size: smallSize, inflight: 1, pause: longPause},
	},
	callSendWait: {
		{size: smallSize, inflight: 1},
		{size: smallSize, inflight: 1, pause: shortPause}, {size: smallSize, inflight: 1, pause: longPause},
	},
}

// stepKey is a row that has a target.
type stepKey struct {
	name     string // of the row
	size     int64
	inflight int
	beside   string
}

// stepTargets are the targets of the calls of a program: of times, at most; of several at once and
// of gRPC, of calls in a second, at least. docs/performance.md has the table.
var stepTargets = map[stepKey]float64{
	{"route-shm-step-recvinto", smallSize, 1, OwnMedian}:      4,
	{"route-shm-step-recvinto-busy", smallSize, 1, OwnMedian}: 4,
	{"route-shm-step-recvinto-5ms", smallSize, 1, UnixSocket}: 1.3,
	{"route-shm-step-recvinto", smallBlock, 1, RawTCP}:        0.8,
	{"route-shm-step-reply", smallSize, 1, UnixSocket}:        0.8,
	{"route-tcp-step-recvinto", smallSize, 1, RawTCP}:         1.5,
	{"route-tcp-step-recvinto-busy", smallSize, 1, SpinTCP}:   2.5,
	{"route-tcp-step-recvinto", smallBlock, 1, RawTCP}:        1.5,
	{"route-grpc-step-recvinto", smallSize, 1, PassThrough}:   0.75,
	{"peer-nixl-shm", smallSize, 1, NIXLRead}:                 2.5,
	{"peer-nixl-shm-busy", smallSize, 1, NIXLRead}:            1.5,
	{"peer-ucx-shm", 1 << 20, 4, UCXTag}:                      1.0,
	{"peer-ucx-shm", 16 << 20, 4, UCXTag}:                     1.3,
	{"peer-ucx-tcp", 1 << 20, 4, UCXTag}:                      0.75,
	{"peer-ucx-tcp", 16 << 20, 4, UCXTag}:                     0.75,
	{"peer-ucx-tcp-busy", 1 << 20, 4, UCXTag}:                 0.85,
	{"peer-ucx-tcp-busy", 16 << 20, 4, UCXTag}:                0.85,
}

// ofSteps lists a benchmark for each call of a program over a route, or over the transport of the
// settings.
func ofSteps(prefix string, b benchmark) (all []benchmark) {
	for _, call := range stepCalls {
		b.name = prefix + "-step-" + call
		b.run = func(s *suite, ctx context.Context) error { return s.stepsBesideSockets(ctx, call) }
		b.takes = func(s *suite) time.Duration {
			n := 0
			for _, poll := range s.pollsOf(b) {
				for _, c := range stepCases[call] {
					if s.measures(c, poll) {
						n++
					}
				}
			}
			return secondTime + contests(n)(s)
		}
		all = append(all, b)
	}
	return all
}

// pollsOf returns the values of the setting poll under which the calls of a benchmark are measured:
// the one that is given, or the default and busy. gRPC has none.
func (s *suite) pollsOf(b benchmark) []string {
	switch {
	case b.transport == grpctransport.Name:
		return []string{""}
	case s.Client.RDMA.Poll != "":
		return []string{s.Client.RDMA.Poll}
	}
	return []string{"", server.PollBusy}
}

// measures reports whether a case is measured under a poll: without a given one, busy is for some.
func (s *suite) measures(c stepCase, poll string) bool {
	return c.busy || poll != server.PollBusy || s.Client.RDMA.Poll != ""
}

// stepsBesideSockets sets a call against a bare socket: one whose two sides wait, and, where ours
// poll busily, one whose two sides spin.
func (s *suite) stepsBesideSockets(ctx context.Context, call string) error {
	if why := s.missingRoute(); why != "" {
		s.say("left out: %s", why)
		return nil
	}
	b, ctx, err := s.startBare(ctx, []int64{smallSize, smallBlock, largeBlock})
	if err != nil {
		return err
	}
	defer b.close()
	for _, poll := range s.pollsOf(s.now) {
		err := s.withSteps(ctx, poll, func(ctx context.Context, ours func(stepRun) side) error {
			for _, c := range stepCases[call] {
				if !s.measures(c, poll) {
					continue
				}
				r := stepRun{Call: call, Size: c.size, Inflight: c.inflight, Pause: min(c.pause, s.silence), Median: c.inflight == 1}
				socket := s.socketBeside(c.size, poll)
				theirs := b.side(bareRun{Baseline: socket, Conns: 1, Inflight: c.inflight, Size: c.size, Median: r.Median, Pause: r.Pause})
				name := stepName(s.now.name, poll, c.pause)
				if err := s.compareStep(ctx, name, r, ours(r), theirs, socket, r.compares()); err != nil {
					return err
				}
				if stepTargets[stepKey{name, c.size, c.inflight, PassThrough}] > 0 {
					if err := s.besidePassThrough(ctx, name, r, ours(r)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// socketBeside chooses the bare socket. Small values within a host have a unix socket beside them,
// blocks TCP.
func (s *suite) socketBeside(size int64, poll string) string {
	sockets := [2]string{RawTCP, SpinTCP}
	if s.now.route == routeShm && size < smallBlock {
		sockets = [2]string{UnixSocket, SpinUnix}
	}
	if poll == server.PollBusy {
		return sockets[1]
	}
	return sockets[0]
}

// compareStep runs a contest of a call and adds its rows under a name.
func (s *suite) compareStep(ctx context.Context, name string, r stepRun, ours, theirs side, beside string, better Better) error {
	s.progress("%s: %s, %d in flight, beside %s", name, config.FormatSize(r.Size), r.Inflight, beside)
	o, own, err := s.contest().compare(ctx, ours, theirs)
	if err != nil {
		return err
	}
	if better == Lower {
		o.ratio, own.ratio = o.ratio.inverse(), own.ratio.inverse()
	}
	s.addPair(&o, &own, beside, better, stepTargets[stepKey{name, r.Size, r.Inflight, beside}], func(row *Row) {
		row.Name, row.Size, row.Inflight = name, r.Size, r.Inflight
		if !r.Median && r.Size >= smallBlock {
			row.moved(r.Size)
		}
		s.carried(row)
	})
	if tail := (stepKey{name, r.Size, r.Inflight, OwnMedian}); stepTargets[tail] > 0 {
		s.addTail(tail, &o)
	}
	return nil
}

// compares is what the ratio of a call is of: of times, or of calls in a second.
func (r *stepRun) compares() Better {
	if r.Median {
		return Lower
	}
	return Higher
}

// stepName is the name of the rows under a poll and after a pause, which it has unless they are the
// defaults.
func stepName(name, poll string, pause time.Duration) string {
	if poll != "" && poll != server.PollAdaptive {
		name += "-" + poll
	}
	if pause > 0 {
		name += "-" + pause.String()
	}
	return name
}

// addTail adds the row that holds the 99th percentile of a call against its median.
func (s *suite) addTail(k stepKey, o *outcome) {
	tail := *o
	p99 := microseconds(o.latencies.percentile(0.99)) / microseconds(o.latencies.percentile(0.5))
	tail.ratio = spread{p99, p99, p99}
	r := rowOf(k.name, &tail)
	r.Transport, r.Size, r.Inflight, r.Baseline = s.now.transport, k.size, k.inflight, OwnMedian
	r.judge(Lower, stepTargets[k], 0)
	s.carried(&r)
	s.add(r)
}

// carried says which provider moved the bytes of a row of ours.
func (s *suite) carried(r *Row) {
	switch {
	case r.itself:
	case s.now.route != nil:
		s.over(r)
	default:
		r.Provider = cmp.Or(s.Client.Provider, s.now.provider())
	}
}

// besidePassThrough sets a call over gRPC against a bare gRPC call of the same size.
func (s *suite) besidePassThrough(ctx context.Context, name string, r stepRun, ours side) (err error) {
	p, ctx, err := s.pair(ctx, []int64{r.Size})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	keys, err := keysOf(0, 1)
	if err != nil {
		return err
	}
	theirs := spaced(0, func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := p.baselines.passThrough(ctx, r.Size, keys[0].String())
		return time.Since(begin), err
	})
	return ended(ctx, s.compareStep(ctx, name, r, ours, theirs, PassThrough, Higher))
}

// withSteps starts the two tasks over the current route, and ends them after do, which gets the side
// of each run. Under poll busy each run has tasks of its own: they take processors also when nothing
// comes.
func (s *suite) withSteps(ctx context.Context, poll string, do func(context.Context, func(stepRun) side) error) error {
	if poll == server.PollBusy {
		return do(ctx, func(r stepRun) side {
			rate := new(float64)
			return func(ctx context.Context, d time.Duration) (run, error) {
				t, ctx, err := s.startSteps(ctx, poll)
				if err != nil {
					return run{}, err
				}
				defer t.close()
				got, err := t.side(r, rate)(ctx, d)
				return got, ended(ctx, err)
			}
		})
	}
	t, ctx, err := s.startSteps(ctx, poll)
	if err != nil {
		return err
	}
	defer t.close()
	return ended(ctx, do(ctx, func(r stepRun) side { return t.side(r, new(float64)) }))
}

// stepTasks is the first process's handle of the two tasks.
type stepTasks struct {
	members
	device string // that carries the values; "" for any
	last   int64  // step
}

// startSteps starts both, and lets them connect.
func (s *suite) startSteps(ctx context.Context, poll string) (*stepTasks, context.Context, error) {
	c := s.client()
	c.RDMA.Poll = poll
	t := new(stepTasks)
	if s.now.route != nil {
		t.device = s.routeProvider()
	}
	var err error
	t.members, ctx, err = s.startTasks(ctx, steppers, func(m memberSetup) setup {
		v := s.verbsOf(c)
		if m.Rank == 0 {
			v.RDMA = c.RDMA
		}
		return setup{Profile: s.Profile, Step: &m, verbsSetup: v}
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := t.run(ctx, stepRun{Call: callReply, Size: smallSize, Inflight: 1, Count: minCalls}); err != nil { // both ways
		err = ended(ctx, err)
		t.close()
		return nil, nil, err
	}
	return t, ctx, nil
}

// side runs as many calls as fit into the time, by the rate of the run before, which rate keeps.
func (t *stepTasks) side(r stepRun, rate *float64) side {
	return func(ctx context.Context, d time.Duration) (run, error) {
		least := minCalls
		if r.Pause > 0 {
			least = 1
		}
		r.Count = min(max(int(*rate*d.Seconds())/r.Inflight, least), maxCalls/r.Inflight)
		got, err := t.run(ctx, r)
		if err == nil {
			*rate = float64(got.count) / got.time.Seconds()
		}
		return got, err
	}
}

// run lets both tasks do their part. After the error of one it does not wait for the other.
func (t *stepTasks) run(ctx context.Context, r stepRun) (run, error) {
	t.last++
	r.Step, r.Device = t.last, t.device
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	states := make([]state, steppers)
	obey := func(rank int) {
		var err error
		if states[rank], err = t.members[rank].obey(ctx, command{Step: &r}); err != nil {
			fail(status.From(err).WithPrefix(rankText(rank)))
		}
	}
	if r.sentBefore() {
		obey(1)
		if ctx.Err() == nil {
			obey(0)
		}
	} else {
		var both sync.WaitGroup
		for rank := range steppers {
			both.Go(func() { obey(rank) })
		}
		both.Wait()
	}
	if err := context.Cause(ctx); err != nil {
		return run{}, err
	}
	if states[0].Run == nil {
		return run{}, status.New(status.Internal, "task 0 of a benchmark of steps has not measured")
	}
	return states[0].Run.run(), nil
}
