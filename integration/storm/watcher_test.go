//go:build linux

package storm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// What watchers do.
const (
	// watchTime is how long a watch goes on, on average, before it is cancelled and another one begins.
	watchTime = 4 * time.Second
	// slowWatch is the longest time that a slow watcher has a version before it asks for the next one, and slowWatches
	// their share.
	slowWatch   = 2500 * time.Millisecond
	slowWatches = 0.3
	// sameClient is the share of watches that go on with the client of the one before.
	sameClient = 0.5
	// hastyApplies is the share of Applies with a context that ends soon.
	hastyApplies = 0.2
	// settleTime is how long watchers may take to get the newest versions when all is quiet: pauses of up to 3 s in the
	// watch and in gRPC, and Updates that wait for memory. plantedSettle is the same with a planted mistake.
	settleTime    = 20 * time.Second
	plantedSettle = 3 * time.Second
)

// newest is a version that watchers must get.
type newest struct {
	Task   int
	Name   string
	Number uint64
	Epoch  uint64
}

// watcherSeat watches one publication, by one watch after the other.
type watcherSeat struct {
	n       *node
	task    int
	name    string
	place   bool
	client  *server.Client
	version checkpoint.Publication // that the present watch had last; guarded by the node's mutex
	ending  bool                   // that watch ends; likewise
}

// runWatcher watches all publications of versions, until it is told to stop.
func (n *node) runWatcher() {
	n.options() // makes the pool
	n.answer(answer{Op: opUp})
	ctx, cancel := context.WithCancel(n.ctx)
	var seats []*watcherSeat
	var work sync.WaitGroup
	for task := range tasks {
		for _, s := range []watcherSeat{{name: weights}, {name: weights, place: true}, {name: shapes}} {
			s.n, s.task = n, task
			seats = append(seats, &s)
			work.Go(func() { s.run(ctx) })
		}
	}
	in := json.NewDecoder(os.Stdin)
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			os.Exit(exitAlone)
		}
		switch c.Op {
		case opSettle:
			n.setQuiet()
			n.work.Go(func() { n.settle(ctx, seats, c.Newest) })
		case opClose:
			n.log.write(record{Kind: kindLeave})
			cancel()
			time.AfterFunc(closeTime, func() { os.Exit(exitAlone) }) // also what hangs must end
			work.Wait()
			n.work.Wait()
			n.answer(answer{Op: opClose, Error: n.leftOver()})
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}
	}
}

// leftOver describes what is left when all watches have ended; "" for nothing.
func (n *node) leftOver() string {
	text := ""
	if left := n.inUse(); left != 0 {
		text = fmt.Sprintf("%s%d bytes of tensors were never released; ", leftBehind, left)
	}
	if leak := goleak.Find(); leak != nil {
		text += leftBehind + leak.Error()
	}
	return text
}

// setQuiet ends the time of slow watchers, and of watches that end.
func (n *node) setQuiet() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.isQuiet {
		n.isQuiet = true
		close(n.quiet)
	}
}

// settle waits until all watchers have the newest versions, or for long, and answers.
func (n *node) settle(ctx context.Context, seats []*watcherSeat, want []newest) {
	limit := settleTime
	if n.Plant != plantNone {
		limit = plantedSettle
	}
	for late := time.Now().Add(limit); !n.have(seats, want) && time.Now().Before(late); {
		if !pause(ctx, 20*time.Millisecond) {
			break
		}
	}
	n.answer(answer{Op: opSettle})
}

// have reports whether all watchers have the newest versions.
func (n *node) have(seats []*watcherSeat, want []newest) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range seats {
		for _, w := range want {
			if s.task == w.Task && s.name == w.Name && (s.ending || s.version.Epoch != w.Epoch || s.version.Number != w.Number) {
				return false
			}
		}
	}
	return true
}

