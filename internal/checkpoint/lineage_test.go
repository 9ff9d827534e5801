package checkpoint

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// versionsWorld is a publisher and watchers, as values, with a network between them: announcements that come
// late and break off, pulls that take their time, pullers that stop and hold memory, and servers that restart. It
// checks after every event
//
//   - at most two versions of a name are in memory (held)
//   - no watcher goes back within an epoch, or to an epoch that it has left (older)
//   - what a watcher gets is of one version (mixed)
//
// and when all is quiet that every watcher has the newest version, and no memory is left with an old one.
type versionsWorld struct {
	rand *rand.Rand
	now  time.Time
	log  []string

	epochs   uint64 // that were given out
	contents uint64
	server   *worldServer
	waiting  *worldUpdate // an update that waits; nil without one
	watchers []*worldWatcher

	mistake string // that is planted; empty for none
}

// worldServer is one process of the publisher.
type worldServer struct {
	lineage
	content map[*life]uint64       // of each version
	open    map[*life][]*worldPull // pulls of it that have not ended
	refs    map[*life]int          // references of pullers to its memory
}

type worldUpdate struct{ drop bool }

// worldPull is a pull of a watcher.
type worldPull struct {
	server  *worldServer
	of      *life
	era     uint64
	parts   []uint64 // the content of each part that has come
	left    int
	ended   error // its version is gone; nil while it is there
	stopped bool
}

type worldWatcher struct {
	watch
	stream *worldServer // nil when it is broken
	era    uint64       // of the stream
	sent   announced    // on it
	queue  []Publication
	pull   *worldPull // nil without one
	got    []Publication
	failed error
}

func (w *versionsWorld) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *versionsWorld) start() {
	w.epochs++
	w.server = &worldServer{
		lineage: lineage{bound: 10 * time.Second, epoch: w.epochs},
		content: make(map[*life]uint64), open: make(map[*life][]*worldPull), refs: make(map[*life]int),
	}
	w.waiting = nil
	if w.contents > 0 && w.rand.IntN(2) == 0 { // it goes on where the one before was
		w.contents--
	}
	w.logf("a server starts with epoch %d", w.epochs)
}

func (w *versionsWorld) publication(s *worldServer, v *life) Publication {
	if v == nil {
		return Publication{}
	}
	return Publication{Name: "w", Version: strconv.FormatUint(s.content[v], 10), Number: v.number, Epoch: v.epoch}
}

// end carries out what the lineage has decided.
func (w *versionsWorld) end(s *worldServer, ended []*life) {
	for _, v := range ended {
		w.logf("number %d ends", v.number)
		for _, p := range slices.Clone(s.open[v]) {
			p.ended = status.New(status.FailedPrecondition, "newer").WithPayload(changedKey, nil)
			s.open[v] = nil
			v.pulls--
		}
	}
	for _, v := range slices.Clone(s.old) {
		if v.ended && s.refs[v] == 0 && w.mistake != "memory never comes back" {
			s.back(v)
		}
	}
}

func (w *versionsWorld) update(drop bool) {
	s := w.server
	v := &life{inMemory: true}
	number, err := s.next(0)
	if err != nil {
		panic(err) //nolint:forbidigo // the test is wrong
	}
	if w.mistake == "numbers go back" && s.number > 2 {
		number = s.number - 1
	}
	ended, ok := s.update(w.now, v, number, drop)
	if w.mistake == "no room is needed" && !ok {
		ended, ok = s.enter(w.now, v, number, false), true
	}
	if !ok {
		if w.waiting == nil {
			w.waiting = &worldUpdate{drop}
			w.end(s, s.wait(w.now))
		}
		return
	}
	if w.waiting != nil {
		w.waiting = nil
		s.gaveUp()
	}
	if w.contents++; w.rand.IntN(4) == 0 && s.current != nil && w.contents > 1 {
		s.content[v] = w.contents - 1 // as the version before
	} else {
		s.content[v] = w.contents
	}
	w.logf("number %d of epoch %d enters with content %d", v.number, v.epoch, s.content[v])
	w.end(s, ended)
}

// find is Describe and Open of a version by its content.
func (w *versionsWorld) find(s *worldServer, version string) *life {
	for _, v := range append([]*life{s.current}, s.old...) {
		if v != nil && !v.ended && w.publication(s, v).Version == version {
			return v
		}
	}
	return nil
}

