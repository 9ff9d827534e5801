package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// bareRun is the command to the receiving process to run one baseline once.
type bareRun struct {
	Baseline string        `json:"baseline"` // RawTCP, RawTLS, UnixSocket, SpinTCP, SpinUnix or MemfdCopy
	Conns    int           `json:"conns"`    // connections, which take the requests in turn
	Inflight int           `json:"inflight"` // operations at once
	Size     int64         `json:"size"`
	Time     time.Duration `json:"time"`
	// Buffers is how many destinations the copies of MemfdCopy take in turn.
	Buffers int `json:"buffers,omitempty"`
	// Median scores the median of one operation instead of their number in a second. Pause
	// is the time without work before each of them, which does not count.
	Median bool          `json:"median,omitempty"`
	Pause  time.Duration `json:"pause,omitempty"`
}

// bareResult is a run in the form in which it travels between the processes.
type bareResult struct {
	Score     float64       `json:"score"`
	Count     int64         `json:"count"`
	Time      time.Duration `json:"time"`
	Latencies map[int]int64 `json:"latencies"` // by part of a histogram
	Mallocs   uint64        `json:"mallocs"`
}

func resultOf(r *run) *bareResult {
	parts := make(map[int]int64)
	for i, n := range r.latencies.parts {
		if n > 0 {
			parts[i] = n
		}
	}
	return &bareResult{Score: r.score, Count: r.count, Time: r.time, Latencies: parts, Mallocs: r.mallocs}
}

func (b *bareResult) run() run {
	r := run{score: b.Score, count: b.Count, time: b.Time, mallocs: b.Mallocs, counted: true}
	for i, n := range b.Latencies {
		if i >= 0 && i < len(r.latencies.parts) {
			r.latencies.parts[i] = n
			r.latencies.count += n
		}
	}
	return r
}

// bareReceiver is the receiving process.
type bareReceiver struct {
	from   bareAddresses
	secret *tls.Config
	pool   *tensor.Pool

	current bareRun // for which what follows is open; without its time
	conns   []*tcpClient
	mems    *memfdMapping
}

func startBareReceiver(from *bareAddresses) (*bareReceiver, error) {
	secret, err := from.bareTLS()
	if err != nil {
		return nil, status.Errorf(status.InvalidArgument, "the certificate of the bare baselines: %w", err)
	}
	return &bareReceiver{from: *from, secret: secret, pool: tensor.NewPool(tensor.PoolOptions{})}, nil
}

func (r *bareReceiver) hello() hello { return hello{} }

func (r *bareReceiver) obey(c command) state {
	if c.Run == nil {
		return state{}
	}
	result, err := r.run(context.Background(), *c.Run)
	if err != nil {
		return state{Error: err.Error()}
	}
	return state{Run: resultOf(&result)}
}

func (r *bareReceiver) close() error {
	err := r.disconnect()
	r.pool.Trim()
	return err
}

func (r *bareReceiver) disconnect() (err error) {
	for _, c := range r.conns {
		c.close()
	}
	if r.mems != nil {
		err = r.mems.close()
	}
	r.conns, r.mems, r.current = nil, nil, bareRun{}
	return err
}

// run runs one baseline. Connections and mappings of the run before are used again if it was
// of the same kind.
func (r *bareReceiver) run(ctx context.Context, b bareRun) (run, error) {
	same := b
	same.Time = 0
	if r.current != same {
		if err := errors.Join(r.disconnect(), r.connect(ctx, b)); err != nil {
			return run{}, errors.Join(err, r.disconnect())
		}
		r.current = same
	}
	receive := func(worker int) error { return r.conns[worker%len(r.conns)].receive(b.Size) }
	if b.Baseline == MemfdCopy {
		receive = r.mems.copy
	}
	do := load(b.Inflight, 1, func(_ context.Context, worker, _ int) error { return receive(worker) })
	if b.Median {
		do = spaced(b.Pause, func(context.Context) (time.Duration, error) {
			begin := time.Now()
			err := receive(0)
			return time.Since(begin), err
		})
	}
	result, err := counted(do)(ctx, b.Time)
	if b.spins() { // the other side spins as long as there is a connection, also while Tryst runs
		err = errors.Join(err, r.disconnect())
	}
	return result, err
}

// spins reports whether both sides of the baseline spin.
func (b *bareRun) spins() bool { return b.Baseline == SpinTCP || b.Baseline == SpinUnix }

func (r *bareReceiver) connect(ctx context.Context, b bareRun) (err error) {
	if b.Inflight < 1 || b.Baseline != MemfdCopy && b.Conns < 1 {
		return status.Errorf(status.InvalidArgument, "%s with %d connections and %d in flight: both must be at least 1", b.Baseline, b.Conns, b.Inflight)
	}
	var dial func() (net.Conn, error)
	var d net.Dialer
	switch b.Baseline {
	case MemfdCopy:
		r.mems, err = openMemfd(r.from.Memfds[b.Size], b, r.pool)
		return err
	case RawTCP:
		dial = func() (net.Conn, error) { return d.DialContext(ctx, "tcp", r.from.TCP) }
	case UnixSocket:
		dial = func() (net.Conn, error) { return d.DialContext(ctx, "unix", r.from.Unix) }
	case SpinTCP:
		dial = func() (net.Conn, error) { return dialSpinning(ctx, "tcp", r.from.SpinTCP) }
	case SpinUnix:
		dial = func() (net.Conn, error) { return dialSpinning(ctx, "unix", r.from.SpinUnix) }
	case RawTLS:
		t := tls.Dialer{Config: r.secret}
		dial = func() (net.Conn, error) { return t.DialContext(ctx, "tcp", r.from.TLS) }
	default:
		return status.Errorf(status.InvalidArgument, "there is no bare baseline %q", b.Baseline)
	}
	for range b.Conns {
		conn, err := dial()
		if err != nil {
			return status.Errorf(status.Unavailable, "%s: %w", b.Baseline, err)
		}
		r.conns = append(r.conns, newTCPClient(ctx, b.Baseline, conn, r.pool))
	}
	return nil
}

// spaced is a side that does one operation after the other, with a pause before each, and
// scores their median. op returns how long it took.
func spaced(pause time.Duration, op func(context.Context) (time.Duration, error)) side {
	return func(ctx context.Context, d time.Duration) (r run, err error) {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		for begin := time.Now(); r.time < d; r.time = time.Since(begin) { // at least once
			if pause > 0 {
				timer.Reset(pause)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return r, context.Cause(ctx)
				}
			}
			took, err := op(ctx)
			if err != nil {
				return r, err
			}
			r.latencies.add(took, 1)
		}
		r.count = r.latencies.count
		return r, r.byMedian()
	}
}