// run makes one watch after the other, until ctx ends.
func (s *watcherSeat) run(ctx context.Context) {
	defer func() { s.leave() }()
	for ctx.Err() == nil {
		if s.client == nil {
			c, err := server.Dial(ctx, s.n.config().ForClient(), s.n.Cluster[s.task], s.n.options())
			if err != nil {
				if ctx.Err() == nil {
					s.n.log.write(record{Kind: kindMem, Peer: s.task, Text: "dial: " + err.Error()})
				}
				return
			}
			s.client = c
		}
		s.watch(ctx)
		if rand.Float64() >= sameClient {
			s.leave()
		}
	}
}

// leave closes the client.
func (s *watcherSeat) leave() {
	if s.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.client.Close(ctx) // acknowledgements may be cut off
	s.client = nil
}

// watch makes one watch.
func (s *watcherSeat) watch(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	s.begin()
	life := time.Duration(rand.ExpFloat64() * float64(watchTime))
	s.n.work.Go(func() { // unless it is quiet
		select {
		case <-s.n.quiet:
		case <-ctx.Done():
		case <-time.After(life):
			s.end(cancel)
		}
	})
	w := &oneWatch{watcherSeat: s, parent: parent, ctx: ctx, slow: rand.Float64() < slowWatches}
	w.rec = record{Kind: kindWatch, Peer: s.task, Name: s.name, Recv: s.n.recvs.Add(1), Place: s.place}
	into, free := s.into()
	defer free()
	w.into = into
	r := w.rec
	r.Text = fmt.Sprintf("slow %v, into %d maps", w.slow, len(into))
	s.n.log.write(r)
	err := w.loop()
	w.ends(err)
}

// begin notes that a watch begins, which has no version.
func (s *watcherSeat) begin() {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.version, s.ending = checkpoint.Publication{}, false
}

// end ends a watch, unless it is quiet.
func (s *watcherSeat) end(cancel context.CancelFunc) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	if !s.n.isQuiet {
		s.ending = true
		cancel()
	}
}

// had notes which version the watcher has.
func (s *watcherSeat) had(p checkpoint.Publication) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.version = p
}

// into returns memory for the watch: one map, two or none.
func (s *watcherSeat) into() (maps []map[string]*tensor.Tensor, free func()) {
	count := 0
	switch {
	case s.place:
		count = 1
	case s.name == weights && rand.IntN(2) == 0:
		count = 2
	}
	var all []*tensor.Tensor
	for range count {
		list, err := stamp{Name: s.name}.tensors(s.n.pool)
		if err != nil {
			break // the pool has no bound
		}
		all = append(all, list...)
		maps = append(maps, byName(list))
	}
	return maps, func() { releaseAll(all) }
}

func byName(list []*tensor.Tensor) map[string]*tensor.Tensor {
	m := make(map[string]*tensor.Tensor, len(list))
	for _, t := range list {
		m[t.Name()] = t
	}
	return m
}

// oneWatch is a watch.
type oneWatch struct {
	*watcherSeat
	parent context.Context // ends with the process
	ctx    context.Context
	slow   bool
	into   []map[string]*tensor.Tensor
	rec    record
	last   *keptVersion // the version that it has, unless in place
}

// keptVersion is a version with its content at the time when it came.
type keptVersion struct {
	*checkpoint.Version
	rec record
}

// loop takes one version after the other.
func (w *oneWatch) loop() error {
	defer w.giveBack(nil)
	req := checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: w.name}, Into: w.into}
	for v, err := range w.client.Puller().Watch(w.ctx, req) {
		if err != nil {
			return err
		}
		if w.n.Plant == plantStuck && w.task == 1 {
			<-w.parent.Done() // it never asks for the next one
			v.Release()
			return w.parent.Err()
		}
		if w.place {
			w.inPlace(v)
		} else {
			w.take(v)
		}
		if w.slow {
			w.rest()
		}
	}
	return nil
}

