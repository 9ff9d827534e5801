package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// bench calls the machine responses: each event is a method, which returns the actions as text.
// The test ends local receives, by value or fail.
type bench struct {
	t   *testing.T
	m   *responses
	now time.Time
	*leaks
	fetch map[uint64]transport.Request // receives under way
	inc   uint64
	name  string
	conns []*requester // those that live
}

func everyName(string) bool { return true }

func newBench(t *testing.T, limits cacheLimits) *bench {
	if limits.maxWaiting == 0 {
		limits.maxWaiting = 1000
	}
	if limits.maxWaitingBytes == 0 {
		limits.maxWaitingBytes = 1 << 20
	}
	if limits.keptPerRequester == 0 {
		limits.keptPerRequester = 1 << 30
	}
	if limits.keptTotal == 0 {
		limits.keptTotal = 1 << 40
	}
	if limits.keptPerAddress == 0 {
		limits.keptPerAddress = limits.keptTotal
	}
	b := &bench{t: t, m: newResponses(limits), now: t0, leaks: newLeaks(t), fetch: make(map[uint64]transport.Request), inc: 7, name: consumer}
	t.Cleanup(func() {
		for _, k := range b.m.requesters {
			b.do(b.m.drop(k, status.New(status.Aborted, "end")))
		}
		for f := range b.fetch {
			b.fail(f, status.Cancelled)
		}
	})
	return b
}

func (b *bench) do(acts []responseAction) string {
	var out []string
	for _, a := range acts {
		switch a.kind {
		case doFetch:
			b.fetch[a.fetch] = a.request
			out = append(out, fmt.Sprintf("fetch %d", a.fetch))
		case doStopFetch:
			out = append(out, fmt.Sprintf("stop %d", a.fetch))
		case doReply:
			out = append(out, fmt.Sprintf("call %d: %s", callOf(&a), word(a.response)))
			if a.response.Err == nil {
				a.response.Value.Tensor.Release()
			}
		case doRestore:
			out = append(out, "restore "+strings.TrimPrefix(word(a.response), "value "))
			a.response.Value.Tensor.Release()
		case doRelease:
			what := "release " + strings.TrimPrefix(word(transport.Response{Value: a.response.Value}), "value ")
			if a.response.Err != nil { // the sender learns that it was lost
				what += " " + word(transport.Response{Err: a.response.Err})
			}
			out = append(out, what)
			a.response.Value.Tensor.Release()
		}
	}
	return strings.Join(out, ", ")
}

// request requests key k<id>.
func (b *bench) request(id uint64, attempt uint32, call callID) string {
	return b.do(b.m.request(b.now, transport.Request{
		Requester: transport.Process{Name: b.name, Incarnation: b.inc}, ID: id, Attempt: attempt, Step: 1, Key: key(b.t, fmt.Sprint("k", id)),
	}, call))
}

// value ends a local receive with a value of n bytes, x.
func (b *bench) value(f uint64, x byte, n int) string {
	ask, ok := b.fetch[f]
	if !ok {
		b.t.Fatalf("no receive %d is under way", f)
	}
	delete(b.fetch, f)
	return b.do(b.m.fetched(b.now, ask, f, transport.Response{Value: b.leaks.value(b.t, x, n)}))
}

func (b *bench) fail(f uint64, code status.Code) string {
	ask := b.fetch[f]
	delete(b.fetch, f)
	return b.do(b.m.fetched(b.now, ask, f, transport.Response{Err: status.New(code, "source")}))
}

func (b *bench) ack(ids ...uint64) string { return b.do(b.m.ack(b.now, b.requester(), ids)) }
func (b *bench) cancel(ids ...uint64) string {
	acts, err := b.m.cancel(b.now, b.requester(), ids)
	if err != nil {
		return err.Error()
	}
	return b.do(acts)
}
func (b *bench) requester() transport.Process {
	return transport.Process{Name: b.name, Incarnation: b.inc}
}
func (b *bench) detach(c callID) string    { return b.do(b.m.detachID(b.now, c)) }
func (b *bench) endStep(step int64) string { return b.do(b.m.endStep(b.now, step)) }
func (b *bench) up() string {
	k, acts := b.m.connOpened(b.now, transport.Process{Name: b.name, Incarnation: b.inc})
	if k != nil {
		b.conns = append(b.conns, k)
	}
	return b.do(acts)
}
func (b *bench) down() string {
	for i, k := range b.conns {
		if k.incarnation == b.inc {
			b.m.connClosed(b.now, k)
			b.conns = slices.Delete(b.conns, i, i+1)
			break
		}
	}
	return ""
}
func (b *bench) tick() string { acts, _ := b.m.tick(b.now); return b.do(acts) }
func (b *bench) pass(d time.Duration) string {
	b.now = b.now.Add(d)
	return b.tick()
}

