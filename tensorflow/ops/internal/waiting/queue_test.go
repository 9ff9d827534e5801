package waiting

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// script runs a queue of numbers, and writes down what each event has ended.
type script struct {
	t       *testing.T
	q       *Queue[int]
	names   map[*Attempt[int]]string
	pending map[string]*Attempt[int]
}

func newScript(t *testing.T, r Rules, s Store[int]) *script {
	r.Kind, r.Base, r.Name = "Queue", "Queue", "q"
	return &script{t: t, q: NewQueue(r, s), names: map[*Attempt[int]]string{}, pending: map[string]*Attempt[int]{}}
}

func fifoScript(t *testing.T, capacity int) *script {
	return newScript(t, Rules{Capacity: capacity}, NewFIFO[int]())
}

// attempt makes an attempt. An enqueue of a negative number fails.
func (s *script) attempt(name string, a Attempt[int], values ...int) *Attempt[int] {
	if len(values) > 0 {
		a.Count = len(values)
		a.Next = func(i int) (int, error) {
			if values[i] < 0 {
				return 0, errors.New("negative")
			}
			return values[i], nil
		}
	}
	s.names[&a], s.pending[name] = name, &a
	return &a
}

func (s *script) text(ended []*Attempt[int]) string {
	var texts []string
	for _, a := range ended {
		if !a.Ended() {
			s.t.Errorf("%s has not ended", s.names[a])
		}
		text := s.names[a]
		switch {
		case a.Err != nil:
			text += ": " + status.From(a.Err).Message()
		case a.Next == nil && a.Count > 0:
			text += " " + fmt.Sprint(a.Elements)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func (s *script) put(name string, values ...int) string {
	return s.text(s.q.Enqueue(s.attempt(name, Attempt[int]{}, values...)))
}

func (s *script) take(name string) string {
	return s.text(s.q.Dequeue(s.attempt(name, Attempt[int]{Count: 1, Single: true})))
}

func (s *script) many(name string, n int) string {
	return s.text(s.q.Dequeue(s.attempt(name, Attempt[int]{Count: n})))
}

func (s *script) upTo(name string, n int) string {
	return s.text(s.q.Dequeue(s.attempt(name, Attempt[int]{Count: n, Small: true})))
}

func (s *script) close(name string) string { return s.text(s.q.Close(s.attempt(name, Attempt[int]{}))) }

func (s *script) closeNow(name string) string {
	return s.text(s.q.CloseNow(s.attempt(name, Attempt[int]{})))
}

func (s *script) cancel(name string) string { return s.text(s.q.Cancel(s.pending[name])) }

func (s *script) want(got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestADequeueWaitsForAnElement(t *testing.T) {
	s := fifoScript(t, 3)
	s.want(s.take("first"), "")
	s.want(s.take("second"), "")
	s.want(s.put("put", 7), "put, first [7]")
	s.want(s.put("more", 8, 9), "more, second [8]")
	s.want(s.take("third"), "third [9]")
}

func TestAnEnqueueWaitsForRoom(t *testing.T) {
	s := fifoScript(t, 2)
	s.want(s.put("many", 1, 2, 3, 4), "")
	s.want(s.put("next", 5), "")
	s.want(s.take("a"), "a [1]")
	s.want(s.take("b"), "b [2], many")
	s.want(s.many("c", 3), "next, c [3 4 5]")
}

// No attempt overtakes another of its side, even if it could end at once.
func TestTheFirstAttemptHoldsBackTheOthers(t *testing.T) {
	s := fifoScript(t, 9)
	s.want(s.many("three", 3), "")
	s.want(s.take("one"), "")
	s.want(s.put("a", 1, 2), "a")
	s.want(s.put("b", 3), "b, three [1 2 3]")
	s.want(s.put("c", 4), "c, one [4]")
}

func TestACloseComesAfterTheEnqueuesThatWait(t *testing.T) {
	s := fifoScript(t, 1)
	s.want(s.put("put", 1, 2), "")
	s.want(s.close("close"), "")
	s.want(s.put("late", 3), "")
	if s.q.Closed() {
		t.Error("closed before the enqueues that waited have ended")
	}
	s.want(s.take("a"), "a [1], put, close, late: Queue 'q' is closed.")
	s.want(s.close("again"), "again: Queue 'q' is already closed.")
	s.want(s.closeNow("now"), "now")
	s.want(s.take("b"), "b [2]")
	s.want(s.take("c"), "c: Queue 'q' is closed and has insufficient elements (requested 1, current size 0)")
}

func TestAQueueThatIsClosedAtOnceKeepsWhatItHas(t *testing.T) {
	s := fifoScript(t, 1)
	s.want(s.put("put", 1, 2), "")
	s.want(s.close("close"), "")
	s.want(s.closeNow("now"), "now, put: Enqueue operation was cancelled, close: Enqueue operation was cancelled")
	s.want(s.take("a"), "a [1]")
}

// What a batch has taken goes back to the front when the queue is closed before it is complete.
func TestACloseGivesAnIncompleteBatchBack(t *testing.T) {
	s := fifoScript(t, 9)
	s.want(s.put("put", 1, 2), "put")
	s.want(s.many("five", 5), "")
	s.want(s.take("one"), "")
	s.want(s.close("close"), "close, five: Queue 'q' is closed and has insufficient elements (requested 3, current size 0), one [1]")
	s.want(s.many("three", 3), "three: Queue 'q' is closed and has insufficient elements (requested 3, current size 1)")
	s.want(s.upTo("up to three", 3), "up to three [2]")
	s.want(s.upTo("more", 3), "more: Queue 'q' is closed and has insufficient elements (requested 3, current size 0)")
}

func TestABatchThatMayBeSmallTakesTheRest(t *testing.T) {
	s := fifoScript(t, 9)
	s.want(s.put("put", 1, 2), "put")
	s.want(s.upTo("five", 5), "")
	s.want(s.upTo("next", 5), "")
	s.want(s.closeNow("now"), "now, five [1 2], next: Queue 'q' is closed and has insufficient elements (requested 5, current size 0)")
}

// As in TensorFlow elements are lost with a step that had taken them.
func TestACancelledBatchLosesWhatItHasTaken(t *testing.T) {
	s := fifoScript(t, 9)
	s.want(s.put("put", 1, 2), "put")
	s.want(s.many("five", 5), "")
	s.want(s.take("one"), "")
	s.want(s.cancel("five"), "five: Dequeue operation was cancelled")
	if lost := s.pending["five"].Elements; !slices.Equal(lost, []int{1, 2}) {
		t.Errorf("%v are for the caller to release, want 1 and 2", lost)
	}
	s.want(s.cancel("five"), "")
	s.want(s.put("more", 3), "more, one [3]")
}

// A cancel of the first attempt lets the next ones go on.
func TestACancelLetsTheNextGoOn(t *testing.T) {
	s := fifoScript(t, 2)
	s.want(s.put("two", 1, 2), "two")
	s.want(s.many("five", 5), "")
	s.want(s.put("six", 3, 4, 5), "six, five [1 2 3 4 5]")
	s.want(s.put("fill", 1, 2, 3), "")
	s.want(s.close("close"), "")
	s.want(s.cancel("fill"), "fill: Enqueue operation was cancelled, close")

	sorted := newScript(t, Rules{Capacity: 9, Whole: true}, NewHeap(func(i int) int64 { return int64(i) }))
	sorted.want(sorted.put("put", 5, 3), "put")
	sorted.want(sorted.many("three", 3), "")
	sorted.want(sorted.take("one"), "")
	sorted.want(sorted.cancel("three"), "three: Dequeue operation was cancelled, one [3]")
}

// A close whose step has ended takes place all the same, and such closes do not pile up.
func TestACancelledCloseTakesPlaceLater(t *testing.T) {
	s := fifoScript(t, 1)
	s.want(s.put("put", 1, 2), "")
	for i := range 100 {
		name := fmt.Sprint("close ", i)
		s.want(s.close(name), "")
		s.want(s.cancel(name), name+": Close operation was cancelled")
	}
	if n := len(s.q.enqueues); n != 2 {
		t.Errorf("%d attempts wait, want the enqueue and one close", n)
	}
	s.want(s.take("a"), "a [1], put")
	if !s.q.Closed() {
		t.Error("the queue is not closed")
	}
}

// An element that cannot be made ends the attempt; those before it stay.
func TestAnElementThatFailsEndsItsEnqueue(t *testing.T) {
	s := fifoScript(t, 9)
	s.want(s.put("put", 1, -1, 2), "put: negative")
	s.want(s.put("next", 3), "next")
	s.want(s.many("all", 2), "all [1 3]")
}

func TestADropEndsAllAttempts(t *testing.T) {
	s := fifoScript(t, 2)
	s.want(s.put("put", 1, 2, 3), "")
	ended, elements := s.q.Drop(errors.New("gone"))
	s.want(s.text(ended), "put: gone")
	if !slices.Equal(elements, []int{1, 2}) {
		t.Errorf("%v are for the caller to release, want 1 and 2", elements)
	}
}

// A shuffled queue keeps some elements until it is closed.
func TestAShuffledQueueKeepsSomeElements(t *testing.T) {
	s := newScript(t, Rules{Capacity: 9, Stay: 2}, NewShuffled[int](func() uint32 { return 1 }))
	s.want(s.put("put", 1, 2, 3), "put")
	s.want(s.take("a"), "a [2]")
	s.want(s.take("b"), "")
	s.want(s.close("close"), "close, b [3]")
	s.want(s.upTo("c", 9), "c [1]")
}

// A sorted queue gives a batch when all of it is there, so that it is sorted.
func TestASortedQueueGivesWholeBatches(t *testing.T) {
	s := newScript(t, Rules{Capacity: 9, Whole: true}, NewHeap(func(i int) int64 { return int64(i) }))
	s.want(s.put("put", 5, 3), "put")
	s.want(s.many("three", 3), "")
	if n := s.q.Len(); n != 2 {
		t.Errorf("%d elements, want 2: the batch has taken some", n)
	}
	s.want(s.put("more", 1), "more, three [1 3 5]")
	s.want(s.put("rest", 9, 8), "rest")
	s.want(s.close("close"), "close")
	s.want(s.upTo("five", 5), "five: Queue 'q' is closed and has insufficient elements (requested 3, current size 0)")
}

// TestPriorities has the order of TensorFlow's PriorityQueue among elements of one priority.
func TestPriorities(t *testing.T) {
	for _, c := range []struct{ priorities, want []int }{
		{[]int{3, 1, 2, 1, 3, 1, 2, 2, 0, 1}, []int{8, 5, 1, 9, 3, 6, 2, 7, 0, 4}},
		{make([]int, 12), []int{0, 2, 6, 11, 10, 9, 8, 5, 7, 4, 1, 3}},
	} {
		h := NewHeap(func(i int) int64 { return int64(c.priorities[i]) })
		for i := range c.priorities {
			h.Push(i)
		}
		var got []int
		for h.Len() > 0 {
			got = append(got, h.Pop())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.priorities, got, c.want)
		}
	}
}

// model is a queue that is simple and slow. One step moves one element into it, or all that the first dequeue
// gets, if none can be moved in.
type model struct {
	capacity   int
	closed     bool
	elements   []int
	puts, gets []*wish
}

// wish is an attempt of the model.
type wish struct {
	id     int
	values []int // of an enqueue
	n      int   // of a dequeue
	close  bool
	small  bool
	got    []int
	end    string
}

func (m *model) settle() {
	for m.step() {
	}
}

func (m *model) step() bool {
	if len(m.puts) > 0 {
		w := m.puts[0]
		switch {
		case w.close && m.closed:
			w.end = "already closed"
		case w.close:
			m.closed, w.end = true, "ok"
		case m.closed:
			w.end = "closed"
		case len(m.elements) < m.capacity:
			m.elements, w.values = append(m.elements, w.values[0]), w.values[1:]
			if len(w.values) == 0 {
				w.end = "ok"
			}
		default:
			return m.get()
		}
		if w.end != "" {
			m.puts = m.puts[1:]
		}
		return true
	}
	return m.get()
}

func (m *model) get() bool {
	if len(m.gets) == 0 {
		return false
	}
	w := m.gets[0]
	switch size := len(m.elements); {
	case m.closed && size < w.n-len(w.got):
		m.elements = append(slices.Clone(w.got), m.elements...)
		left := w.n - len(w.got)
		w.got = nil
		if w.small && len(m.elements) > 0 {
			w.n = len(m.elements)
			return true
		}
		w.end = fmt.Sprintf("insufficient %d %d", left, size)
	case size > 0:
		n := min(size, w.n-len(w.got))
		w.got, m.elements = append(w.got, m.elements[:n]...), m.elements[n:]
		if len(w.got) == w.n {
			w.end = "ok"
		}
	default:
		return false
	}
	if w.end != "" {
		m.gets = m.gets[1:]
	}
	return true
}

func (m *model) cancel(w *wish) {
	if w.end == "" && !w.close {
		w.end = "cancelled"
		is := func(o *wish) bool { return o == w }
		m.puts, m.gets = slices.DeleteFunc(m.puts, is), slices.DeleteFunc(m.gets, is)
	}
}

func (m *model) closeNow() {
	m.closed = true
	for _, w := range m.puts {
		w.end = "cancelled"
	}
	m.puts = nil
}

// endOf returns how an attempt has ended, in the words of the model.
func endOf(a *Attempt[int]) string {
	if !a.Ended() {
		return ""
	}
	if a.Err == nil {
		return "ok"
	}
	switch text := status.From(a.Err).Message(); {
	case strings.Contains(text, "already closed"):
		return "already closed"
	case strings.Contains(text, "cancelled"):
		return "cancelled"
	case strings.Contains(text, "insufficient"):
		var left, size int
		if _, err := fmt.Sscanf(text[strings.Index(text, "("):], "(requested %d, current size %d)", &left, &size); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("insufficient %d %d", left, size)
	case strings.Contains(text, "is closed"):
		return "closed"
	default:
		return text
	}
}

// searches returns how many seeds a search takes.
func searches(n uint64) uint64 {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestQueueIsTheModel runs random events in a queue and in the model, and compares all attempts after each.
func TestQueueIsTheModel(t *testing.T) {
	for seed := range searches(1000) {
		compareWithModel(t, rand.New(rand.NewPCG(seed, 1)), 40)
		if t.Failed() {
			t.Fatalf("with the seed %d", seed)
		}
	}
}

func FuzzQueueIsTheModel(f *testing.F) {
	f.Add(uint64(1), 40)
	f.Fuzz(func(t *testing.T, seed uint64, events int) {
		compareWithModel(t, rand.New(rand.NewPCG(seed, 2)), min(events, 500))
	})
}

func compareWithModel(t *testing.T, r *rand.Rand, events int) {
	m := &model{capacity: r.IntN(5)}
	q := NewQueue(Rules{Kind: "K", Base: "K", Name: "q", Capacity: m.capacity}, NewFIFO[int]())
	var attempts []*Attempt[int]
	var wishes []*wish
	var done []*Attempt[int] // by the queue
	closing := 1 + r.IntN(20)
	next := 0
	for range events {
		a, w := &Attempt[int]{}, &wish{id: len(wishes)}
		switch k := r.IntN(10 + closing); {
		case k < 4+closing/2:
			for range 1 + r.IntN(4) {
				w.values = append(w.values, next)
				next++
			}
			values := slices.Clone(w.values)
			a.Count, a.Next = len(values), func(i int) (int, error) { return values[i], nil }
			m.puts = append(m.puts, w)
			done = append(done, q.Enqueue(a)...)
		case k < 8+closing:
			w.n, w.small = 1+r.IntN(4), r.IntN(2) == 0
			a.Count, a.Small = w.n, w.small
			if w.n == 1 {
				a.Single, a.Small, w.small = true, false, false
			}
			m.gets = append(m.gets, w)
			done = append(done, q.Dequeue(a)...)
		case k < 9+closing && len(wishes) > 0:
			i := r.IntN(len(wishes))
			if wishes[i].close {
				continue
			}
			m.cancel(wishes[i])
			done = append(done, q.Cancel(attempts[i])...)
			a, w = attempts[i], wishes[i]
		case r.IntN(2) == 0:
			w.close = true
			m.puts = append(m.puts, w)
			done = append(done, q.Close(a)...)
		default:
			w.close, w.end = true, "ok"
			m.closeNow()
			done = append(done, q.CloseNow(a)...)
		}
		if w.id == len(wishes) {
			attempts, wishes = append(attempts, a), append(wishes, w)
		}
		m.settle()
		if q.Len() != len(m.elements) || q.Closed() != m.closed {
			t.Errorf("%d elements, closed %v, want %v, %v", q.Len(), q.Closed(), m.elements, m.closed)
		}
		ended := 0
		for i, w := range wishes {
			a := attempts[i]
			if endOf(a) != w.end || w.end == "ok" && !slices.Equal(a.Elements, w.got) {
				t.Errorf("attempt %d: %q %v, want %q %v", i, endOf(a), a.Elements, w.end, w.got)
			}
			if w.end != "" {
				ended++
			}
		}
		if ended != len(done) {
			t.Errorf("%d attempts have ended, and %d were returned", ended, len(done))
		}
		if t.Failed() {
			return
		}
	}
}

// TestNoElementIsDoubled: whatever the order of a queue is, each element comes out once, some for attempts that were cancelled, and a
// queue that is not closed never holds more than its capacity.
func TestNoElementIsDoubled(t *testing.T) {
	for seed := range searches(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		rules := Rules{Kind: "K", Base: "K", Name: "q", Capacity: 1 + r.IntN(6)}
		store := NewFIFO[int]()
		switch seed % 3 {
		case 1:
			store = NewShuffled[int](r.Uint32)
			rules.Stay = r.IntN(rules.Capacity)
		case 2:
			store = NewHeap(func(i int) int64 { return int64(i % 5) })
			rules.Whole = true
		}
		q := NewQueue(rules, store)
		var all []*Attempt[int]
		in := map[int]bool{}
		next := 0
		for range 60 {
			a := &Attempt[int]{}
			switch k := r.IntN(12); {
			case k < 5:
				first := next
				a.Count = 1 + r.IntN(5)
				a.Next = func(i int) (int, error) { in[first+i] = true; return first + i, nil }
				next += a.Count
				q.Enqueue(a)
			case k < 10:
				a.Count, a.Small = 1+r.IntN(5), r.IntN(2) == 0
				q.Dequeue(a)
			case k < 11 && len(all) > 0:
				q.Cancel(all[r.IntN(len(all))])
				continue
			case r.IntN(8) == 0:
				q.Close(a)
			default:
				continue
			}
			all = append(all, a)
			if q.Len() > rules.Capacity && !q.Closed() {
				t.Fatalf("seed %d: %d elements, the capacity is %d", seed, q.Len(), rules.Capacity)
			}
		}
		_, rest := q.Drop(errors.New("gone"))
		for _, a := range all {
			rest = append(rest, a.Elements...)
		}
		if slices.Sort(rest); len(rest) != len(in) || len(slices.Compact(rest)) != len(in) {
			t.Fatalf("seed %d: %d elements came out, and %d have been added", seed, len(rest), len(in))
		}
	}
}
