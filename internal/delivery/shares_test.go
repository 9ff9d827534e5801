package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Shares: what one peer makes the table remember takes nothing from another.

func (b *bench) introduce(name string, inc uint64, from string) error {
	b.t.Helper()
	k, acts, err := b.m.introduce(b.now, transport.Process{Name: name, Incarnation: inc}, from)
	b.do(acts)
	if k == nil && err == nil {
		b.t.Fatalf("%s is to be verified", name)
	}
	return err
}

// cancelIDs cancels n ids from first on, and returns the error.
func (b *bench) cancelIDs(first uint64, n int) error {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = first + uint64(i) //nolint:gosec // small
	}
	acts, err := b.m.cancel(b.now, b.requester(), ids)
	b.do(acts)
	return err
}

func (b *bench) wantCode(what string, err error, code status.Code, texts ...string) {
	b.t.Helper()
	if status.CodeOf(err) != code {
		b.t.Errorf("%s: %v, want %v", what, err, code)
	}
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			b.t.Errorf("%s: %v, want %q in it", what, err, text)
		}
	}
}

func TestRememberedIDsHaveAShareForEachRequester(t *testing.T) {
	b := newBench(t, cacheLimits{maxWaiting: 10})
	victim := b.requester()
	b.up()
	b.wantCode("the victim cancels", b.cancelIDs(42, 1), status.OK)
	b.name, b.inc = "/job:client/replica:0/task:66", 66
	b.up()
	share := maxRemembered + 10
	b.wantCode("as many as fit", b.cancelIDs(1000, share), status.OK)
	b.wantCode("the same ones again", b.cancelIDs(1000, share), status.OK)
	b.wantCode("one more", b.cancelIDs(1, 1), status.ResourceExhausted, b.name, fmt.Sprint(share), rememberFor.String())
	b.want("which had no effect, and a new receive needs a place, too", b.request(1, 1, 1), "call 1: ResourceExhausted")
	b.name, b.inc = victim.Name, victim.Incarnation
	b.want("a late copy of what the victim cancelled", b.request(42, 1, 2), "call 2: Aborted")
	b.want("another receive of it", b.request(43, 1, 3), "fetch 1")
	b.want("is cancelled", b.cancel(43), "call 3: Cancelled, stop 1")

	b.pass(rememberFor + time.Second)
	for _, k := range b.m.requesters {
		if len(k.past.ends)+len(k.past.order) > 0 {
			t.Errorf("%s: %d ids are not forgotten", k.name, len(k.past.ends))
		}
	}
	if b.m.remembering.Len() > 0 {
		t.Error("the table looks for more to forget")
	}
}

// A receive has a place for its id, so that it can always be cancelled and given up.
func TestReceivesHaveAPlaceForTheirIDs(t *testing.T) {
	b := newBench(t, cacheLimits{maxWaiting: 10})
	b.up()
	for id := range uint64(10) {
		b.request(id+1, 1, callID(id+1))
	}
	b.wantCode("as many as fit beside them", b.cancelIDs(1000, maxRemembered), status.OK)
	b.wantCode("one more", b.cancelIDs(900, 1), status.ResourceExhausted)
	b.wantCode("all receives", b.cancelIDs(1, 10), status.OK)
	for f := range b.fetch {
		b.fail(f, status.Cancelled)
	}
	if n := b.m.ids; n != maxRemembered+10 {
		t.Errorf("%d ids are counted, want %d", n, maxRemembered+10)
	}
}

func TestRememberedIDsHaveATotal(t *testing.T) {
	b := newBench(t, cacheLimits{maxWaiting: 10})
	share := maxRemembered + 10
	for i := range uint64(waitingInAll) {
		b.name, b.inc = fmt.Sprintf("/job:client/replica:0/task:%d", i+1), i+1
		if err := b.introduce(b.name, b.inc, fmt.Sprint("host", i/sharesOfAddress)); err != nil {
			t.Fatal(err)
		}
		b.wantCode("a share", b.cancelIDs(1, share), status.OK)
	}
	b.name, b.inc = "/job:client/replica:0/task:50", 50
	if err := b.introduce(b.name, b.inc, "host0"); err != nil {
		t.Fatal(err)
	}
	b.wantCode("beyond the share of an origin", b.cancelIDs(1, 1), status.ResourceExhausted, "host0")
	b.name, b.inc = "/job:client/replica:0/task:51", 51
	if err := b.introduce(b.name, b.inc, "host9"); err != nil {
		t.Fatal(err)
	}
	b.wantCode("beyond the total", b.cancelIDs(1, 1), status.ResourceExhausted, "all processes")
	b.name, b.inc = "/job:client/replica:0/task:1", 1
	b.want("what the first one cancelled is remembered", b.request(5, 1, 1), "call 1: Aborted")
}

