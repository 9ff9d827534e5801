package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

var began = time.Unix(1000, 0)

func after(d time.Duration) time.Time { return began.Add(d) }

// router returns the router of a side that wants a channel and knows its peer's inventory. Both
// have the same devices.
func router(t *testing.T, i int, devices ...handshake.Device) *Router {
	t.Helper()
	r := New(Config{Own: side(i, devices...), Peer: names[1-i], Callable: true})
	wantActs(t, r.Want(began), "ask")
	r.Answered(began, side(1-i, devices...), nil)
	return r
}

func wantActs(t *testing.T, acts []Action, want ...string) {
	t.Helper()
	var got []string
	for _, a := range acts {
		got = append(got, a.String())
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Fatalf("actions %q, want %q", got, want)
	}
}

// TestTimesAreThoseOfTheContract (PROTOCOL.md section 9): the other tests use them by their names.
func TestTimesAreThoseOfTheContract(t *testing.T) {
	if MinBackoff != 10*time.Second || MaxBackoff != 5*time.Minute || ChangeBack != 30*time.Second || Steady != 30*time.Second || Grace != 5*time.Second {
		t.Errorf("a route waits for %v to %v, and %v for a change back; %v are steady; a proposal is awaited for %v", MinBackoff, MaxBackoff, ChangeBack, Steady, Grace)
	}
	for n, want := range []time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second, 6: 5 * time.Minute, 1000: 5 * time.Minute} {
		if want != 0 && backoff(n) != want {
			t.Errorf("after %d failures a route waits for %v, want %v", n, backoff(n), want)
		}
	}
}

// TestTheLowerNameProposes: and a client to its server.
func TestTheLowerNameProposes(t *testing.T) {
	client := cluster.Task{Job: cluster.ClientJob, Index: 4}
	for _, c := range []struct {
		own, peer cluster.Task
		want      bool
	}{{names[0], names[1], true}, {names[1], names[0], false}, {client, names[0], true}, {names[0], client, false}} {
		if got := New(Config{Own: Side{Task: c.own}, Peer: c.peer}).Proposes(); got != c.want {
			t.Errorf("%v proposes to %v: %v", c.own, c.peer, got)
		}
	}
}

// TestABetterRouteIsTakenAtOnce: it is made before the present one is left.
func TestABetterRouteIsTakenAtOnce(t *testing.T) {
	r := router(t, 0, tcp)
	wantActs(t, r.Up(began, TCP, 2))
	wantActs(t, r.Own(after(time.Second), side(0, shared, tcp)), "ask")
	wantActs(t, r.Answered(after(time.Second), side(1, shared, tcp), nil), "rest tcp", "maintain shm")
	acts := r.Up(after(2*time.Second), Shared, 2)
	wantActs(t, acts, "leave tcp")
	if !strings.Contains(acts[0].Err.Error(), nameA+" has taken the route over shm") {
		t.Errorf("%v", acts[0].Err)
	}
	wantActs(t, r.Down(after(2*time.Second), TCP, nil))
	if w := r.Wake(); !w.IsZero() {
		t.Errorf("an idle router wakes at %v", w)
	}
	if better := r.Better(after(2 * time.Second)); len(better) != 0 {
		t.Errorf("%v", better)
	}
}

// TestTheNextRouteIsTakenWhenOneBreaks: at once; and the better one again after 30 s.
func TestTheNextRouteIsTakenWhenOneBreaks(t *testing.T) {
	r := router(t, 0, shared, tcp)
	r.Up(began, Shared, 2)
	wantActs(t, r.Down(after(time.Second), Shared, errBroke), "rest shm", "maintain tcp")
	wantActs(t, r.Up(after(2*time.Second), TCP, 2))
	if better := r.Better(after(2 * time.Second)); len(better) != 2 || better[0].Route != Shared || !strings.Contains(better[0].Why, "it has failed: the channel broke; it is tried again in 29s") {
		t.Errorf("%v", better)
	}
	if w := r.Wake(); w != after(31*time.Second) {
		t.Errorf("it wakes %v later", w.Sub(began))
	}
	wantActs(t, r.Tick(after(31*time.Second-1)))
	wantActs(t, r.Tick(after(31*time.Second)), "rest tcp", "maintain shm")
	wantActs(t, r.Down(after(41*time.Second), Shared, errSilent), "rest shm", "maintain tcp") // which is up
	if v := r.Inventory(after(41 * time.Second)); v.Devices[0].FailedFor != ChangeBack || v.Devices[1].FailedFor != 0 {
		t.Errorf("the peer gets %+v", v.Devices)
	}
}

