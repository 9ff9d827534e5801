package handshake

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

var began = time.Unix(1000, 0)

func machine() *Machine {
	return New(Config{Self: testOffer(0, 1), Peer: names[1], Callable: true})
}

func at(generation uint64, o Offer) Offer {
	o.Generation = generation
	return o
}

func kinds(as []Action) (ks []Kind) {
	for _, a := range as {
		ks = append(ks, a.Kind)
	}
	return ks
}

func want(t *testing.T, as []Action, ks ...Kind) {
	t.Helper()
	if !slices.Equal(kinds(as), ks) {
		t.Fatalf("actions %v", as)
	}
}

func refused(t *testing.T, as []Action, code status.Code, words string) {
	t.Helper()
	want(t, as, Refuse)
	if status.CodeOf(as[0].Err) != code || !strings.Contains(as[0].Err.Error(), words) {
		t.Fatalf("want %v %q, got %v", code, words, as[0].Err)
	}
}

func TestAChannelComesUp(t *testing.T) {
	m := machine()
	want(t, m.Maintain(began), Make)
	if s, _ := m.State(); s != InProgress {
		t.Fatalf("state %v", s)
	}
	as := m.Made(began, 1, at(1, testOffer(0, 1)))
	want(t, as, Call)
	want(t, m.CallDone(began, as[0].Call, at(1, testOffer(1, 2)), nil), Connect)
	want(t, m.Connected(began, 1), Open)
	if w := m.Wake(); w != began.Add(HelloWait) {
		t.Fatalf("wake at %v", w)
	}
	want(t, m.Hello(began, 1))
	if s, err := m.State(); s != Up || err != nil || !m.Wake().IsZero() {
		t.Fatalf("state %v, %v, wake at %v", s, err, m.Wake())
	}
	// The peer calls too, late: it gets the same response, and nothing changes.
	as = m.Request(began, 7, at(1, testOffer(1, 2)))
	want(t, as, Respond)
	if as[0].Offer.Generation != 1 || as[0].Request != 7 {
		t.Fatalf("answered %v", as[0])
	}
}

// TestOneHelloCounts: only the first one of the present channel, once its queue pairs are being connected, is
// an event.
func TestOneHelloCounts(t *testing.T) {
	m := machine()
	up := func(generation uint64, now time.Time) {
		t.Helper()
		as := m.Made(now, generation, at(generation, testOffer(0, 1)))
		want(t, as, Call)
		want(t, m.Hello(now, generation)) // no queue pair is being connected
		want(t, m.CallDone(now, as[0].Call, at(generation, testOffer(1, 2)), nil), Connect)
		want(t, m.Connected(now, generation), Open)
		want(t, m.Hello(now, generation+1)) // of another channel
		if w := m.Wake(); w != now.Add(HelloWait) {
			t.Fatalf("it waits for a HELLO until %v", w)
		}
		want(t, m.Hello(now, generation))
	}
	want(t, m.Maintain(began), Make)
	up(1, began)
	want(t, m.Broken(began, 1, errors.New("cut")), Destroy, Make)
	up(2, began)
	// Had this one counted, the channel would have come up now, and the next break would be the second in a row.
	steady := began.Add(Steady)
	want(t, m.Hello(steady, 2))
	want(t, m.Broken(steady, 2, errors.New("cut")), Destroy, Make)
}

// TestOnlyWhatIsThereBreaks: a break that is reported before the offer is made, or for what has gone already, is no
// event.
func TestOnlyWhatIsThereBreaks(t *testing.T) {
	m := machine()
	cut := errors.New("cut")
	want(t, m.Broken(began, 0, cut)) // nothing has begun
	want(t, m.Maintain(began), Make)
	want(t, m.Broken(began, 1, cut)) // it is being made
	want(t, m.Made(began, 1, at(1, testOffer(0, 1))), Call)
	want(t, m.Broken(began, 1, cut), Destroy, Make)
	want(t, m.Made(began, 2, at(2, testOffer(0, 1))), Call)
	want(t, m.Broken(began, 2, cut), Destroy)
	n, _ := m.Failures()
	wake := m.Wake()
	want(t, m.Broken(began, 2, errors.New("cut again"))) // it has gone
	if after, why := m.Failures(); after != n || n != 2 || !errors.Is(why, cut) || m.Wake() != wake {
		t.Errorf("%d failures (%v), wake at %v; want 2, the first reason, and %v", after, why, m.Wake(), wake)
	}
	m.Stop(began)
	want(t, m.Broken(began, 2, cut))
}

