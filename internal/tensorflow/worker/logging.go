package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/transport"
)

// records holds the recorders of a worker: one for the masters, and one for each trace under way.
//
//	Logging of a master (FULL_TRACE)  ── transfers ──────────────► log
//	RunGraph with record_timeline     ── kernels of the step ────► its response
//	Record (tryst trace)              ── kernels and transfers ──► recordings
type records struct {
	memory  tensor.Allocator // what records are reserved in
	most    int64            // bytes of one of recordings; 0: no limit but that of memory
	log     *recorder
	wanted  atomic.Int64 // masters that have enabled the log
	records atomic.Pointer[[]*recorder]

	mu   sync.Mutex  // serialises changes of wanted and records; guards what follows
	used time.Time   // when a master last enabled the log or fetched from it
	idle *time.Timer // calls expire; nil before the first use
}

func newRecords(memory tensor.Allocator, most int64) *records {
	return &records{memory: memory, most: most, log: newRecorder(recorderOptions{limit: maxLogged, memory: memory, forgets: true})}
}

// recordings returns the recordings that are under way.
func (r *records) recordings() []*recorder {
	if all := r.records.Load(); all != nil {
		return *all
	}
	return nil
}

// start begins a recording, and stop ends it.
func (r *records) start() (rec *recorder, stop func()) {
	rec = newRecorder(recorderOptions{limit: maxRecorded, most: r.most, memory: r.memory})
	r.change(func(all []*recorder) []*recorder { return append(all, rec) })
	return rec, func() {
		r.change(func(all []*recorder) []*recorder {
			var left []*recorder
			for _, other := range all {
				if other != rec {
					left = append(left, other)
				}
			}
			return left
		})
	}
}

// change replaces the recordings by a changed copy.
func (r *records) change(f func([]*recorder) []*recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := f(append([]*recorder(nil), r.recordings()...))
	r.records.Store(&all)
}

// Transferred records a receive of this process, while somebody wants that. It does not block.
func (w *Worker) Transferred(t transport.Transfer) {
	logged, recordings := w.records.wanted.Load() > 0, w.records.recordings()
	if !logged && len(recordings) == 0 {
		return
	}
	stats, device := transferStats(t), t.Destination.String()
	if logged {
		w.records.log.add(t.Step, device, stats)
	}
	for _, r := range recordings {
		r.add(t.Step, device, stats)
	}
}

// Record returns what runs until ctx ends: the kernels and transfers of all steps, the oldest first. It
// holds a bounded number of records; later ones are dropped, and so are those for which there is no memory. The caller
// must not change the result, which several recordings share, and calls release when it needs it no more.
func (w *Worker) Record(ctx context.Context) (steps []*tfpb.LabeledStepStats, release func()) {
	r, stop := w.records.start()
	<-ctx.Done()
	stop()
	return r.end()
}

// Logging switches the log of transfers for a master, and returns what it has of some steps. It counts
// the masters that have enabled it, as TensorFlow's worker does, so that one of several clients
// does not end it for the others. A log that no master uses for some time ends.
func (w *Worker) Logging(ctx context.Context, req *tfpb.LoggingRequest) (*tfpb.LoggingResponse, error) {
	r, resp := w.records, new(tfpb.LoggingResponse)
	if req.GetEnableRpcLogging() || len(req.GetFetchStepId()) > 0 {
		r.use(req.GetEnableRpcLogging())
	}
	// Masters of earlier releases disable it by a request that neither enables nor fetches.
	if req.GetDisableRpcLogging() || !req.GetEnableRpcLogging() && len(req.GetFetchStepId()) == 0 && !req.GetClear() {
		r.disable()
	}
	for _, step := range req.GetFetchStepId() {
		stats, held := r.log.take(step)
		transport.HoldForResponse(ctx, held...)
		if stats != nil {
			resp.Step = append(resp.Step, &tfpb.LabeledStepStats{StepId: step, StepStats: stats})
		}
	}
	if req.GetClear() {
		r.log.clear()
	}
	if err := w.holdEncoding(ctx, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// disable uncounts a master. The count may not fall below 0: a master may disable twice after a
// call that was cancelled.
func (r *records) disable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted.Load() > 0 {
		r.wanted.Add(-1)
	}
}

// use notes that a master enables the log or fetches from it; expire follows when none does for logIdle.
func (r *records) use(enable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if enable {
		r.wanted.Add(1)
	}
	r.used = time.Now()
	if r.idle == nil {
		r.idle = time.AfterFunc(logIdle, r.expire)
	} else {
		r.idle.Reset(logIdle)
	}
}

// expire ends the log, which masters that have died have left on.
func (r *records) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.used) < logIdle {
		return // it was used while the timer fired
	}
	r.wanted.Store(0)
	r.log.clear()
}