// TestARouteThatFailsAgainWaitsTwiceAsLong: up to 5 minutes.
func TestARouteThatFailsAgainWaitsTwiceAsLong(t *testing.T) {
	r := router(t, 0, shared, tcp)
	now := began
	for _, want := range []time.Duration{30 * time.Second, 30 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		wantActs(t, r.Down(now, Shared, errSilent), "rest shm", "maintain tcp")
		if wait := r.Wake().Sub(now); wait != want {
			t.Errorf("it waits for %v, want %v", wait, want)
		}
		now = r.Wake()
		wantActs(t, r.Tick(now), "rest tcp", "maintain shm")
	}
	r.Up(now, Shared, 2)
	now = now.Add(Steady)
	r.Down(now, Shared, errBroke)
	if wait := r.Wake().Sub(now); wait != ChangeBack {
		t.Errorf("after it was up for %v it waits for %v", Steady, wait)
	}
}

// TestAChangeOfADeviceEndsItsFailures: on either side, and those of this device alone.
func TestAChangeOfADeviceEndsItsFailures(t *testing.T) {
	with5 := with(shared, folder)
	for name, change := range map[string]func(*Router) []Action{
		"here":  func(r *Router) []Action { return r.Own(after(2*time.Second), side(0, with5, tcp)) },
		"there": func(r *Router) []Action { return r.Asked(after(2*time.Second), side(1, with5, tcp)) },
		"its user": func(r *Router) []Action {
			return r.Asked(after(2*time.Second), changed(side(1, shared, tcp), secure(handshake.ServerTLS)))
		},
		"a new peer": func(r *Router) []Action {
			s := side(1, shared, tcp)
			s.Incarnation = 9
			return r.Asked(after(2*time.Second), s)
		},
	} {
		r := router(t, 0, shared, tcp)
		wantActs(t, r.Down(after(time.Second), Shared, errSilent), "rest", "maintain tcp")
		acts := change(r)
		if name == "its user" {
			if !strings.Contains(fmt.Sprint(acts), "maintain shm") {
				t.Errorf("%s: %v", name, acts)
			}
			continue
		}
		if len(acts) < 2 || acts[1] != (Action{Act: Maintain, Route: Shared}) {
			t.Errorf("%s: %v", name, acts)
		}
	}
	r := router(t, 0, shared, tcp)
	r.Down(after(time.Second), Shared, errSilent)
	other := with(tcp, func(d *handshake.Device) { d.Addresses = []string{"10.0.0.7:1"} })
	wantActs(t, r.Asked(after(2*time.Second), side(1, shared, other)))
}

// TestTheLastRouteIsTriedAgainAtOnce: when no other one is left, only the handshake's back-off counts.
func TestTheLastRouteIsTriedAgainAtOnce(t *testing.T) {
	r := router(t, 0, tcp)
	r.Up(began, TCP, 2)
	wantActs(t, r.Down(after(time.Second), TCP, errBroke))
	if r.Target() != TCP {
		t.Errorf("%v", r.Target())
	}
}

// TestWhatIsNoFailureOfARoute: the next one would meet the same.
func TestWhatIsNoFailureOfARoute(t *testing.T) {
	quoted := func(text string) error {
		return status.Errorf(status.Unavailable, "%w", &status.Said{Peer: nameB, Text: text})
	}
	for name, err := range map[string]error{
		"a call that did not reach the peer": errLost,
		"a peer that has restarted":          errOther,
		"a peer that stops":                  quoted(nameB + " is stopping"),
		"a peer that does not know us":       status.Errorf(status.Unavailable, "%w", handshake.ErrNotKnown),
		"a device that this process lost":    verbs.ErrDeviceGone,
		"a peer that has removed us":         quoted(nameA + " has left the cluster"),
		"a call of one that was removed":     status.Errorf(status.FailedPrecondition, "%w", &status.Said{Peer: nameB, Text: "the cluster has no task " + nameA}),
		"a peer that proposes another one":   quoted(nameB + " proposes the route over tcp"),
		"a peer that has taken another one":  quoted(nameB + " has taken the route over tcp"),
		"a peer that uses another device":    quoted(nameB + " has no verbs for now: Unavailable: it changes from a port 1 to b port 1"),
		"nothing":                            nil,
	} {
		r := router(t, 0, shared, tcp)
		r.Down(began, Shared, err)
		if r.Target() != Shared {
			t.Errorf("%s counts as a failure", name)
		}
	}
	for name, err := range map[string]error{"a break": errBroke, "silence": errSilent, "a refusal": quoted("no way"), "a peer without the device": quoted(nameB + " has no verbs for now: it is gone")} {
		r := router(t, 0, shared, tcp)
		r.Down(began, Shared, err)
		if r.Target() != TCP {
			t.Errorf("%s does not count as a failure", name)
		}
	}
}