func TestTheNextGenerationReportsABreak(t *testing.T) {
	m := machine()
	m.Request(began, 1, at(3, testOffer(1, 2)))
	want(t, m.Made(began, 3, at(3, testOffer(0, 1))), Connect)
	want(t, m.Connected(began, 3), Respond)
	want(t, m.Hello(began, 3), Open)
	as := m.Broken(began, 3, errors.New("the wire was cut"))
	want(t, as, Destroy, Make)
	if as[1].Generation != 4 {
		t.Fatalf("generation %d comes after 3", as[1].Generation)
	}
	want(t, m.Made(began, 4, at(4, testOffer(0, 1))), Call)
	if _, err := m.State(); err == nil || !strings.Contains(err.Error(), "cut") {
		t.Fatalf("the reason is %v", err)
	}
}

// A channel that the peer has left is destroyed without BYE, which would wait for queue
// pairs that are gone.
func TestAPeerThatHasLeftGetsNoBye(t *testing.T) {
	up := func() *Machine {
		m := machine()
		m.Request(began, 1, at(3, testOffer(1, 2)))
		m.Made(began, 3, at(3, testOffer(0, 1)))
		m.Connected(began, 3)
		want(t, m.Hello(began, 3), Open)
		return m
	}
	for name, c := range map[string]struct {
		left bool
		acts []Action
	}{
		"the peer is at the next generation": {true, up().Request(began, 2, at(4, testOffer(1, 2)))},
		"our side is broken":                 {false, up().Broken(began, 3, errors.New("cut"))},
		"this process stops":                 {false, up().Stop(began)},
	} {
		i := slices.IndexFunc(c.acts, func(a Action) bool { return a.Kind == Destroy })
		if i < 0 || c.acts[i].Left != c.left {
			t.Errorf("%s: %v, want a Destroy with Left %v", name, c.acts, c.left)
		}
	}
}

func TestOurOwnName(t *testing.T) {
	m := machine()
	refused(t, m.Request(began, 1, at(1, testOffer(0, 5))), status.InvalidArgument, "cannot be its own peer")
	other := testOffer(1, 1)
	refused(t, m.Request(began, 1, at(1, other)), status.FailedPrecondition, "incarnation of this process")
}

func TestAnotherNameThanMeant(t *testing.T) {
	m := machine()
	m.Maintain(began)
	as := m.Made(began, 1, at(1, testOffer(0, 1)))
	o := at(1, testOffer(1, 2))
	o.Task = cluster.Task{Job: "c"}
	want(t, m.CallDone(began, as[0].Call, o, nil))
	if _, err := m.State(); status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "/job:c/") || !strings.Contains(err.Error(), "/job:b/") {
		t.Fatalf("%v", err)
	}
}

func TestIncompatibleSidesAreRefusedAtOnce(t *testing.T) {
	m := machine()
	o := at(1, testOffer(1, 2))
	o.GIDType = verbs.GIDTypeRoCEv1
	refused(t, m.Request(began, 1, o), status.FailedPrecondition, "RoCE v1")
	if s, err := m.State(); s != Down || err == nil {
		t.Fatalf("%v, %v", s, err)
	}
}

// TestRefusedRequestIsNoReasonWhileThisSideCalls: the peer may have another family of addresses, and
// the calls of this side find out whether none of them fits.
func TestRefusedRequestIsNoReasonWhileThisSideCalls(t *testing.T) {
	other := at(1, testOffer(1, 2))
	other.Link, other.GIDType = verbs.LinkInfiniBand, verbs.GIDTypeIB
	other.Rails[0].LID = 1
	for _, maintain := range []bool{false, true} {
		m := machine()
		if maintain {
			m.Maintain(began)
			m.Made(began, 1, at(1, testOffer(0, 1)))
		}
		refused(t, m.Request(began, 1, other), status.FailedPrecondition, "cannot talk by verbs")
		if _, err := m.State(); (err == nil) != maintain {
			t.Errorf("this side calls: %v; the reason is %v", maintain, err)
		}
	}
}