// step lets one thing happen.
func (w *versionsWorld) step() {
	x := w.watchers[w.rand.IntN(len(w.watchers))]
	switch n := w.rand.IntN(100); {
	case n < 12:
		w.update(w.rand.IntN(2) == 0)
	case n < 13:
		w.logf("withdrawn")
		w.epochs++
		w.end(w.server, w.server.withdraw(w.now, w.epochs))
	case n < 15:
		w.restart()
	case n < 18 && x.stream != nil:
		w.logf("a stream breaks")
		x.stream, x.queue = nil, nil
	case n < 22 && x.pull != nil:
		x.pull.stopped = !x.pull.stopped
	case n < 24 && len(w.server.old) > 0:
		w.want(w.server.old[0])
	case n < 40:
		w.now = w.now.Add(time.Duration(w.rand.IntN(3000)) * time.Millisecond)
	default:
		w.work(x)
	}
	w.settle()
}

// want lets the owner of a version's memory begin to wait for it, or wait no more.
func (w *versionsWorld) want(v *life) {
	if v.wanted > 0 {
		w.server.unwant(v)
		return
	}
	w.logf("the memory of number %d is waited for", v.number)
	w.end(w.server, w.server.want(w.now, v))
}

func (w *versionsWorld) restart() {
	old := w.server
	w.start()
	for _, x := range w.watchers {
		if x.stream == old {
			x.stream = nil // what is in its queue may still come
		}
	}
}

// settle does what the shells do at once: timers, updates that wait.
func (w *versionsWorld) settle() {
	w.end(w.server, w.server.tick(w.now))
	if w.waiting != nil {
		w.update(w.waiting.drop)
	}
}

// work lets a watcher do its next thing.
func (w *versionsWorld) work(x *worldWatcher) {
	switch n := w.rand.IntN(4); {
	case x.failed != nil:
	case n == 0 && x.stream == nil && len(x.queue) == 0:
		x.stream, x.era, x.sent = w.server, x.watch.era, announced{}
	case n <= 1 && x.stream == w.server: // the server sends what is current, if it has changed
		p := w.publication(w.server, w.server.current)
		if now := (announced{p.Epoch, p.Number, p.Version == ""}); now != x.sent {
			x.queue, x.sent = append(x.queue, p), now
		}
	case n <= 2 && len(x.queue) > 0:
		p := x.queue[0]
		x.queue = x.queue[1:]
		x.failed = x.announced(p, x.era)
	default:
		w.proceed(x)
	}
}

// proceed lets a watcher begin a pull, or a part of one come.
func (w *versionsWorld) proceed(x *worldWatcher) {
	if x.pull == nil {
		if p, ok, _ := x.wanted(w.now); ok {
			w.begin(x, p)
		}
		return
	}
	p := x.pull
	switch {
	case p.stopped:
	case p.server != w.server:
		w.lose(x, status.New(status.NotFound, "another process"))
	case p.ended != nil:
		w.lose(x, p.ended)
	case p.left > 0:
		p.left--
		p.parts = append(p.parts, p.server.content[p.of])
		if w.mistake == "parts of the current version" && w.server.current != nil {
			p.parts[len(p.parts)-1] = p.server.content[w.server.current]
		}
	default:
		w.came(x)
	}
}

func (w *versionsWorld) begin(x *worldWatcher, p Publication) {
	v := w.find(w.server, p.Version)
	if v == nil {
		w.fail(x, status.New(status.NotFound, "not here"))
		return
	}
	w.server.begin(v)
	x.pull = &worldPull{server: w.server, of: v, era: x.watch.era, left: 3}
	w.server.open[v] = append(w.server.open[v], x.pull)
	w.server.refs[v]++
}

// close ends the pull of a watcher, and gives its references back.
func (w *versionsWorld) close(x *worldWatcher) *worldPull {
	p := x.pull
	x.pull = nil
	p.server.refs[p.of]--
	if i := slices.Index(p.server.open[p.of], p); i >= 0 {
		p.server.open[p.of] = slices.Delete(p.server.open[p.of], i, i+1)
		w.end(p.server, p.server.end(w.now, p.of))
	} else {
		w.end(p.server, nil)
	}
	return p
}

func (w *versionsWorld) lose(x *worldWatcher, err error) {
	w.close(x)
	w.fail(x, err)
}

