package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// A benchmark of steps makes the calls of a user's program, tryst.Step, in two processes, the tasks
// of a cluster. Task 0 measures, task 1 is its peer:
//
//	bench ── setup{step: {rank, members, addresses}} ─► both tasks
//	bench ── command{step: stepRun} ─────────────────► task 1, and then, or at the same time, task 0
//
// Every receive checks which value came, and over which transport.

// The calls.
const (
	callRecv     = "recv"     // Step.Recv of a value that was sent before
	callRecvInto = "recvinto" // Step.RecvInto of a value that was sent before
	callReply    = "reply"    // Send of a request, and RecvInto of its reply
	callSendWait = "sendwait" // SendWait of a value that the peer waits for, and its confirmation
)

// stepCalls are all of them.
var stepCalls = []string{callRecv, callRecvInto, callReply, callSendWait}

// stepRun is the command to a task to do its part of a run.
type stepRun struct {
	Call string `json:"call"`
	// Step is the id of the step, which no run before has used.
	Step int64 `json:"step"`
	Size int64 `json:"size"` // of a value; at least 8
	// Inflight is how many goroutines make the calls, each with a name of its own. Only
	// callRecv and callRecvInto may have several.
	Inflight int `json:"inflight"`
	// Count is how many calls each of them makes, Pause the time without work before each
	// call, which is not measured.
	Count int           `json:"count"`
	Pause time.Duration `json:"pause,omitempty"`
	// Median scores the median call instead of their number in a second.
	Median bool `json:"median,omitempty"`
	// Device is the prefix of the names of the devices that carry the values; "" for any.
	Device string `json:"device,omitempty"`
}

// sentBefore reports whether task 1 sends all values before task 0 receives the first one.
func (r *stepRun) sentBefore() bool { return r.Call == callRecv || r.Call == callRecvInto }

// stepper is one of the two tasks, with its server.
type stepper struct {
	memberSetup
	transport string // that carries the values
	server    *tryst.Server
	step      *tryst.Step // of the last run, open since the peer may be receiving; nil before it
	tensors   map[tensorsOf][]*tensor.Tensor
}

// tensorsOf are the values of a rank, or, with dst, memory to receive into.
type tensorsOf struct {
	dst  bool
	rank int
	size int64
}

func startStepper(ctx context.Context, s setup) (*stepper, error) {
	m := &stepper{memberSetup: *s.Step, transport: tryst.TransportGRPC, tensors: make(map[tensorsOf][]*tensor.Tensor)}
	c, err := m.config(s.verbsSetup)
	if err != nil {
		return nil, err
	}
	if m.Members != steppers {
		return nil, status.Errorf(status.InvalidArgument, "%d tasks, and a benchmark of steps has %d", m.Members, steppers)
	}
	if c.Transport == verbstransport.Name {
		m.transport = verbstransport.Name
	}
	if m.server, err = tryst.Serve(ctx, c); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *stepper) hello() hello { return hello{Server: m.server.Addr().String()} }