func TestStoppedRefuses(t *testing.T) {
	m := machine()
	m.Maintain(began)
	m.Made(began, 1, at(1, testOffer(0, 1)))
	want(t, m.Stop(began), Destroy)
	refused(t, m.Request(began, 1, at(1, testOffer(1, 2))), status.Unavailable, "stopping")
	if !m.Wake().IsZero() || len(m.Tick(began.Add(time.Hour)))+len(m.Maintain(began)) != 0 {
		t.Fatal("a stopped machine acts")
	}
	late := machine()
	late.Maintain(began)
	want(t, late.Stop(began))
	want(t, late.Made(began, 1, at(1, testOffer(0, 1))), Destroy)
}

// A process that goes on without its device does not report that it stops.
func TestStoppedReportsTheReason(t *testing.T) {
	m := machine()
	m.Maintain(began)
	m.Made(began, 1, at(1, testOffer(0, 1)))
	acts := m.Suspend(began, verbs.ErrDeviceGone)
	want(t, acts, Destroy)
	if err := acts[0].Err; !errors.Is(err, verbs.ErrDeviceGone) || !strings.Contains(err.Error(), "no verbs for now") {
		t.Errorf("the channel ends because of %v", err)
	}
	refused(t, m.Request(began, 1, at(1, testOffer(1, 2))), status.Unavailable, "no verbs for now")
}

// When the device is back, the machine calls at once, with a new generation, and what was
// made on the device that went is destroyed.
func TestResumedMachineCallsAtOnce(t *testing.T) {
	m := machine()
	want(t, m.Maintain(began), Make)
	m.Suspend(began, verbs.ErrDeviceGone)
	self := testOffer(0, 1)
	self.Rails[0].GID[15] = 99
	acts := m.Resume(began.Add(time.Second), self)
	want(t, acts, Make)
	if acts[0].Generation != 2 {
		t.Errorf("generation %d, want 2", acts[0].Generation)
	}
	if _, err := m.State(); err != nil {
		t.Errorf("the reason is still %v", err)
	}
	want(t, m.Made(began.Add(time.Second), 1, at(1, testOffer(0, 1))), Destroy)
	want(t, m.Made(began.Add(time.Second), 2, at(2, self)), Call)
}

// A peer that is first wanted while there is no device gets a channel when there is one.
func TestMaintainWhileSuspended(t *testing.T) {
	m := machine()
	m.Suspend(began, verbs.ErrDeviceGone)
	want(t, m.Maintain(began))
	want(t, m.Resume(began, testOffer(0, 1)), Make)
}

// Offers are checked against the device that is there now.
func TestResumedMachineChecksAgainstTheNewDevice(t *testing.T) {
	m := machine()
	m.Suspend(began, verbs.ErrDeviceGone)
	self := testOffer(0, 1)
	self.GIDType = verbs.GIDTypeRoCEv1
	m.Resume(began, self)
	refused(t, m.Request(began, 1, at(1, testOffer(1, 2))), status.FailedPrecondition, "RoCE v1")
}

func TestStoppedMachineDoesNotResume(t *testing.T) {
	m := machine()
	m.Maintain(began)
	m.Suspend(began, verbs.ErrDeviceGone)
	m.Stop(began)
	want(t, m.Resume(began, testOffer(0, 1)))
	want(t, m.Suspend(began, verbs.ErrDeviceGone))
	refused(t, m.Request(began, 1, at(1, testOffer(1, 2))), status.Unavailable, "stopping")
}

func TestWaitingRequestsAreBounded(t *testing.T) {
	m := machine()
	want(t, m.Request(began, 1, at(1, testOffer(1, 2))), Make)
	for i := range uint64(maxPending - 1) {
		want(t, m.Request(began, i+2, at(1, testOffer(1, 2))))
	}
	refused(t, m.Request(began, 99, at(1, testOffer(1, 2))), status.ResourceExhausted, "wait")
	as := m.MakeFailed(began, 1, verbs.ErrMemlock)
	if len(as) != maxPending || as[0].Kind != Refuse || !errors.Is(as[0].Err, verbs.ErrMemlock) {
		t.Fatalf("%v", as)
	}
}