func TestRequestersHaveAShareForEachAddressAndATotal(t *testing.T) {
	member := "/job:worker/replica:0/task:5"
	b := newBench(t, cacheLimits{addressed: func(name string) bool { return name == member }})
	connect := func(name string, inc uint64, from string) error {
		err := b.introduce(name, inc, from)
		if err == nil {
			_, acts := b.m.connOpened(b.now, transport.Process{Name: name, Incarnation: inc})
			b.do(acts)
		}
		return err
	}
	n := uint64(0)
	fill := func(from string, count int) {
		for range count {
			n++
			if err := connect(fmt.Sprint("invented", n), n, from); err != nil {
				t.Fatalf("%d: %v", n, err)
			}
		}
	}
	fill("host0", maxProcessesOfAddress)
	b.wantCode("beyond the share of an origin", connect("one more", 1<<40, "host0"), status.ResourceExhausted, "host0", fmt.Sprint(maxProcessesOfAddress))
	b.wantCode("another source", connect("a newcomer", 1<<41, "host1"), status.OK)
	for i := 2; len(b.m.requesters) < maxProcesses; i++ {
		fill(fmt.Sprint("host", i), min(maxProcessesOfAddress, maxProcesses-len(b.m.requesters)))
	}
	b.wantCode("beyond the total", connect("one more", 1<<42, "host1"), status.ResourceExhausted, fmt.Sprint(maxProcesses))
	b.wantCode("a task of the cluster", connect(member, 1<<43, "host1"), status.OK)
	b.wantCode("one that is known", connect("invented1", 1, "host0"), status.OK)
}

// Processes that have nothing here make room for others of their source, and are
// forgotten in time.
func TestIdleRequestersMakeSpace(t *testing.T) {
	b := newBench(t, cacheLimits{})
	if err := b.introduce("another", 1<<40, "host1"); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2 * maxProcessesOfAddress) {
		if err := b.introduce(fmt.Sprint("n", i), i+1, "host0"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.m.requesters); n != maxProcessesOfAddress+1 || b.m.unaddressed != n || b.m.idle.Len() != n {
		t.Errorf("%d requesters, %d without address, %d idle", n, b.m.unaddressed, b.m.idle.Len())
	}
	if b.m.requesters["another"] == nil {
		t.Error("one from another source has made room")
	}
	b.name, b.inc = fmt.Sprint("n", maxProcessesOfAddress+1), maxProcessesOfAddress+2
	b.cancel(7) // it is remembered, so it stays
	b.pass(rememberFor)
	if len(b.m.requesters) != 1 {
		t.Errorf("%d requesters are known, want the one whose id was remembered", len(b.m.requesters))
	}
	b.pass(rememberFor)
	if len(b.m.requesters) != 0 || len(b.m.origins) != 0 || b.m.due() {
		t.Errorf("%d requesters of %d origins are not forgotten", len(b.m.requesters), len(b.m.origins))
	}
}

// TestRememberedIDsHaveALimitOfTheProcess: CacheOptions may have fewer than the default.
func TestRememberedIDsHaveALimitOfTheProcess(t *testing.T) {
	b := newBench(t, cacheLimits{maxWaiting: 10, maxRemembered: 100})
	if err := b.introduce(b.name, b.inc, "host"); err != nil {
		t.Fatal(err)
	}
	b.wantCode("as many as may be", b.cancelIDs(1, 110), status.OK)
	b.wantCode("one more", b.cancelIDs(1000, 1), status.ResourceExhausted, "at most 110")
}
