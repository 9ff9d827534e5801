package channel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/wire"
)

// sharing gives n keys of one length that have the same number.
func sharing(n int) (keys []string) {
	for i := 1000; len(keys) < n; i++ {
		if k := fmt.Sprint("key ", i); numberOf(k) == numberOf("key 1000") {
			keys = append(keys, k)
		}
	}
	return keys
}

// bareRequest is a REQUEST without a key, on one rail.
const bareRequest = 64

// asks begins a receive at side 0 and looks what goes over the wire: the key or its
// number alone. Either way the other side is asked for the key.
func (l *link) asks(id uint64, key string, named bool) {
	l.t.Helper()
	l.receive(id, key)
	l.run()
	if len(l.wants) == 0 || len(l.ends[1].asked) == 0 {
		l.t.Fatalf("receive %d: REQUEST never came, %s", id, l.ends[1].closed())
	}
	m, asked := l.wants[len(l.wants)-1], l.ends[1].asked[len(l.ends[1].asked)-1]
	want := key
	if !named {
		want = ""
	}
	if m.ID != id || string(m.Key) != want || m.Number != numberOf(key) || len(m.Finished) == 0 && !m.HasDest && m.Length() != bareRequest+len(want) {
		l.t.Errorf("REQUEST %d of %d bytes with key %q and number %d, want receive %d, %q", m.ID, m.Length(), m.Key, m.Number, id, want)
	}
	if asked.ID != id || string(asked.Key) != key || asked.Number != m.Number {
		l.t.Errorf("receive %d is for %q: asked %+v", id, key, asked)
	}
}

func TestKeyThatWasNamedGoesByItsNumber(t *testing.T) {
	l := newLink(t)
	l.sends(100)
	k := sharing(3)
	for i, step := range []struct {
		key   string
		named bool
	}{
		{k[0], true},
		{k[0], false},
		{"another", true}, // of another number
		{k[0], false},
		{k[1], true}, // takes the number
		{k[1], false},
		{k[0], true}, // and has to give it back
		{"another", false},
		{k[2], true},
		{k[1], true},
		{k[1], false},
	} {
		l.asks(uint64(i)+1, step.key, step.named)
	}
	l.clean()
}

// TestKeysInAnyOrder: the sender's side is asked for what the receive is for, though
// some keys share a number and others are long.
func TestKeysInAnyOrder(t *testing.T) {
	l := newLink(t)
	l.sends(100, 64<<10, -1)
	keys := append(sharing(4), "another", strings.Repeat("long", 1000), strings.Repeat("long", 1000)+"er")
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that can be repeated
	short := 0
	for id := uint64(1); id < 500; id++ {
		key := keys[rng.IntN(len(keys))]
		l.asks(id, key, l.ends[0].ch.numbers[numberOf(key)-1] != key)
		if len(l.wants[id-1].Key) == 0 {
			short++
		}
	}
	if short < 100 {
		t.Errorf("%d of 499 requests went without their key", short)
	}
	if why := l.ends[1].closed(); why != "" {
		t.Error(why)
	}
	l.clean()
}

// TestPeerWithoutNumbers: one of an earlier version has each key in full.
func TestPeerWithoutNumbers(t *testing.T) {
	l := newLink(t, func(c *Config) { c.KeyNumbers = false })
	l.sends(100)
	for id := range uint64(3) {
		l.receive(id+1, "k")
		l.run()
		if m := l.wants[id]; string(m.Key) != "k" || m.Number != 0 || l.ends[1].asked[id].Number != 0 {
			t.Errorf("REQUEST %+v asked %+v", m, l.ends[1].asked[id])
		}
	}
	l.clean()
}