func TestNoRouteIsReportedToThePeer(t *testing.T) {
	m := machine()
	m.Request(began, 1, at(1, testOffer(1, 2)))
	m.Made(began, 1, at(1, testOffer(0, 1)))
	as := m.ConnectFailed(began, 1, errors.New("no route to host"))
	want(t, as, Destroy, Refuse)
	if status.CodeOf(as[1].Err) != status.FailedPrecondition || !strings.Contains(as[1].Err.Error(), "no route") {
		t.Fatalf("%v", as[1].Err)
	}
}

func TestTwoOffersOfOneGeneration(t *testing.T) {
	m := machine()
	m.Request(began, 1, at(1, testOffer(1, 2)))
	m.Made(began, 1, at(1, testOffer(0, 1)))
	m.Connected(began, 1)
	other := at(1, testOffer(1, 2))
	other.Window++
	refused(t, m.Request(began, 2, other), status.Aborted, "another offer of generation 1")
}

// TestOfferThatThePeerDoesNotTakeIsNotShownAgain: an offer ends when the peer itself refuses it with Aborted, and stays
// after other failures of a call.
func TestOfferThatThePeerDoesNotTakeIsNotShownAgain(t *testing.T) {
	said := func(code status.Code) error {
		return status.Errorf(code, "%w", &status.Said{Peer: names[1].String(), Text: "no"})
	}
	for name, c := range map[string]struct {
		err   error
		again []Kind
	}{
		"Aborted by the peer":       {said(status.Aborted), []Kind{Make}},
		"another code of the peer":  {said(status.Unavailable), []Kind{Call}},
		"Aborted, not by the peer":  {status.New(status.Aborted, "the connection"), []Kind{Call}},
		"a call that has no answer": {status.New(status.DeadlineExceeded, "no answer"), []Kind{Call}},
	} {
		m := machine()
		want(t, m.Maintain(began), Make)
		as := m.Made(began, 1, at(1, testOffer(0, 1)))
		want(t, as, Call)
		ends := m.CallDone(began, as[0].Call, Offer{}, c.err)
		if (len(ends) > 0) != (c.again[0] == Make) || len(ends) > 0 && ends[0].Kind != Destroy {
			t.Errorf("%s: actions %v", name, ends)
		}
		if w := m.Wake(); w != began.Add(MinBackoff) {
			t.Errorf("%s: wake at %v", name, w)
		}
		as = m.Tick(began.Add(MinBackoff))
		want(t, as, c.again...)
		if as[0].Kind == Make && as[0].Generation != 2 {
			t.Errorf("%s: generation %d", name, as[0].Generation)
		}
	}
}

// No behaviour of a peer causes more than a few calls and offers an hour.
func TestNeverAStorm(t *testing.T) {
	const perHour = 3*120 + 40 // a call and two offers per 30 s, and those of the start
	for name, peer := range map[string]struct {
		err   error // the answer to calls
		raise bool  // answers a higher generation each time
		then  string
	}{
		"is not there":                     {err: status.New(status.Unavailable, "connection refused")},
		"has no verbs":                     {err: status.New(status.Unimplemented, "unknown service")},
		"has another generation each time": {raise: true},
		"never sends HELLO":                {then: "silent"},
		"breaks each channel":              {then: "break"},
	} {
		for _, off := range []bool{false, true} {
			if n := storm(t, peer.err, peer.raise, peer.then, off); (n > perHour) != off {
				t.Errorf("a peer that %s: %d calls and offers in an hour, back-off off: %v", name, n, off)
			}
		}
	}
}