func (b *bench) want(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Each transition of the chart in answers.go.
func TestResponsesChart(t *testing.T) {
	small := cacheLimits{keptPerRequester: 2 * (keptOverhead + 100)}
	publishing := cacheLimits{republishes: func(rendezvous.Key) bool { return true }}
	for _, c := range []struct {
		name   string
		limits cacheLimits
		run    func(b *bench)
	}{
		{"fetching to kept to gone", cacheLimits{}, func(b *bench) {
			b.want("request", b.request(1, 1, 1), "fetch 1")
			b.want("fetched", b.value(1, 'a', 10), "call 1: value a")
			b.want("requested again", b.request(1, 2, 2), "call 2: value a")
			b.want("ack", b.ack(1), "release a")
			b.want("ack again", b.ack(1), "")
		}},
		{"kept, cancelled", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.value(1, 'a', 10)
			b.want("cancel", b.cancel(1), "restore a")
			b.want("late copy", b.request(1, 1, 2), "call 2: Aborted")
		}},
		{"fetching, detached, stopped", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.want("detach", b.detach(1), "stop 1")
			b.want("stopped", b.fail(1, status.Cancelled), "")
			b.want("requested again", b.request(1, 2, 2), "fetch 2")
		}},
		{"stopping, asked again, stopped", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.detach(1)
			b.want("requested again", b.request(1, 2, 2), "")
			b.want("stopped", b.fail(1, status.Cancelled), "fetch 2")
			b.want("fetched", b.value(2, 'a', 1), "call 2: value a")
		}},
		{"stopping, a value came first", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.detach(1)
			b.want("fetched", b.value(1, 'a', 1), "")
			b.want("requested again", b.request(1, 2, 2), "call 2: value a")
		}},
		{"stopping, asked again, a value came first", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.detach(1)
			b.request(1, 2, 2)
			b.want("fetched", b.value(1, 'a', 1), "call 2: value a")
		}},
		{"stopping, asked again, an error of the source", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.detach(1)
			b.request(1, 2, 2)
			b.want("fetched", b.fail(1, status.Aborted), "call 2: Aborted")
		}},
		{"stopping, cancelled, a value came first", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.detach(1)
			b.want("cancel", b.cancel(1), "stop 1")
			b.want("fetched", b.value(1, 'a', 1), "restore a")
		}},
		{"fetching, cancelled", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.want("cancel", b.cancel(1), "call 1: Cancelled, stop 1")
			b.want("stopped", b.fail(1, status.Cancelled), "")
			b.want("a value never comes", b.request(1, 2, 2), "call 2: Aborted")
		}},
		{"cancelled before it was asked", cacheLimits{}, func(b *bench) {
			b.up()
			b.want("cancel", b.cancel(1), "")
			b.want("request", b.request(1, 1, 1), "call 1: Aborted")
		}},
		{"older and newer attempts", cacheLimits{}, func(b *bench) {
			b.request(1, 2, 1)
			b.want("older", b.request(1, 1, 2), "call 2: Aborted")
			b.want("newer", b.request(1, 3, 3), "call 1: Aborted")
			b.want("same", b.request(1, 3, 4), "")
			b.want("fetched", b.value(1, 'a', 1), "call 3: value a, call 4: value a")
		}},
		{"acknowledged after two attempts: the first is a late copy", cacheLimits{}, func(b *bench) {
			b.request(1, 2, 1)
			b.value(1, 'a', 1)
			b.ack(1)
			b.want("late", b.request(1, 1, 2), "call 2: Aborted")
			b.want("remembered", b.pass(rememberFor-time.Second)+b.request(1, 1, 3), "call 3: Aborted")
			b.want("forgotten", b.pass(time.Second)+b.request(1, 1, 4), "fetch 2")
		}},
		{"another key or step", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			a := transport.Request{Requester: transport.Process{Name: b.name, Incarnation: b.inc}, ID: 1, Attempt: 2, Step: 1, Key: key(b.t, "other")}
			b.want("key", b.do(b.m.request(b.now, a, callID(2))), "call 2: InvalidArgument")
			a.Key, a.Step = key(b.t, "k1"), 2
			b.want("step", b.do(b.m.request(b.now, a, callID(3))), "call 3: InvalidArgument")
		}},
		{"lost for 60 s", cacheLimits{}, func(b *bench) {
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.want("an hour with a connection", b.pass(time.Hour), "")
			b.down()
			b.want("59 s without", b.pass(expireAfter-time.Second), "")
			b.want("60 s", b.pass(time.Second), "release a DataLoss")
			b.want("requested again", b.request(1, 2, 2), "call 2: DataLoss")
		}},
		{"published: lost for 60 s", publishing, func(b *bench) {
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.down()
			b.want("dropped", b.pass(expireAfter), "release a DataLoss")
			b.up()
			b.want("requested again", b.request(1, 2, 2), "fetch 2")
			b.want("it comes", b.value(2, 'a', 1), "call 2: value a")
			b.want("cancelled", b.cancel(1), "restore a")
			b.want("nothing was lost", b.request(2, 1, 3), "fetch 3")
		}},
		{"published: an error, lost for 60 s", publishing, func(b *bench) {
			b.up()
			b.request(1, 1, 1)
			b.fail(1, status.Internal)
			b.down()
			b.want("dropped", b.pass(expireAfter), "")
			b.want("requested again", b.request(1, 2, 2), "fetch 2")
		}},
		{"lost, then cancelled: the next receive under the key reports it", cacheLimits{}, func(b *bench) {
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.down()
			b.want("dropped", b.pass(expireAfter), "release a DataLoss")
			b.up()
			b.want("cancelled", b.cancel(1)+b.cancel(1), "")
			b.want("another key", b.request(2, 1, 2), "fetch 2")
			as := func(id uint64, attempt uint32, c callID) string {
				r := transport.Request{Requester: b.requester(), ID: id, Attempt: attempt, Step: 1, Key: key(b.t, "k1")}
				return b.do(b.m.request(b.now, r, c))
			}
			b.want("the key", as(3, 1, 3), "call 3: DataLoss")
			b.want("again", as(3, 2, 4), "call 4: DataLoss")
			b.want("cancelled before it was heard", b.cancel(3), "")
			b.want("the key again", as(4, 1, 5), "call 5: DataLoss")
			b.ack(4)
			b.want("reported", b.cancel(4)+as(5, 1, 6), "fetch 3")
		}},
		{"lost, then cancelled: receives that wait under the key report it", cacheLimits{}, func(b *bench) {
			as := func(id uint64, attempt uint32, c callID) string {
				r := transport.Request{Requester: b.requester(), ID: id, Attempt: attempt, Step: 1, Key: key(b.t, "k1")}
				return b.do(b.m.request(b.now, r, c))
			}
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			as(2, 1, 2)
			b.value(2, 'b', 1)
			b.down()
			b.pass(expireAfter) // both are dropped, in any order
			b.up()
			as(3, 1, 3)
			as(4, 1, 4)
			as(5, 1, 5)
			b.want("the first", b.cancel(1), "call 3: DataLoss, stop 3")
			b.want("what it had found goes back", b.value(3, 'c', 1), "restore c")
			b.want("it asks again", as(3, 2, 6), "call 6: DataLoss")
			b.want("it is cancelled with the second", b.cancel(2, 3), "call 4: DataLoss, stop 4, call 5: DataLoss, stop 5")
			b.ack(4, 5)
			b.fail(4, status.Cancelled)
			b.fail(5, status.Cancelled)
			b.want("both are reported", b.cancel(2, 3, 4, 5)+as(6, 1, 7), "fetch 6")
		}},
		{"lost, then cancelled: one that waits for space reports it", cacheLimits{keptPerRequester: 1}, func(b *bench) {
			as := func(id uint64, attempt uint32, c callID) string {
				r := transport.Request{Requester: b.requester(), ID: id, Attempt: attempt, Step: 1, Key: key(b.t, "k1")}
				return b.do(b.m.request(b.now, r, c))
			}
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.down()
			b.want("dropped", b.pass(expireAfter), "release a DataLoss")
			b.up()
			b.request(9, 1, 9)
			b.value(2, 'z', 1)
			b.want("no space", as(2, 1, 2), "")
			b.want("cancelled", b.cancel(1), "call 2: DataLoss")
			b.want("space", b.ack(2, 9), "release z")
			b.want("reported", as(3, 1, 3), "fetch 3")
		}},
		{"lost, then cancelled: one between two attempts reports it", cacheLimits{}, func(b *bench) {
			as := func(id uint64, attempt uint32, c callID) string {
				r := transport.Request{Requester: b.requester(), ID: id, Attempt: attempt, Step: 1, Key: key(b.t, "k1")}
				return b.do(b.m.request(b.now, r, c))
			}
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.down()
			b.want("dropped", b.pass(expireAfter), "release a DataLoss")
			b.up()
			b.want("waits", as(2, 1, 2), "fetch 2")
			b.want("its call ends", b.detach(2), "stop 2")
			b.want("cancelled", b.cancel(1), "stop 2")
			b.want("a value came first", b.value(2, 'b', 1), "restore b")
			b.want("the next attempt", as(2, 2, 3), "call 3: DataLoss")
		}},
		{"a connection comes back", cacheLimits{}, func(b *bench) {
			b.up()
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.down()
			b.pass(expireAfter - time.Second)
			b.up()
			b.want("an hour", b.pass(time.Hour), "")
		}},
		{"there was never a connection", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.want("a call that waits is a sign of life", b.pass(time.Hour), "")
			b.value(1, 'a', 1)
			b.want("59 s", b.pass(expireAfter-time.Second), "")
			b.want("60 s", b.pass(time.Second), "release a DataLoss")
		}},
		{"limited, room, fetched", small, func(b *bench) {
			for i := uint64(1); i <= 2; i++ {
				b.request(i, 1, callID(i))
				b.value(i, byte('a'+i), 100)
			}
			b.want("no space", b.request(3, 1, 3), "")
			b.want("space", b.ack(1), "release b, fetch 3")
			b.want("fetched", b.value(3, 'c', 100), "call 3: value c")
		}},
		{"limited, detached", small, func(b *bench) {
			b.request(1, 1, 1)
			b.value(1, 'a', 200)
			b.request(2, 1, 2)
			b.value(2, 'b', 0)
			b.want("no space", b.request(3, 1, 3), "")
			b.want("detach", b.detach(3), "")
			b.want("space", b.ack(1), "release a")
		}},
		{"limited, cancelled", small, func(b *bench) {
			b.request(1, 1, 1)
			b.value(1, 'a', 200)
			b.request(2, 1, 2)
			b.value(2, 'b', 0)
			b.request(3, 1, 3)
			b.want("cancel", b.cancel(3), "call 3: Cancelled")
			b.want("space", b.ack(1), "release a")
		}},
		{"limited, the step ends", small, func(b *bench) {
			b.request(1, 1, 1)
			b.value(1, 'a', 1000)
			b.want("no space", b.request(2, 1, 2), "")
			got := strings.Split(b.endStep(1), ", ")
			slices.Sort(got)
			b.want("end", strings.Join(got, ", "), "call 2: Aborted, release a Aborted")
		}},
		{"too large now", small, func(b *bench) {
			b.request(1, 1, 1)
			b.request(2, 1, 2)
			b.value(1, 'a', 200)
			b.want("no room for it", b.value(2, 'b', 1000), "restore b")
			b.want("space", b.ack(1), "release a, fetch 3")
			b.want("larger than the limit, alone", b.value(3, 'b', 5000), "call 2: value b")
		}},
		{"too large now, nobody asks", small, func(b *bench) {
			b.request(1, 1, 1)
			b.request(2, 1, 2)
			b.value(1, 'a', 200)
			b.detach(2)
			b.want("no room for it", b.value(2, 'b', 1000), "restore b")
			b.want("nothing is fetched for a request that has ended", b.ack(1), "release a")
		}},
		{"a large value is not kept waiting by small ones", small, func(b *bench) {
			b.request(1, 1, 1)
			b.request(2, 1, 2)
			b.value(1, 'a', 1)
			b.value(2, 'b', 1000)
			b.want("behind it", b.request(3, 1, 3), "")
			b.want("space for both, in order", b.ack(1), "release a, fetch 3")
			b.want("large", b.value(3, 'b', 1000), "call 2: value b")
			b.want("then small", b.ack(2), "release b, fetch 4")
		}},
		{"space reserved for a value that another receive got", small, func(b *bench) {
			b.request(1, 1, 1)
			b.request(2, 1, 2)
			b.value(1, 'a', 200)
			b.value(2, 'b', 1000)
			b.request(3, 1, 3)
			b.want("space for one", b.ack(1), "release a, fetch 3")
			ask := b.fetch[3]
			b.want("it waits", b.do(b.m.waits(b.now, ask, 3)), "fetch 4")
			b.want("it still does", b.do(b.m.waits(b.now, ask, 3)), "")
			b.want("fetched", b.value(4, 'c', 100), "call 3: value c")
		}},
		{"ended while it fetches", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.want("end", b.endStep(1), "")
			b.want("fetched", b.value(1, 'a', 1), "call 1: value a, release a Aborted")
		}},
		{"another process under the name", cacheLimits{addressed: everyName}, func(b *bench) {
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.request(2, 1, 2)
			b.detach(2)
			old := b.inc
			b.inc = 8
			got := strings.Split(b.request(1, 1, 3), ", ")
			slices.Sort(got)
			b.want("ask", strings.Join(got, ", "), "fetch 3, release a Aborted")
			b.want("its value", b.value(2, 'b', 1), "restore b")
			b.inc = old
			b.want("a late copy of the old one", b.request(3, 1, 4), "call 4: Aborted")
			b.up()
			b.inc = 8
			b.want("the new one is served", b.value(3, 'c', 1), "call 3: value c")
		}},
		{"a cancel of nothing", cacheLimits{}, func(b *bench) {
			b.up()
			b.want("cancel", b.cancel(0), "")
			b.want("its process is not past", b.request(1, 1, 1), "fetch 1")
		}},
		{"the incarnation of another name", cacheLimits{}, func(b *bench) {
			b.request(1, 1, 1)
			b.value(1, 'a', 1)
			b.name = "/job:c/replica:0/task:1"
			b.want("request", b.request(1, 1, 2), "fetch 2")
			b.want("ack", b.ack(1), "")
			b.want("cancel", b.cancel(1), "call 2: Cancelled, stop 2")
		}},
		{"a cancel of a process that is not known", cacheLimits{}, func(b *bench) {
			b.want("cancel", b.cancel(1), "")
			b.want("its request comes late", b.request(1, 1, 1), "call 1: Aborted")
			b.want("the next one", b.request(2, 1, 2), "fetch 1")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newBench(t, c.limits)) })
	}
}