// close stops the timer and ends the log.
func (r *records) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		r.idle.Stop()
	}
	r.wanted.Store(0)
	_, release := r.log.end()
	release()
}

// Tracing is not implemented, as in TensorFlow's worker. Record has what it would.
func (w *Worker) Tracing(context.Context, *tfpb.TracingRequest) (*tfpb.TracingResponse, error) {
	return nil, status.New(status.Unimplemented, "Tracing: use RunOptions of FULL_TRACE, or tryst trace, which records kernels and transfers of a running server")
}

// holdEncoding reserves memory for the encoding of a response, which is not there yet.
func (w *Worker) holdEncoding(ctx context.Context, resp proto.Message) error {
	return w.hold(ctx, int64(proto.Size(resp)))
}

// hold reserves memory for the response of a call until it is written.
func (w *Worker) hold(ctx context.Context, bytes int64) error {
	held, err := tensor.Reserve(w.opts.Allocator, bytes)
	if err != nil {
		return status.From(err).WithPrefix("the response")
	}
	transport.HoldForResponse(ctx, held)
	return nil
}

// record begins to record what the options of a RunGraph ask for. report adds it to the response
// when the step has run.
func (r *run) record(o *tfpb.ExecutorOpts) (report func(context.Context, *tfpb.RunGraphResponse) error) {
	var (
		timeline *recorder
		costs    *costs
	)
	if o.GetRecordTimeline() || o.GetRecordCosts() {
		timeline = newRecorder(recorderOptions{limit: maxTimeline, memory: r.w.opts.Allocator})
	}
	if o.GetRecordCosts() {
		costs = newCosts()
	}
	r.observe = r.observer(timeline, costs)
	return func(ctx context.Context, resp *tfpb.RunGraphResponse) error {
		if timeline != nil {
			stats, held := timeline.take(r.step)
			transport.HoldForResponse(ctx, held...)
			resp.StepStats = stats
		}
		if costs != nil {
			nodes := 0
			for _, p := range r.graph.parts {
				nodes += len(p.graph.Nodes)
			}
			if err := r.w.hold(ctx, costBytes*int64(nodes)); err != nil {
				return err
			}
			resp.CostGraph = costs.graph(r.graph.parts)
		}
		if o.GetRecordPartitionGraphs() {
			for _, p := range r.graph.parts {
				resp.PartitionGraph = append(resp.PartitionGraph, p.partition)
			}
		}
		err := r.w.holdEncoding(ctx, resp)
		if err != nil {
			proto.Reset(resp)
		}
		return err
	}
}

// observer is called for each kernel of a step, with the device that it ran on.
type observer func(device string, n graph.NodeRun)

// observer returns the observer of a step; nil when nobody wants to know.
func (r *run) observer(own *recorder, costs *costs) observer {
	recordings := r.w.records.recordings()
	sampled := r.w.counts.sample()
	if own == nil && costs == nil && len(recordings) == 0 && !sampled {
		return nil
	}
	return func(device string, n graph.NodeRun) {
		if sampled {
			r.w.counts.kernel(r.w.countedOp(n.Node), n.End.Sub(n.Start))
		}
		if costs != nil {
			costs.add(n)
		}
		if own == nil && len(recordings) == 0 {
			return
		}
		stats := kernelStats(n)
		if own != nil {
			own.add(r.step, device, stats)
		}
		for _, rec := range recordings {
			rec.add(r.step, device, stats)
		}
	}
}