// TestTheOtherSideAcceptsOrSaysWhyNot: it takes a route that is possible, also one that it would not
// choose.
func TestTheOtherSideAcceptsOrSaysWhyNot(t *testing.T) {
	r := router(t, 1, shared, tcp)
	acts, err := r.Request(began, side(0, shared, tcp), TCP)
	if err != nil {
		t.Fatal(err)
	}
	wantActs(t, acts, "rest shm", "maintain tcp")
	r.Up(began, TCP, 1)
	if better := r.Better(began); len(better) != 2 || better[0].Why != nameA+" proposes the route over tcp" {
		t.Errorf("%v", better)
	}
	// It waits for the proposal of the better one, and then calls by itself.
	if w := r.Wake(); w != after(Grace) {
		t.Errorf("it wakes %v later", w.Sub(began))
	}
	wantActs(t, r.Tick(after(Grace)), "rest tcp", "maintain shm")

	_, err = r.Request(after(Grace), side(0, tcp), Shared)
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "no route over shm: "+nameA+" has no shm device (see its setting provider)") {
		t.Errorf("%v", err)
	}
	r = router(t, 1, shared, tcp)
	r.Down(began, Shared, errSilent)
	_, err = r.Request(after(time.Second), side(0, shared, tcp), Shared)
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "the route over shm has failed: no message") {
		t.Errorf("%v", err)
	}
}

// TestTheSideThatProposesInsists: the other side stays with its proposal for a while.
func TestTheSideThatProposesInsists(t *testing.T) {
	r := router(t, 0, shared, tcp)
	_, err := r.Request(began, side(1, shared, tcp), TCP)
	if status.CodeOf(err) != status.Unavailable || status.From(err).Message() != nameA+" proposes the route over shm" {
		t.Fatalf("%v", err)
	}
	refusal := status.Errorf(status.Unavailable, "%w", &status.Said{Peer: nameA, Text: status.From(err).Message()})
	if !IsInstead(names[0], refusal) || IsInstead(names[1], refusal) || IsLeaving(names[0], refusal) {
		t.Errorf("%v is not recognised", refusal)
	}
	r = router(t, 1, shared, tcp)
	r.Request(began, side(0, shared, tcp), TCP) //nolint:errcheck // the test above
	r.Up(began, TCP, 1)
	wantActs(t, r.Tick(after(Grace)), "rest tcp", "maintain shm")
	refusal = status.Errorf(status.Unavailable, "%w", &status.Said{Peer: nameA, Text: nameA + " proposes the route over tcp"})
	wantActs(t, r.Down(after(Grace), Shared, refusal), "rest shm", "maintain tcp", "ask")
	r.Answered(after(Grace), side(0, shared, tcp), nil)
	if w := r.Wake(); w != after(Grace+ChangeBack) {
		t.Errorf("it wakes %v later", w.Sub(began))
	}
}

// TestAPeerOfAnEarlierReleaseHasOneDevice: it refuses to show an inventory, or its offer has none.
func TestAPeerOfAnEarlierReleaseHasOneDevice(t *testing.T) {
	refusal := status.Errorf(status.FailedPrecondition, "%w", &status.Said{Peer: nameB, Text: "the request of " + nameA + " shows no queue pairs"})
	r := New(Config{Own: side(0, shared, roce, tcp), Peer: names[1], Callable: true})
	r.Want(began)
	wantActs(t, r.Answered(began, Side{}, refusal), "maintain rdma")
	wantActs(t, r.Up(began, Fabric, 77))
	wantActs(t, r.Down(began, Fabric, errBroke))
	r = New(Config{Own: side(0, shared, roce, tcp), Peer: names[1], Callable: true})
	acts, err := r.Request(began, Side{Task: names[1], Incarnation: 2}, Fabric)
	if err != nil {
		t.Fatal(err)
	}
	wantActs(t, acts, "maintain rdma", "ask")
}