// The limit for all: requesters in turn, a large value does not starve, and only
// who cannot be reached loses something.
func TestResponsesLimitForAll(t *testing.T) {
	b := newBench(t, cacheLimits{keptTotal: 2*keptOverhead + 1000})
	as := func(inc uint64) { b.inc, b.name = inc, fmt.Sprintf("/job:c/replica:0/task:%d", inc) }
	as(1)
	b.up()
	b.request(1, 1, 1)
	b.value(1, 'a', 900)
	as(2)
	b.up()
	b.request(1, 1, 2)
	b.want("too large", b.value(2, 'b', 900), "restore b")
	as(3)
	b.want("behind it", b.request(1, 1, 3), "")
	as(1)
	b.want("even for its own", b.request(2, 1, 4), "")
	b.want("who has a connection keeps all", b.pass(time.Hour), "")
	b.down()
	b.want("who has a call too", b.pass(time.Hour), "")
	b.want("detach", b.detach(4), "")
	b.want("who has neither gives way", b.pass(0), "release a DataLoss, fetch 3, fetch 4")
	b.want("DataLoss", b.request(1, 2, 5), "call 5: DataLoss")
	b.want("fetched", b.value(3, 'b', 900), "call 2: value b")
}

func TestResponsesWaitingLimits(t *testing.T) {
	b := newBench(t, cacheLimits{maxWaiting: 2})
	b.request(1, 1, 1)
	b.request(2, 1, 2)
	b.want("third", b.request(3, 1, 3), "call 3: ResourceExhausted")
	b.want("requested again", b.request(2, 2, 4), "call 2: Aborted")
	b.value(1, 'a', 1)
	b.want("after one was answered", b.request(3, 1, 5), "fetch 3")
	for inc := uint64(100); inc < 120; inc++ {
		b.inc, b.name = inc, fmt.Sprint("/job:c/replica:0/task:", inc)
		b.request(1, 1, callID(inc))
	}
	if b.m.waiting > 2*waitingInAll {
		t.Errorf("%d receives of all wait, want at most %d", b.m.waiting, 2*waitingInAll)
	}

	b = newBench(t, cacheLimits{maxWaitingBytes: int64(len(key(t, "k1").String()))})
	b.request(1, 1, 1)
	b.want("bytes", b.request(2, 1, 2), "call 2: ResourceExhausted")
}