// rest is the pause of a slow watcher.
func (w *oneWatch) rest() {
	select {
	case <-w.n.quiet:
	case <-w.ctx.Done():
	case <-time.After(rand.N(slowWatch)):
	}
}

// of is a record of a version.
func (w *oneWatch) of(k kind, p checkpoint.Publication) record {
	r := w.rec
	r.Kind, r.Number, r.Epoch = k, p.Number, p.Epoch
	return r
}

// take logs a version and gives the one before back.
func (w *oneWatch) take(v *checkpoint.Version) {
	r := w.of(kindYield, v.Publication)
	w.mix(v)
	r.see(byName(v.Tensors))
	w.yielded(r)
	w.giveBack(&keptVersion{v, r})
	w.had(v.Publication)
}

// see notes the content of a version.
func (r *record) see(tensors map[string]*tensor.Tensor) {
	var s stamp
	s, r.Torn = readVersion(tensors)
	r.Stamp = &s
}

// giveBack gives the version back that the watcher has, and looks at it a last time.
func (w *oneWatch) giveBack(next *keptVersion) {
	if k := w.last; k != nil {
		r := w.of(kindKept, k.Publication)
		if b := k.Tensors[0].Bytes(); len(b) > 0 && w.n.strikes(plantWrite) {
			b[len(b)-1] ^= 1
		}
		r.see(byName(k.Tensors))
		if r.Torn == "" && *r.Stamp != *k.rec.Stamp {
			r.Torn = fmt.Sprintf("it has %v, and had %v", *r.Stamp, *k.rec.Stamp)
		}
		if k.rec.Torn == "" && r.Torn != "" { // what came so is reported once
			w.n.log.write(r)
		}
		if !w.n.strikes(plantLeak) {
			k.Release()
		}
	}
	w.last = next
}

// inPlace logs a version and applies it.
func (w *oneWatch) inPlace(v *checkpoint.Version) {
	r := w.of(kindYield, v.Publication)
	r.see(w.into[0])
	w.n.log.write(r)
	w.had(v.Publication)
	for range 3 {
		ctx, cancel := w.ctx, context.CancelFunc(func() {})
		if rand.Float64() < hastyApplies {
			ctx, cancel = soonOver(w.ctx)
		}
		err := w.free(ctx)
		if err == nil {
			err = v.Apply(ctx)
		}
		r := w.of(kindApplied, v.Publication)
		if err != nil {
			r.Code, r.Text = status.CodeOf(err).String(), err.Error()
			overdue(ctx, r.Code)
			if c := ctx.Err(); c != nil {
				r.Ctx = c.Error()
			}
		} else {
			r.see(w.into[0])
		}
		cancel()
		w.n.log.write(r)
		if err == nil {
			w.had(v.Publication)
			return
		}
		if w.ctx.Err() != nil {
			return
		}
	}
}

// free waits until nobody writes any more what an Apply that failed has begun.
func (w *oneWatch) free(ctx context.Context) error {
	for _, t := range w.into[0] {
		if err := t.Buffer().WaitUnique(ctx); err != nil {
			return err
		}
	}
	return nil
}

// overdue waits for the end of a context whose deadline a peer has noticed just before.
func overdue(ctx context.Context, code string) {
	at, ok := ctx.Deadline()
	if ok && code == status.DeadlineExceeded.String() && time.Until(at) < time.Second {
		<-ctx.Done()
	}
}

// ends logs the end of a watch.
func (w *oneWatch) ends(err error) {
	r := w.of(kindUnwatch, checkpoint.Publication{})
	if c := w.ctx.Err(); c != nil {
		r.Ctx = c.Error()
	}
	if err != nil {
		r.Code, r.Text = status.CodeOf(err).String(), err.Error()
	}
	if w.n.strikes(plantEnd) {
		r.Code, r.Ctx = status.Unavailable.String(), ""
	}
	w.n.log.write(r)
}