// TestAPeerThatDoesNotAnswerIsAskedAgain: after 0.5 s, doubling up to 30 s.
func TestAPeerThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true})
	wantActs(t, r.Want(began), "ask")
	now := began
	for _, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		wantActs(t, r.Answered(now, Side{}, errLost))
		if wait := r.Wake().Sub(now); wait != want {
			t.Errorf("it waits for %v, want %v", wait, want)
		}
		now = r.Wake()
		wantActs(t, r.Tick(now), "ask")
	}
	r.Answered(now, Side{}, errLost)
	r.Expedite(now)
	if wait := r.Wake().Sub(now); wait != MinAskBackoff {
		t.Errorf("a receive waits, and it waits for %v", wait)
	}
	if why := r.Reasons(now); len(why) != 3 || !strings.Contains(why[0].Why, "devices of "+nameB+" are not known yet: ") || !strings.Contains(why[0].Why, "lost") {
		t.Errorf("%v", why)
	}
	wantActs(t, r.Tick(r.Wake()), "ask")
	r.Answered(now, Side{}, status.New(status.Unimplemented, "no verbs"))
	if wait := r.Wake().Sub(now); wait != MaxAskBackoff {
		t.Errorf("after an error that stays it waits for %v", wait)
	}
}

// TestALazyRouterAsksWhenAReceiveBegins: a process that nobody has told to use verbs calls a peer without them no more
// than receives need it, and at rest has no timer. One that was told goes on asking.
func TestALazyRouterAsksWhenAReceiveBegins(t *testing.T) {
	for name, answer := range map[string]func(*Router, time.Time) []Action{
		"it serves no verbs": func(r *Router, now time.Time) []Action {
			return r.Answered(now, Side{}, status.Errorf(status.Unimplemented, "%w", handshake.ErrNotServed))
		},
		"nothing in common": func(r *Router, now time.Time) []Action { return r.Answered(now, side(1, shared), nil) },
	} {
		for _, lazy := range []bool{true, false} {
			r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true, Lazy: lazy})
			wantActs(t, r.Want(began), "ask")
			wantActs(t, answer(r, began))
			if !r.Wake().IsZero() == lazy {
				t.Errorf("%s, lazy %v: it wakes at %v", name, lazy, r.Wake())
			}
			if !lazy {
				continue
			}
			wantActs(t, r.Tick(after(time.Hour)))
			wantActs(t, r.Used(after(time.Hour)), "ask")
			wantActs(t, answer(r, after(time.Hour)))
			wantActs(t, r.Used(after(time.Hour+time.Second)))
			if wait := r.Wake().Sub(after(time.Hour)); wait != MaxAskBackoff {
				t.Errorf("%s: a receive has begun at once, and it waits for %v", name, wait)
			}
		}
	}
}

// TestAClientAsksWhileItReceives: its server cannot call it.
func TestAClientAsksWhileItReceives(t *testing.T) {
	own := changed(side(0, shared, tcp), func(s *Side) { s.Task = cluster.Task{Job: cluster.ClientJob, Index: 3} })
	r := New(Config{Own: own, Peer: names[1], Callable: true})
	r.Want(began)
	wantActs(t, r.Answered(began, side(1, tcp), nil), "maintain tcp")
	r.Up(began, TCP, 2)
	wantActs(t, r.Used(after(RefreshEvery-1)))
	wantActs(t, r.Used(after(RefreshEvery)), "ask")
	wantActs(t, r.Used(after(3*RefreshEvery)))
	wantActs(t, r.Answered(after(3*RefreshEvery), side(1, shared, tcp), nil), "rest tcp", "maintain shm")
	r.Up(after(3*RefreshEvery), Shared, 2)
	wantActs(t, r.Used(after(time.Hour))) // there is nothing better
	if !r.Wake().IsZero() {
		t.Error("an idle client has a timer")
	}
}