// TestRefusalsOfWaitingReceivesMayPass: when others have ended; a key that is longer than all may be stays refused.
func TestRefusalsOfWaitingReceivesMayPass(t *testing.T) {
	size := int64(len(key(t, "k1").String()))
	for name, tt := range map[string]struct {
		limits          cacheLimits
		waiting         int
		bytes           int64
		all             int
		refused, passes bool
	}{
		"none":                 {cacheLimits{maxWaiting: 2, maxWaitingBytes: size}, 0, 0, 0, false, false},
		"number":               {cacheLimits{maxWaiting: 2, maxWaitingBytes: size}, 2, 0, 2, true, true},
		"bytes":                {cacheLimits{maxWaiting: 2, maxWaitingBytes: size}, 1, 1, 1, true, true},
		"number of all":        {cacheLimits{maxWaiting: 2, maxWaitingBytes: size}, 0, 0, 2 * waitingInAll, true, true},
		"a key that is longer": {cacheLimits{maxWaiting: 2, maxWaitingBytes: size - 1}, 0, 0, 0, true, false},
	} {
		r := &responses{limits: tt.limits, waiting: tt.all}
		err := r.countWaiting(&requester{name: "a", waiting: tt.waiting, waitBytes: tt.bytes}, transport.Request{Key: key(t, "k1")})
		if (err != nil) != tt.refused {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err != nil {
			if _, passes := err.Payload(status.TryAgain); passes != tt.passes {
				t.Errorf("%s: it passes: %v, want %v: %v", name, passes, tt.passes, err)
			}
		}
	}
}

// Facts of TensorFlow's response cache, which the table is for requesters without
// incarnation.

func cacheBench(t *testing.T) *bench {
	b := newBench(t, cacheLimits{})
	b.inc, b.name = 0, ""
	return b
}

func TestC1FirstRequestIsHandled(t *testing.T) {
	b := cacheBench(t)
	b.want("request", b.request(1, 0, 1), "fetch 1")
}

func TestC2DuplicateWhileActive(t *testing.T) {
	b := cacheBench(t)
	b.request(1, 0, 1)
	b.want("duplicate", b.request(1, 0, 2), "")
	b.want("one computation", b.value(1, 'a', 1), "call 1: value a, call 2: value a")
	for c := callID(10); c < 10+2*maxCalls; c++ {
		b.request(2, 0, c)
	}
	if got := len(b.m.requesters[""].entries[2].calls); got != maxCalls {
		t.Errorf("%d calls wait for one receive, want %d", got, maxCalls)
	}
}

func TestC3DuplicateAfterFinished(t *testing.T) {
	b := cacheBench(t)
	b.request(1, 0, 1)
	b.value(1, 'a', 1)
	b.want("at once", b.request(1, 0, 2), "call 2: value a")
}

func TestC4FinishErases(t *testing.T) {
	b := cacheBench(t)
	b.request(1, 0, 1)
	b.value(1, 'a', 1)
	b.want("ack", b.ack(1), "release a")
	b.want("request", b.request(1, 0, 2), "fetch 2")
}

func TestC5CleanupErasesTheStep(t *testing.T) {
	b := cacheBench(t)
	b.request(1, 0, 1)
	b.value(1, 'a', 1)
	other := transport.Request{ID: 2, Step: 2, Key: key(t, "k2")}
	b.do(b.m.request(b.now, other, callID(2)))
	b.value(2, 'b', 1)
	b.want("cleanup", b.endStep(1), "release a Aborted")
	b.want("the other step", b.do(b.m.request(b.now, other, callID(3))), "call 3: value b")
}

// TestResponsesOfWithdrawnKeysAreReleased in all steps, also in those that nobody ends; those of other keys stay.
func TestResponsesOfWithdrawnKeysAreReleased(t *testing.T) {
	b := cacheBench(t)
	b.request(1, 0, 1)
	b.value(1, 'a', 1)
	other := transport.Request{ID: 2, Step: 2, Key: key(t, "k2")}
	b.do(b.m.request(b.now, other, callID(2)))
	b.value(2, 'b', 1)
	withdrawn := key(t, "k2")
	b.want("withdrawn", b.do(b.m.endKeys(b.now, func(k rendezvous.Key) bool { return k.String() == withdrawn.String() })), "release b Aborted")
	b.want("the other key", b.ack(1), "release a")
	b.want("asked for again", b.do(b.m.request(b.now, other, callID(3))), "fetch 3") // the publisher says that it is gone
}

func TestC6FinishOfUnknownID(t *testing.T) {
	b := cacheBench(t)
	b.want("no requester", b.ack(9), "")
	b.request(1, 0, 1)
	b.want("no id", b.ack(9), "")
	b.want("not answered yet", b.ack(1), "")
	b.want("fetched", b.value(1, 'a', 1), "call 1: value a")
}

// C7 is the worker's: here an requester without incarnation has no attempts, so that
// the end of its call does not end its receive, and it cannot cancel.
func TestC7CallEndsReceiveGoesOn(t *testing.T) {
	b := cacheBench(t)
	b.request(1, 0, 1)
	b.want("detach", b.detach(1), "")
	if got := b.cancel(1); !strings.HasPrefix(got, "FailedPrecondition") {
		t.Errorf("cancel: %s", got)
	}
	b.want("fetched", b.value(1, 'a', 1), "")
	b.want("never given up", b.pass(time.Hour), "")
	b.want("retry", b.request(1, 0, 2), "call 2: value a")
}

func TestC8ErrorsAreCached(t *testing.T) {
	for _, inc := range []uint64{0, 7} {
		b := newBench(t, cacheLimits{})
		if b.inc = inc; inc == 0 {
			b.name = ""
		}
		b.request(1, 0, 1)
		b.want("error", b.fail(1, status.Internal), "call 1: Internal")
		b.want("again", b.request(1, 0, 2), "call 2: Internal")
		b.want("ack", b.ack(1), "")
		b.want("new", b.request(1, 0, 3), "fetch 2")
	}
}

func TestResponsesValue(t *testing.T) {
	b := newBench(t, cacheLimits{})
	check := func(what string, ok bool, code status.Code) {
		t.Helper()
		v, got, err := b.m.value(b.requester(), 1, 1)
		if got != ok || status.CodeOf(err) != code {
			t.Errorf("%s: %v, %v", what, got, err)
		}
		if got {
			v.Tensor.Release()
		}
	}
	check("no requester", false, status.OK)
	b.request(1, 1, 1)
	check("waits", false, status.OK)
	b.value(1, 'a', 1)
	check("kept", true, status.OK)
	b.pass(expireAfter)
	check("given up", false, status.DataLoss)
	b.request(2, 1, 2)
	b.fail(2, status.Internal)
	if _, ok, err := b.m.value(b.requester(), 2, 1); ok || status.CodeOf(err) != status.Internal {
		t.Errorf("error: %v, %v", ok, err)
	}
}

// A request that was overtaken by its next attempt may come when the step has been
// cleaned up and the requester has what it wanted. Nobody would ever finish with an
// answer that is kept for it.
func TestResponsesLateCopyAfterCleanup(t *testing.T) {
	for name, end := range map[string]func(b *bench){
		"kept": func(b *bench) {
			b.value(1, 'a', 10)
			b.endStep(1)
		},
		"fetching": func(b *bench) {
			b.endStep(1)
			b.fail(1, status.Aborted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, cacheLimits{})
			b.up()
			b.want("the second attempt", b.request(1, 2, 1), "fetch 1")
			end(b)
			b.ack(1)
			b.want("the first", b.request(1, 1, 2), "call 2: Aborted")
			b.want("a third", b.request(1, 3, 3), "call 3: Aborted")
			if n := len(b.m.requesters[b.name].entries); n != 0 {
				t.Errorf("%d entries stay", n)
			}
		})
	}
	t.Run("waiting for room", func(t *testing.T) {
		b := newBench(t, cacheLimits{keptPerRequester: keptOverhead})
		b.up()
		b.want("another", b.request(9, 1, 1), "fetch 1")
		b.value(1, 'z', 10)
		b.want("the second attempt", b.request(1, 2, 2), "")
		b.endStep(1)
		b.want("the first", b.request(1, 1, 3), "call 3: Aborted")
	})
}