func (m *stepper) obey(c command) state {
	if c.Step == nil {
		return state{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait) // the peer may have ended
	defer cancel()
	var s state
	r, err := m.run(ctx, *c.Step)
	switch {
	case err != nil:
		s.Error = status.From(err).Message()
	case m.Rank == 0:
		s.Run = resultOf(&r)
	}
	return s
}

// run does the part of this task.
func (m *stepper) run(ctx context.Context, r stepRun) (run, error) {
	if r.Size < 8 || r.Count < 1 || r.Inflight < 1 || r.Inflight > 1 && !r.sentBefore() {
		return run{}, status.Errorf(status.InvalidArgument, "%d values of %d bytes, %d at once by %s: a value has 8 bytes or more, and only receives are made at once", r.Count, r.Size, r.Inflight, r.Call)
	}
	if m.step != nil {
		m.step.Close() // the peer has what was sent there
	}
	m.step = m.server.Step(r.Step)
	w := &stepWork{stepRun: r, stepper: m, step: m.step, peer: m.task(1 - m.Rank)}
	var err error
	if w.own, err = m.values(m.Rank, r.Size, m.server.SendAllocator()); err != nil {
		return run{}, err
	}
	if w.theirs, err = m.values(1-m.Rank, r.Size, tensor.Heap{}); err != nil {
		return run{}, err
	}
	if w.dst, err = m.destinations(r.Size, r.Inflight); err != nil {
		return run{}, err
	}
	if m.Rank != 0 {
		return run{}, w.answer(ctx)
	}
	return counted(func(ctx context.Context, _ time.Duration) (run, error) { return w.measure(ctx) })(ctx, 0)
}

// values returns the tensors that a rank sends in turn. No two have the same content, so that a
// receiver detects a value that was lost, sent twice or damaged.
func (m *stepper) values(rank int, size int64, a tensor.Allocator) ([]*tensor.Tensor, error) {
	of := tensorsOf{rank: rank, size: size}
	for i := len(m.tensors[of]); i < stepValues; i++ {
		t, err := tensor.Make[byte](a, size)
		if err != nil {
			return nil, err
		}
		m.tensors[of] = append(m.tensors[of], t)
		var seed [32]byte
		binary.BigEndian.PutUint64(seed[:], uint64(rank))
		binary.BigEndian.PutUint64(seed[8:], uint64(i))
		_, _ = rand.NewChaCha8(seed).Read(t.Bytes()) // never fails
	}
	return m.tensors[of], nil
}

// destinations returns memory to receive into, for each of n goroutines.
func (m *stepper) destinations(size int64, n int) ([]*tensor.Tensor, error) {
	of := tensorsOf{dst: true, size: size}
	for len(m.tensors[of]) < n {
		t, err := tensor.Make[byte](m.server.Allocator(), size)
		if err != nil {
			return nil, err
		}
		m.tensors[of] = append(m.tensors[of], t)
	}
	return m.tensors[of], nil
}

func (m *stepper) close() error {
	if m.step != nil {
		m.step.Close()
	}
	for _, all := range m.tensors {
		for _, t := range all {
			t.Release()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	return m.server.Close(ctx)
}

// stepWork is one run of one task.
type stepWork struct {
	stepRun
	*stepper
	step        *tryst.Step
	peer        string
	own, theirs []*tensor.Tensor // values, which are sent in turn
	dst         []*tensor.Tensor // by worker
}

// answer is the part of task 1.
func (w *stepWork) answer(ctx context.Context) error {
	for i := range w.Count {
		var err error
		switch w.Call {
		case callRecv, callRecvInto:
			for worker := range w.Inflight {
				err = errors.Join(err, w.send(worker, i))
			}
		case callReply:
			if _, err = w.recvInto(ctx, 0, i); err == nil {
				err = w.send(0, i)
			}
		case callSendWait:
			_, err = w.recvInto(ctx, 0, i)
		}
		if err != nil {
			return err
		}
	}
	if w.Call == callSendWait { // a program that waits for each value waits for the next one, too, until its step ends
		w.step.RecvAsync(context.Background(), w.peer, edge(0), func(v tryst.Value, err error) {
			if err == nil {
				v.Tensor.Release()
			}
		})
	}
	return nil
}

// measure is the part of task 0.
func (w *stepWork) measure(ctx context.Context) (run, error) {
	call := map[string]stepCall{callRecv: w.recv, callRecvInto: w.recvInto, callReply: w.reply, callSendWait: w.sendWait}[w.Call]
	if call == nil {
		return run{}, status.Errorf(status.InvalidArgument, "there is no call %q; want one of %s", w.Call, strings.Join(stepCalls, ", "))
	}
	latencies := make([]histogram, w.Inflight)
	ctx, fail := context.WithCancelCause(ctx) // the first error ends all workers
	defer fail(nil)
	var workers sync.WaitGroup
	begin := time.Now()
	for worker := range w.Inflight {
		workers.Go(func() {
			for i := range w.Count {
				took, err := w.after(ctx, call, worker, i)
				if err != nil {
					fail(err)
					return
				}
				latencies[worker].add(took, 1)
			}
		})
	}
	workers.Wait()
	r := run{time: time.Since(begin)}
	if err := context.Cause(ctx); err != nil {
		return r, err
	}
	for i := range latencies {
		r.latencies.merge(&latencies[i])
	}
	r.count = r.latencies.count
	if w.Median {
		return r, r.byMedian()
	}
	r.score = float64(r.count) / r.time.Seconds()
	return r, nil
}

// stepCall makes the i-th call of a worker, and returns how long it took.
type stepCall func(ctx context.Context, worker, i int) (time.Duration, error)

// after makes a call after the pause.
func (w *stepWork) after(ctx context.Context, call stepCall, worker, i int) (time.Duration, error) {
	if w.Pause > 0 {
		if err := pause(ctx, w.Pause); err != nil {
			return 0, err
		}
	}
	return call(ctx, worker, i)
}

// value chooses the i-th value of a worker.
func value(values []*tensor.Tensor, worker, i int) *tensor.Tensor {
	return values[(worker+i)%len(values)]
}

func (w *stepWork) send(worker, i int) error {
	return w.step.Send(w.peer, edge(worker), value(w.own, worker, i))
}

func (w *stepWork) recv(ctx context.Context, worker, i int) (time.Duration, error) {
	begin := time.Now()
	v, err := w.step.Recv(ctx, w.peer, edge(worker))
	took := time.Since(begin)
	if err != nil {
		return took, err
	}
	defer v.Tensor.Release()
	return took, w.check(v.Tensor, v.Arrival, worker, i)
}

func (w *stepWork) recvInto(ctx context.Context, worker, i int) (time.Duration, error) {
	begin := time.Now()
	f, err := w.step.RecvInto(ctx, w.peer, edge(worker), w.dst[worker])
	took := time.Since(begin)
	if err != nil {
		return took, err
	}
	return took, w.check(w.dst[worker], f.Arrival, worker, i)
}

func (w *stepWork) reply(ctx context.Context, worker, i int) (time.Duration, error) {
	begin := time.Now()
	if err := w.send(worker, i); err != nil {
		return 0, err
	}
	sent := time.Since(begin)
	took, err := w.recvInto(ctx, worker, i)
	return sent + took, err
}

func (w *stepWork) sendWait(ctx context.Context, worker, i int) (time.Duration, error) {
	begin := time.Now()
	d, err := w.step.SendWait(ctx, w.peer, edge(worker), value(w.own, worker, i))
	if err == nil {
		err = d.Wait(ctx)
	}
	return time.Since(begin), err
}

// check compares what was received with the value that was to come: the first values of a run as a
// whole, later ones at both ends, which costs nothing.
func (w *stepWork) check(t *tensor.Tensor, by tryst.Arrival, worker, i int) error {
	if by.Transport != w.transport || !strings.HasPrefix(by.Device, w.Device) {
		return status.Errorf(status.FailedPrecondition, "value %d of %s came over %s, device %q, and should come over %s, device %q", i, edge(worker), by.Transport, by.Device, w.transport, w.Device)
	}
	got, want := t.Bytes(), value(w.theirs, worker, i).Bytes()
	same := len(got) == len(want) && bytes.Equal(got[:8], want[:8]) && bytes.Equal(got[len(got)-8:], want[len(want)-8:])
	if i < wholeValues {
		same = bytes.Equal(got, want)
	}
	if !same {
		return status.Errorf(status.DataLoss, "value %d of %s is not the one that was sent", i, edge(worker))
	}
	return nil
}