// TestReasonsTravelShort: they fit an inventory, without queue pair numbers, at a character boundary.
func TestReasonsTravelShort(t *testing.T) {
	r := router(t, 0, shared, tcp)
	r.Down(began, Shared, errors.New("QP 0x8c3dd6: "+strings.Repeat("ü", 300)+"\xff"))
	v := r.Inventory(began)
	why := v.Devices[0].FailedWhy
	if len(why) > handshake.MaxDeviceText || len(why) < handshake.MaxDeviceText-8 || strings.Contains(why, "0x8c") || !strings.HasSuffix(why, "ü...") || handshake.InventoryProblem(v) != "" {
		t.Errorf("%q", why)
	}
}

// TestAnotherRoute: another route counts if it may reach the peer and has not failed.
func TestAnotherRoute(t *testing.T) {
	for what, c := range map[string]struct {
		peer []handshake.Device
		want bool
	}{
		"not known":           {nil, false},
		"TCP, too":            {[]handshake.Device{shared, tcp}, true},
		"TCP, which failed":   {[]handshake.Device{shared, with(tcp, failed(9))}, false},
		"shared memory alone": {[]handshake.Device{shared}, false},
	} {
		r := New(Config{Own: side(0, shared, tcp), Peer: names[1], Callable: true})
		r.Want(began)
		if c.peer != nil {
			r.Answered(began, side(1, c.peer...), nil)
		}
		if got := r.HasAlternative(began); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestAForgedCallTakesADeviceAwayForASecond: anybody may call in the name of the peer when TLS does
// not prove it, with any inventory and serial. What a call to the peer's address brings counts.
func TestAForgedCallTakesADeviceAwayForASecond(t *testing.T) {
	serial := func(n uint64) func(*Side) { return func(s *Side) { s.Serial = n } }
	for name, forged := range map[string]Side{
		"the process":     changed(side(1), serial(1<<64-1)),
		"another process": changed(side(1), serial(7), func(s *Side) { s.Incarnation = 666 }),
	} {
		r := New(Config{Own: side(0, shared, tcp), Peer: names[1], Callable: true})
		r.Want(began)
		r.Answered(began, changed(side(1, shared, tcp), serial(3)), nil)
		now := after(AskEvery)
		wantActs(t, r.Asked(now, forged), "rest shm", "ask")
		wantActs(t, r.Answered(now, changed(side(1, shared, tcp), serial(4)), nil), "maintain shm")
		// A call that comes while the peer is asked may be the newer one. Then it is asked again.
		wantActs(t, r.Asked(now, forged), "rest shm")
		wantActs(t, r.Tick(now.Add(AskEvery)), "ask")
		r.Asked(now, forged)
		r.Answered(now, changed(side(1, shared, tcp), serial(5)), nil)
		for now.Sub(began) < 4*AskEvery && r.Target() != Shared {
			now = r.Wake()
			r.Tick(now)
			r.Answered(now, changed(side(1, shared, tcp), serial(6)), nil)
		}
		if r.Target() != Shared {
			t.Errorf("%s: after %v its route is %v", name, now.Sub(began), r.Target())
		}
	}
}

// TestAClientHearsAServerThatForgotIt: the record of a client may be dropped, and its count of
// inventories with it.
func TestAClientHearsAServerThatForgotIt(t *testing.T) {
	r := router(t, 1, shared, tcp)
	for range 5 {
		r.Inventory(began)
	}
	last := r.Inventory(began).Serial
	if again := router(t, 1, shared, tcp).Inventory(after(time.Millisecond)).Serial; again <= last {
		t.Errorf("after inventory %d came %d", last, again)
	}
}

// TestNothingInCommonIsOneSentence: it has the devices of both sides by the names of the setting
// provider, and what to do. Otherwise each route that a side has comes with its reason.
func TestNothingInCommonIsOneSentence(t *testing.T) {
	for name, c := range map[string]struct {
		own, peer []handshake.Device
		want      string
	}{
		"nothing in common": {[]handshake.Device{shared}, []handshake.Device{roce, tcp},
			"this process has shm (setting provider), " + nameB + " has roce, tcp: give both one in common, for example auto"},
		"no device there": {[]handshake.Device{nic, tcp}, nil, "this process has libibverbs, tcp (setting provider), " + nameB + " has no device: give both one in common, for example auto"},
		"one in common": {[]handshake.Device{with(tcp, dials)}, []handshake.Device{with(tcp, dials), shared},
			"no device of this process reaches " + nameB + ": shm: this process has no shm device (see its setting provider); tcp: neither side takes connections"},
	} {
		r := router(t, 0, c.own...)
		r.Want(began)
		r.Answered(began, side(1, c.peer...), nil)
		if got := r.NoRoute(began); got != c.want || r.Target() != None {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// TestAPeerThatLostVerbsIsForgotten: its process has been replaced by one that serves no verbs. Its routes are not tried
// any more, and a lazy side has no timer before a receive begins. Another side asks it at the longest interval.
func TestAPeerThatLostVerbsIsForgotten(t *testing.T) {
	notServed := status.Errorf(status.Unimplemented, "%w", handshake.ErrNotServed)
	for name, answer := range map[string]func(*Router) []Action{
		"a call for a channel": func(r *Router) []Action { return r.Down(began, TCP, notServed) },
		"a call for its devices": func(r *Router) []Action {
			wantActs(t, r.Own(began, side(0, shared, tcp)), "ask")
			return r.Answered(began, Side{}, notServed)
		},
	} {
		for _, lazy := range []bool{true, false} {
			r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true, Lazy: lazy})
			r.Want(after(-time.Minute))
			wantActs(t, r.Answered(after(-time.Minute), side(1, tcp), nil), "maintain tcp")
			r.Up(after(-time.Minute), TCP, 2)
			wantActs(t, r.Down(began, TCP, status.New(status.Unavailable, "broken"))) // the only route is tried again at once
			wantActs(t, answer(r), "rest tcp")
			if r.Known() || r.Target() != None {
				t.Errorf("%s: it is known by %v", name, r.Target())
			}
			switch wake := r.Wake(); {
			case lazy && !wake.IsZero():
				t.Errorf("%s: a process at rest wakes at %v", name, wake)
			case !lazy && !wake.Equal(after(MaxAskBackoff)):
				t.Errorf("%s: it wakes at %v", name, wake)
			}
			wantActs(t, r.Used(after(MaxAskBackoff)), "ask")
			wantActs(t, r.Answered(after(MaxAskBackoff), side(1, tcp), nil), "maintain tcp")
		}
	}
}

// TestALazyRouterHasNoTimerForAPeerThatIsAway: each look for the peer asks it, and nothing else does.
func TestALazyRouterHasNoTimerForAPeerThatIsAway(t *testing.T) {
	r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true, Lazy: true})
	wantActs(t, r.Want(began), "ask")
	wantActs(t, r.Answered(began, Side{}, errLost))
	if wake := r.Wake(); !wake.IsZero() {
		t.Errorf("it wakes at %v", wake)
	}
	wantActs(t, r.Want(began)) // a look soon after that waits for the back-off
	if wake := r.Wake(); !wake.Equal(after(MinAskBackoff)) {
		t.Errorf("a look for the peer has it wake at %v", wake)
	}
	wantActs(t, r.Tick(after(MinAskBackoff)), "ask")
}

// TestALazyRouterAsksAfterTheReasonHasPassed: why the peer was not asked says nothing once the peer itself has called.
func TestALazyRouterAsksAfterTheReasonHasPassed(t *testing.T) {
	r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true, Lazy: true})
	wantActs(t, r.Want(began), "ask")
	wantActs(t, r.Answered(began, Side{}, status.Errorf(status.Unimplemented, "%w", handshake.ErrNotServed)))
	wantActs(t, r.Asked(after(time.Minute), side(1, tcp)), "maintain tcp", "ask")
	wantActs(t, r.Answered(after(time.Minute), side(1, tcp), nil))
	r.Up(after(time.Minute), TCP, 2)
	wantActs(t, r.Own(after(2*time.Minute), side(0, shared, tcp)), "ask")
}