// What a peer can make the table hold is bounded, and each event stays cheap.
func TestResponsesHostilePeers(t *testing.T) {
	k := key(t, "k")
	t.Run("answers without content", func(t *testing.T) {
		b := newBench(t, cacheLimits{keptPerRequester: 100 * keptOverhead})
		for i := uint64(1); i <= 1000; i++ {
			b.request(i, 1, callID(i))
			for f := range b.fetch {
				b.fail(f, status.Aborted)
			}
		}
		if n := len(b.m.requesters[b.name].entries) - b.m.waiting; n != 100 {
			t.Errorf("%d errors are kept, want 100", n)
		}
	})
	t.Run("a hundred thousand receives without room", func(t *testing.T) {
		b := newBench(t, cacheLimits{maxWaiting: 1 << 30, maxWaitingBytes: 1 << 50, keptPerRequester: 1})
		b.request(1, 1, 1)
		b.value(1, 'a', 1)
		const n = 100_000
		for i := range uint64(n) {
			b.do(b.m.request(b.now, transport.Request{Requester: b.requester(), ID: 2 + i, Attempt: 1, Key: k}, callID(2+i)))
		}
		for i := range uint64(n) {
			id := 2 + n - 1 - i
			b.do(b.m.detach(b.now, b.requester(), call{callID(id), id, 1})) // would take minutes if each looked at all
		}
		if b.m.waiting != 0 || b.m.turns.Len() != 0 {
			t.Errorf("%d wait, %d turns", b.m.waiting, b.m.turns.Len())
		}
	})
}