func (w *versionsWorld) fail(x *worldWatcher, err error) {
	if w.mistake == "a failure is for ever" {
		x.taken = x.newest
		return
	}
	x.failed = x.watch.failed(w.now, err, func(time.Duration) time.Duration { return 0 })
}

func (w *versionsWorld) came(x *worldWatcher) {
	p := w.close(x)
	got := w.publication(p.server, p.of)
	ok, err := x.came(got, p.era)
	x.failed = err
	if !ok {
		return
	}
	got.Tensors = int(slices.Max(p.parts) - slices.Min(p.parts)) // 0 if it is not mixed
	x.got = append(x.got, got)
	w.logf("a watcher got number %d of epoch %d", got.Number, got.Epoch)
}

// check returns what is wrong.
func (w *versionsWorld) check() error {
	if n := w.server.held(); n > maxHeld {
		return fmt.Errorf("%d versions are in memory", n)
	}
	for _, x := range w.watchers {
		if x.failed != nil {
			return fmt.Errorf("a watch ended: %w", x.failed)
		}
		if len(x.got) == 0 {
			continue
		}
		last := x.got[len(x.got)-1]
		if last.Tensors != 0 {
			return fmt.Errorf("number %d is mixed", last.Number)
		}
		if len(x.got) > 1 {
			if before := x.got[len(x.got)-2]; cmp.Or(cmp.Compare(before.Epoch, last.Epoch), cmp.Compare(before.Number, last.Number)) >= 0 {
				return fmt.Errorf("number %d of epoch %d came after number %d of epoch %d", last.Number, last.Epoch, before.Number, before.Epoch)
			}
		}
	}
	return nil
}

// quiet lets all go on without faults, and returns what is wrong then.
func (w *versionsWorld) quiet() error {
	for _, x := range w.watchers {
		if x.pull != nil {
			x.pull.stopped = false
		}
	}
	if w.server.current == nil {
		w.update(false)
	}
	for range 3000 {
		w.now = w.now.Add(100 * time.Millisecond)
		for _, x := range w.watchers {
			w.work(x)
			w.settle()
			if err := w.check(); err != nil {
				return err
			}
		}
	}
	newest := w.publication(w.server, w.server.current)
	for _, x := range w.watchers {
		if last := append([]Publication{{}}, x.got...)[len(x.got)]; last.Epoch != newest.Epoch || last.Number != newest.Number {
			return fmt.Errorf("when all is quiet a watcher has number %d of epoch %d, and the newest is %d of epoch %d", last.Number, last.Epoch, newest.Number, newest.Epoch)
		}
	}
	if n := w.server.held(); n != 1 || w.waiting != nil {
		return fmt.Errorf("when all is quiet %d versions are in memory, and an update waits: %v", n, w.waiting != nil)
	}
	return nil
}

// run runs a world with a seed.
func runVersions(seed uint64, mistake string) (w *versionsWorld, err error) {
	w = &versionsWorld{rand: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1, 0), mistake: mistake} //nolint:gosec // reproducible
	w.start()
	for range 1 + w.rand.IntN(3) {
		w.watchers = append(w.watchers, &worldWatcher{})
	}
	for range 400 {
		w.step()
		if err := w.check(); err != nil {
			return w, err
		}
	}
	return w, w.quiet()
}

func TestSearchOfVersions(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 100
	}
	if n, err := strconv.ParseUint(os.Getenv("TRYST_SIMULATION"), 10, 32); err == nil {
		seeds *= n
	}
	got := 0
	for seed := range seeds {
		w, err := runVersions(seed, "")
		if err != nil {
			for _, line := range w.log {
				t.Log(line)
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, x := range w.watchers {
			got += len(x.got)
		}
	}
	if got < int(seeds) {
		t.Errorf("%d searches: %d versions came; the search has little to find", seeds, got)
	}
}

// Each mistake that the search is for is found.
func TestSearchOfVersionsFindsMistakes(t *testing.T) {
	for _, mistake := range []string{
		"no room is needed", "memory never comes back", "numbers go back",
		"parts of the current version", "a failure is for ever",
	} {
		t.Run(mistake, func(t *testing.T) {
			for seed := range uint64(200) {
				if _, err := runVersions(seed, mistake); err != nil {
					t.Log(seed, err)
					return
				}
			}
			t.Error("it was not found")
		})
	}
}