// TestRequestThatWasNotSentNamesNothing: it waits for credits, and is cancelled before
// they come. The next one of its key cannot count on it, though it has waited, too.
func TestRequestThatWasNotSentNamesNothing(t *testing.T) {
	l := newLink(t)
	l.sends(100)
	k := sharing(2)
	l.asks(1, k[0], true)
	l.asks(2, k[0], false)
	deaf := func() { // what side 1 has to say waits
		for acts := inTime(l.ends[0].ch, l.now); len(acts) > 0; acts = inTime(l.ends[0].ch, l.now) {
			for _, a := range acts {
				l.do(0, a)
			}
		}
	}
	const last = 22
	for id := uint64(3); id <= last; id++ {
		l.receive(id, k[0])
	}
	deaf()
	cancel := func(id uint64) {
		if !l.ends[0].ch.Cancel(l.now, id, 1) {
			t.Errorf("receive %d had ended", id)
		}
	}
	posted := l.wants[len(l.wants)-1].ID
	for id := posted + 1; id <= last; id++ {
		cancel(id)
	}
	l.receive(last+1, k[1])
	deaf()
	if now := l.wants[len(l.wants)-1].ID; now != posted || posted == last {
		t.Fatalf("receive %d has gone, and %d before", now, posted)
	}
	cancel(last + 1)
	l.receive(last+2, k[1])
	l.receive(last+3, k[1])
	l.receive(last+4, k[0])
	l.run()
	for i, want := range []string{k[1], "", k[0]} {
		if m := l.wants[len(l.wants)-3+i]; string(m.Key) != want {
			t.Errorf("REQUEST %d has key %q, want %q", m.ID, m.Key, want)
		}
	}
	asked := l.ends[1].asked
	for i, want := range []string{k[1], k[1], k[0]} {
		if a := asked[len(asked)-3+i]; string(a.Key) != want {
			t.Errorf("receive %d is for %q: asked for %q", a.ID, want, a.Key)
		}
	}
	if why := l.ends[1].closed(); why != "" {
		t.Error(why)
	}
	l.clean()
}

// TestKeyIsNamedBehindWhatGoesBefore: finished ids that a request has no room for go
// first, and then the key, which is not yet known, still goes with it.
func TestKeyIsNamedBehindWhatGoesBefore(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Message, c.PeerMessage = wire.MinMessage, wire.MinMessage })
	l.sends(100)
	long := strings.Repeat("k", 3500)
	r := Receive{ID: 1, Attempt: 1, Sender: 2, Step: 1, Key: long}
	for id := range uint64(100) {
		r.Finished = append(r.Finished, 1000+id)
	}
	l.ends[0].ch.Receive(l.now, r)
	l.run()
	l.expect(">FINISHED", ">REQUEST", "<EAGER")
	l.asks(2, long, false)
	l.clean()
}

// TestNumberOfARequestThatIsRefused: nobody is asked, and the number means the key
// nevertheless.
func TestNumberOfARequestThatIsRefused(t *testing.T) {
	l := newLink(t)
	l.manual = true
	l.ends[1].ch.cfg.MaxWaiting = 2
	k := sharing(2)
	l.asks(1, k[0], true)
	l.asks(2, k[0], false)
	l.receive(3, k[1])
	l.run()
	if a := l.last(); status.CodeOf(a.Err) != status.ResourceExhausted || len(l.ends[1].asked) != 2 {
		t.Fatalf("%v, and %d were asked", &a, len(l.ends[1].asked))
	}
	l.ends[1].ch.Answer(l.now, 1, 1, Answer{Value: valueOf(8), Source: Source{Handle: 1}})
	l.run()
	l.asks(4, k[1], false)
}

// TestNamesInActionsStay: what was asked for stays readable while its number changes its
// meaning, be it before the actions are taken or while they are carried out.
func TestNamesInActionsStay(t *testing.T) {
	l := newLink(t)
	c := l.ends[1].ch
	id := uint64(0)
	says := func(key string) {
		id++
		m := wire.Request{ID: id, Attempt: 1, Asker: 1, Sender: 2, Key: []byte(key), Number: 9}
		m.Taken.N, m.Taken.Of[0] = 1, c.rails[0].told
		c.Message(l.now, 0, m.Append(nil))
	}
	asked := func(acts []Action) (keys []string) {
		for i := range acts {
			if acts[i].Kind == ActAsk {
				keys = append(keys, string(acts[i].Ask.Key))
			}
		}
		return keys
	}
	says("a0")
	_, _ = c.Actions(l.now), c.Actions(l.now)
	says("")
	says("b1")
	says("")
	acts := c.Actions(l.now)
	says("c2")
	says("")
	if got := fmt.Sprint(asked(acts)); got != "[a0 b1 b1]" {
		t.Errorf("asked for %s", got)
	}
	if got := fmt.Sprint(asked(c.Actions(l.now))); got != "[c2 c2]" {
		t.Errorf("then asked for %s", got)
	}
}