func storm(t *testing.T, refusal error, raise bool, then string, off bool) (n int) {
	t.Helper()
	m := machine()
	now := began
	queue := m.Maintain(now)
	for now.Before(began.Add(time.Hour)) && n < 1000 {
		if off {
			m.failures, m.peerAhead = 0, false
			if m.nextCall.After(now) {
				m.nextCall = now
			}
			if m.deadline.After(now.Add(time.Second)) {
				m.deadline = now.Add(time.Second)
			}
		}
		if len(queue) == 0 {
			wake := m.Wake()
			if wake.IsZero() {
				t.Fatal("the machine waits for nothing")
			}
			if wake.After(now) {
				now = wake
			}
			queue = m.Tick(now)
			now = now.Add(time.Millisecond)
			continue
		}
		a := queue[0]
		queue = queue[1:]
		switch a.Kind {
		case Make:
			n++
			queue = append(queue, m.Made(now, a.ID, at(a.Generation, testOffer(0, 1)))...)
		case Call:
			n++
			o := at(a.Offer.Generation, testOffer(1, 2))
			if raise {
				o.Generation++
			}
			queue = append(queue, m.CallDone(now, a.Call, o, refusal)...)
		case Connect:
			queue = append(queue, m.Connected(now, a.ID)...)
		case Open:
			if then == "break" {
				m.Hello(now, a.ID)
				queue = append(queue, m.Broken(now, a.ID, errors.New("cut"))...)
			}
		case Destroy, Respond, Refuse:
		}
	}
	return n
}

// A peer that starts minutes late has a channel within the longest backoff when it waits
// for a call, and at once when it calls. This side does not call it often meanwhile.
func TestAPeerThatComesMinutesLate(t *testing.T) {
	const late = 20 * time.Minute
	for _, calls := range []bool{false, true} {
		m := machine()
		up := began.Add(late)
		now, n, opened := began, 0, time.Time{}
		called := !calls
		for queue := m.Maintain(now); opened.IsZero(); {
			if len(queue) == 0 {
				now = m.Wake()
				if !called && now.After(up) {
					now, called = up, true
					queue = m.Request(now, 1, at(m.Generation()+1, testOffer(1, 2)))
					continue
				}
				if now.IsZero() || now.After(up.Add(late)) {
					t.Fatalf("no channel, and the next wake-up is %v", now)
				}
				queue = m.Tick(now)
				continue
			}
			a := queue[0]
			queue = queue[1:]
			switch a.Kind {
			case Make:
				queue = append(queue, m.Made(now, a.ID, at(a.Generation, testOffer(0, 1)))...)
			case Call:
				n++
				var err error
				if now.Before(up) {
					err = status.New(status.Unavailable, "connection refused")
				}
				queue = append(queue, m.CallDone(now, a.Call, at(a.Offer.Generation, testOffer(1, 2)), err)...)
			case Connect:
				queue = append(queue, m.Connected(now, a.ID)...)
			case Open:
				opened = now
			case Respond: // the peer connects, and sends HELLO
				queue = append(queue, m.Hello(now, a.Offer.Generation)...)
			case Destroy, Refuse:
			}
		}
		took := opened.Sub(up)
		if most := MaxBackoff; took < 0 || took > most || calls && took != 0 {
			t.Errorf("the peer came after %v, and the channel %v later; it calls: %v", late, took, calls)
		}
		if most := int(late/MaxBackoff) + maxDoublings + 1; n > most {
			t.Errorf("it was called %d times in %v, at most %d are needed", n, late, most)
		}
	}
}

// PROTOCOL.md section 9, rule 6: errors that will not change soon are not retried soon,
// and waits are spread by a quarter.
func TestTheFirstWaitAfterARefusalIsTheLongest(t *testing.T) {
	for code, want := range map[status.Code]time.Duration{
		status.FailedPrecondition: MaxBackoff, status.InvalidArgument: MaxBackoff, status.PermissionDenied: MaxBackoff,
		status.Unauthenticated: MaxBackoff, status.Unimplemented: MaxBackoff,
		status.Unavailable: MinBackoff, status.DeadlineExceeded: MinBackoff, status.Internal: MinBackoff,
	} {
		for _, jitter := range []float64{0, 0.5, 1} {
			m := New(Config{Self: testOffer(0, 1), Peer: names[1], Callable: true, Jitter: func() float64 { return jitter }})
			m.Maintain(began)
			as := m.Made(began, 1, at(1, testOffer(0, 1)))
			m.CallDone(began, as[0].Call, Offer{}, status.New(code, "no"))
			if got, want := m.nextCall.Sub(began), want+time.Duration(jitter*float64(want)/4); got != want {
				t.Errorf("%v, jitter %v: a wait of %v, want %v", code, jitter, got, want)
			}
		}
	}
}