// TestALazyRouterTellsAConnectedPeerAfterALostCall: the better device of this side is of use only once the peer knows it.
func TestALazyRouterTellsAConnectedPeerAfterALostCall(t *testing.T) {
	r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true, Lazy: true})
	r.Want(began)
	wantActs(t, r.Answered(began, side(1, tcp), nil), "maintain tcp")
	r.Up(began, TCP, 2)
	wantActs(t, r.Own(after(time.Minute), side(0, shared, tcp)), "ask")
	wantActs(t, r.Answered(after(time.Minute), Side{}, errLost))
	wantActs(t, r.Tick(r.Wake()), "ask")
}

// TestAStrangerProvesNothing: what a call in the name of a peer shows counts for what it may cost, and is proven only by the
// answer to a call to the peer's address.
func TestAStrangerProvesNothing(t *testing.T) {
	forged := changed(side(1), func(s *Side) { s.Incarnation = 99 })
	r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true})
	r.Want(began)
	wantActs(t, r.Answered(began, Side{}, errLost))
	r.Asked(after(10*time.Millisecond), forged)
	if r.Proven() || r.Wake().IsZero() {
		t.Errorf("a first call: proven %v, the peer is asked at %v", r.Proven(), r.Wake())
	}
	wantActs(t, r.Tick(r.Wake()), "ask")
	wantActs(t, r.Answered(after(2*time.Second), side(1, tcp), nil), "maintain tcp")
	if !r.Proven() {
		t.Error("the peer has answered, which proves nothing")
	}
	r.Asked(after(time.Minute), forged)
	if r.Proven() {
		t.Error("a call after the answer proves that no route is left")
	}
	wantActs(t, r.Answered(after(time.Minute), side(1, shared), nil))
	if r.Asked(after(time.Minute+2*AskEvery), side(1, shared)); !r.Proven() || !r.Wake().Equal(after(time.Minute+MaxAskBackoff)) {
		t.Errorf("a call that shows the same: proven %v, the peer is asked at %v", r.Proven(), r.Wake())
	}
}