func TestCloneHasNamesOfItsOwn(t *testing.T) {
	l := newLink(t)
	l.sends(100)
	k := sharing(2)
	l.asks(1, k[0], true)
	before := [2]*Channel{l.ends[0].ch.Clone(), l.ends[1].ch.Clone()}
	was := [2][]byte{state(before[0]), state(before[1])}
	for i := range l.ends {
		if !bytes.Equal(state(l.ends[i].ch), was[i]) {
			t.Errorf("side %d is another than its copy", i)
		}
	}
	l.asks(2, k[1], true)
	for i := range l.ends {
		if !bytes.Equal(state(before[i]), was[i]) {
			t.Errorf("the copy of side %d has changed", i)
		}
		if bytes.Equal(state(l.ends[i].ch), was[i]) {
			t.Errorf("side %d is as before, for whom numbers mean something else", i)
		}
	}
	l.ends[0].ch, l.ends[1].ch = before[0], before[1]
	l.asks(2, k[0], false)
}

// TestNamesAreState: two channels are alike when their numbers mean the same, on either
// side.
func TestNamesAreState(t *testing.T) {
	k := sharing(2)
	after := func(keys ...string) (states [2]string) {
		l := newLink(t)
		l.sends(100)
		for i, key := range keys {
			l.receive(uint64(i)+1, key)
			l.run()
		}
		return [2]string{string(state(l.ends[0].ch)), string(state(l.ends[1].ch))}
	}
	want := after(k[0], k[0], k[1])
	for _, c := range []struct {
		keys []string
		same bool
	}{
		{[]string{k[0], k[1], k[1]}, true},
		{[]string{k[1], k[0], k[1]}, true},
		{[]string{k[0], k[0], k[0]}, false},
		{[]string{k[0], "another", k[1]}, false},
	} {
		got := after(c.keys...)
		for i := range got {
			if same := got[i] == want[i]; same != c.same {
				t.Errorf("side %d after %q: the same is %v, want %v", i, c.keys, same, c.same)
			}
		}
	}
}

func state(c *Channel) []byte { return c.AppendState(nil) }

// TestKeyTooLongForARequest: its length has two bytes, whatever a message holds.
func TestKeyTooLongForARequest(t *testing.T) {
	l := newLink(t, func(c *Config) { c.Message, c.PeerMessage = MaxMessage, MaxMessage })
	l.sends(100)
	l.asks(1, strings.Repeat("k", wire.MaxKey), true)
	l.receive(2, strings.Repeat("k", wire.MaxKey+1))
	l.run()
	if a := l.last(); a.Outcome != OutcomeElsewhere || !strings.Contains(a.Err.Error(), "65536 bytes: a request has room for 65535") {
		t.Errorf("ended with %v: %v", a.Outcome, a.Err)
	}
	l.clean()
}

// TestNumbersAreSpread: keys that differ in a few places near their ends, as those of a
// program do, rarely share a number.
func TestNumbersAreSpread(t *testing.T) {
	const device = "/job:ps/replica:0/task:0/device:CPU:0;00000000deadbeef;/job:worker/replica:0/task:1/device:CPU:0;"
	for _, format := range []string{"w%d;0:0", "edge_%d_layer/weights;0:0", "layer_%d/attention;0:0", "tensor/%04d;0:0"} {
		var takers [wire.KeyNumbers + 1]int
		used := 0
		for i := range wire.KeyNumbers {
			n := numberOf(device + fmt.Sprintf(format, i))
			if takers[n]++; takers[n] == 1 {
				used++
			}
		}
		if used < wire.KeyNumbers/2 || takers[0] > 0 { // at random 63 %
			t.Errorf("%d keys like %q have %d numbers", wire.KeyNumbers, format, used)
		}
	}
}