// TestCallsOfARemovedTaskAreMadeAgainSoon: the peer may take this process back into its cluster. Sentences about another task
// are refusals as any other.
func TestCallsOfARemovedTaskAreMadeAgainSoon(t *testing.T) {
	own, other := names[0].String(), names[1].String()
	for text, soon := range map[string]bool{
		own + " has left the cluster":                     true,
		"the cluster has no task " + own:                  true,
		Removed(names[0]).Message():                       true,
		other + " has left the cluster":                   false,
		"the cluster has no task " + other:                false,
		"the cluster has no task " + own + "1":            false,
		"check the addresses: " + own + " is called here": false,
	} {
		m := machine()
		m.Maintain(began)
		as := m.Made(began, 1, at(1, testOffer(0, 1)))
		m.CallDone(began, as[0].Call, Offer{}, status.Errorf(status.FailedPrecondition, "%w", &status.Said{Peer: other, Text: text}))
		if got := m.nextCall.Sub(began) == MinBackoff; got != soon {
			t.Errorf("%q: the next call in %v", text, m.nextCall.Sub(began))
		}
	}
	if err := Removed(names[0]); IsRemoved(names[0], err) {
		t.Errorf("%v is this process's own, not of a peer", err)
	}
}

// A channel that was up for Steady is made again at once when it breaks.
func TestBackOffForgetsOldFailures(t *testing.T) {
	m := machine()
	now := began
	for range 10 {
		m.fail(now, status.New(status.Unavailable, "not yet"))
	}
	m.Request(now, 1, at(1, testOffer(1, 2)))
	m.Made(now, 1, at(1, testOffer(0, 1)))
	m.Connected(now, 1)
	m.Hello(now, 1)
	now = now.Add(Steady)
	want(t, m.Broken(now, 1, errors.New("cut")), Destroy, Make)
}

// A peer has restarted while this side cannot make queue pairs (its port is down): the
// attempts are spread by the backoff.
func TestNoQueuePairsAndAnotherIncarnationIsNoStorm(t *testing.T) {
	m := machine()
	down := errors.New("the port is not active")
	var next uint64
	makes := 0
	take := func(as []Action) {
		next = 0
		for _, a := range as {
			if a.Kind == Make {
				next = a.Generation
				makes++
			}
		}
	}
	take(m.Request(began, 1, at(3, testOffer(1, 2)))) // this process is accepted
	take(m.MakeFailed(began, next, down))
	take(m.Request(began, 2, at(1, testOffer(1, 3)))) // it has restarted
	for i := 0; i < 10000 && next != 0; i++ {
		take(m.MakeFailed(began.Add(time.Duration(i)*10*time.Microsecond), next, down)) // 100 ms in all
	}
	if makes > 3 {
		t.Errorf("%d offers were tried in 100 ms; the last has generation %d; wake is %v ago", makes, m.last, began.Add(100*time.Millisecond).Sub(m.Wake()))
	}
}

// TestAPeerGetsAnAddress: it had none, and so it was not called. Then it is, also to verify the process that has called in its
// name.
func TestAPeerGetsAnAddress(t *testing.T) {
	m := New(Config{Self: testOffer(0, 1), Peer: names[1]})
	want(t, m.Maintain(began))
	want(t, m.Addressed(began), Make)
	want(t, m.Made(began, 1, at(1, testOffer(0, 1))), Call)

	m = New(Config{Self: testOffer(0, 1), Peer: names[1]})
	m.Met(began, 7) // another route has a channel to it
	want(t, m.Addressed(began))

	for _, addressed := range []bool{false, true} {
		m := New(Config{Self: testOffer(0, 1), Peer: names[1]})
		want(t, m.Request(began, 1, at(1, testOffer(1, 2))), Make)
		if addressed {
			want(t, m.Addressed(began))
		}
		acts := m.Made(began, 1, at(1, testOffer(0, 1)))
		acts = append(acts, m.Connected(began, 1)...)
		if got := slices.Contains(kinds(acts), Call); got != addressed {
			t.Errorf("addressed %v: %v", addressed, acts)
		}
	}
}