// TestALazyRouterMaintainsNothingToAPeerThatHasGone: one that had a channel is called no more than one that never had,
// until a receive needs it, or it calls.
func TestALazyRouterMaintainsNothingToAPeerThatHasGone(t *testing.T) {
	for name, event := range map[string]func(*Router) []Action{
		"a look":    func(r *Router) []Action { return r.Want(after(time.Hour)) },
		"a receive": func(r *Router) []Action { return r.Used(after(time.Hour)) },
		"an answer": func(r *Router) []Action { return r.Reached(after(time.Hour)) },
		"a call":    func(r *Router) []Action { return r.Asked(after(time.Hour), side(1, tcp)) },
	} {
		r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true, Lazy: true})
		r.Want(began)
		wantActs(t, r.Answered(began, side(1, tcp), nil), "maintain tcp")
		r.Up(began, TCP, 2)
		wantActs(t, r.Down(after(time.Minute), TCP, errBroke)) // the peer may be there
		wantActs(t, r.Down(after(time.Minute), TCP, errLost), "rest tcp")
		wantActs(t, r.Tick(after(30*time.Minute))) // the failure of the route is over
		if wake := r.Wake(); !wake.IsZero() {
			t.Errorf("%s: at rest it wakes at %v", name, wake)
		}
		if acts := event(r); len(acts) == 0 || acts[0] != (Action{Act: Maintain, Route: TCP}) {
			t.Errorf("%s: %v", name, acts)
		}
	}
}

// TestAPeerThatAnswersIsAskedAtOnce, whatever a call before has failed for, and also if no device reached what it was.
func TestAPeerThatAnswersIsAskedAtOnce(t *testing.T) {
	for name, answer := range map[string]func(*Router) []Action{
		"not reached": func(r *Router) []Action { return r.Answered(began, Side{}, errLost) },
		"not served": func(r *Router) []Action {
			return r.Answered(began, Side{}, status.Errorf(status.Unimplemented, "%w", handshake.ErrNotServed))
		},
		"nothing in common": func(r *Router) []Action { return r.Answered(began, side(1, shared), nil) },
	} {
		for _, lazy := range []bool{true, false} {
			r := New(Config{Own: side(0, tcp), Peer: names[1], Callable: true, Lazy: lazy})
			wantActs(t, r.Want(began), "ask")
			wantActs(t, answer(r))
			if acts := r.Reached(after(AskEvery)); len(acts) != 1 || acts[0].Act != Ask {
				t.Errorf("%s, lazy %v: %v", name, lazy, acts)
			}
		}
	}
}