// A timer for old ids must not keep what is lost afterwards waiting.
func TestResponsesTickReturnsTheNextTime(t *testing.T) {
	b := newBench(t, cacheLimits{})
	b.up()
	b.request(1, 2, 1)
	b.value(1, 'a', 1)
	b.request(2, 1, 2)
	b.value(2, 'b', 1)
	b.ack(1) // remembered for ten minutes
	b.down()
	b.now = b.now.Add(time.Second)
	if _, next := b.m.tick(b.now); !next.Equal(t0.Add(expireAfter)) {
		t.Errorf("next look at %v, want %v", next.Sub(t0), expireAfter)
	}
	b.want("given up", b.pass(expireAfter-time.Second), "release b DataLoss")
	if _, next := b.m.tick(b.now); !next.Equal(t0.Add(rememberFor)) {
		t.Errorf("next look at %v, want %v", next.Sub(t0), rememberFor)
	}
}

// TestResponsesShareOfAnAddress: processes of one address that acknowledge nothing leave space to others, wait
// among themselves in turn, and those that are unreachable give way to the others.
func TestResponsesShareOfAnAddress(t *testing.T) {
	b := newBench(t, cacheLimits{keptPerAddress: 2*keptOverhead + 1000, keptTotal: 4*keptOverhead + 2000})
	as := func(inc uint64, from string) {
		b.inc, b.name = inc, fmt.Sprintf("/job:c/replica:0/task:%d", inc)
		if _, _, err := b.m.introduce(b.now, b.requester(), from); err != nil {
			t.Fatal(err)
		}
	}
	as(1, "one host")
	b.up()
	b.request(1, 1, 1)
	b.value(1, 'a', 900)
	as(2, "one host")
	b.up()
	b.request(1, 1, 2)
	b.want("too large for the host", b.value(2, 'b', 900), "restore b")
	as(3, "one host")
	b.want("behind it", b.request(1, 1, 3), "")
	as(4, "another host")
	b.up()
	b.want("not for another host", b.request(1, 1, 4), "fetch 3")
	b.want("which has its share", b.value(3, 'c', 900), "call 4: value c")
	b.want("and its acknowledgement is none of theirs", b.ack(1), "release c")
	as(1, "one host")
	b.want("who is gone gives way", b.down()+b.pass(0), "release a DataLoss, fetch 4, fetch 5")
	b.want("in turn", b.value(4, 'b', 900), "call 2: value b")
}

// TestErrorsThatAreToldAgainAreNotKept: a request may have waited in a connection that was lost, or its client may have closed, and
// then nobody acknowledges the error. Each attempt asks again: a step that is over gives the same error, a publication what it has now.
func TestErrorsThatAreToldAgainAreNotKept(t *testing.T) {
	for _, c := range []struct{ over, published bool }{{}, {over: true}, {published: true}} {
		over := c.over || c.published
		b := cacheBench(t)
		b.m.limits.over = func(int64, rendezvous.Key) bool { return c.over }
		b.m.limits.republishes = func(rendezvous.Key) bool { return c.published }
		b.request(1, 1, 1)
		b.want("the answer", b.fail(1, status.FailedPrecondition), "call 1: FailedPrecondition")
		want := "call 2: FailedPrecondition"
		if over {
			want = "fetch 2"
		}
		b.want("the next attempt", b.request(1, 2, 2), want)
		if over {
			b.want("its answer", b.fail(2, status.FailedPrecondition), "call 2: FailedPrecondition")
			if n := len(b.m.known(b.requester()).entries); n != 0 {
				t.Errorf("%d entries are kept", n)
			}
		}
	}
}
