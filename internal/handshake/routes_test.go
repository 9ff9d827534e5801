package handshake

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// up returns a machine with a channel of generation 3.
func up(t *testing.T) *Machine {
	t.Helper()
	m := machine()
	m.Request(began, 1, at(3, testOffer(1, 2)))
	m.Made(began, 3, at(3, testOffer(0, 1)))
	m.Connected(began, 3)
	want(t, m.Hello(began, 3), Open)
	return m
}

// TestOffersAreAboveThoseOfOtherRoutes: a generation names one channel between two processes.
func TestOffersAreAboveThoseOfOtherRoutes(t *testing.T) {
	m := up(t)
	m.Reached(2, 7)
	if last, ok := m.Last(2); last != 7 || !ok {
		t.Errorf("the last generation is %d, %v", last, ok)
	}
	if as := m.Broken(began, 3, errors.New("cut")); as[1].Kind != Make || as[1].Generation != 8 {
		t.Errorf("%v", as)
	}
	m = up(t)
	m.Reached(9, 7) // of another process
	if as := m.Broken(began, 3, errors.New("cut")); as[1].Kind != Make || as[1].Generation != 4 {
		t.Errorf("%v", as)
	}
	m = machine() // no process has been heard of by this route
	m.Reached(2, 7)
	if as := m.Maintain(began); as[0].Generation != 8 {
		t.Errorf("%v", as)
	}
}

// TestRoutesThatKnowAnEarlierProcessHideNothing: a route that was not used since the peer has
// restarted still knows the process before, and reports that after each event.
func TestRoutesThatKnowAnEarlierProcessHideNothing(t *testing.T) {
	m := up(t)
	m.Reached(2, 41)
	for _, other := range []uint64{8, 9, 8, 9, 10, 11, 12, 13} {
		m.Reached(other, 5)
	}
	if last, ok := m.Last(2); last != 41 || !ok || m.next() != 42 {
		t.Errorf("the last generation is %d, %v, the next one %d", last, ok, m.next())
	}
	m = up(t) // it knows the process before, and the other routes that of now
	for range 3 {
		m.Reached(9, 41)
		m.Reached(8, 5)
	}
	m.replacePeer(9, errors.New("it has restarted"))
	if m.next() != 42 {
		t.Errorf("the next generation is %d", m.next())
	}
	m = up(t)
	m.Reached(0, 7) // shown by another route before it knew a process
	if m.next() != 8 {
		t.Errorf("the next generation is %d", m.next())
	}
}

// TestAProcessThatAnotherRouteHasMetIsThePeer: another one that calls gets an introduction, and no
// queue pairs are made for it before a call to the peer's address has verified it.
func TestAProcessThatAnotherRouteHasMetIsThePeer(t *testing.T) {
	m := machine()
	m.Met(began, 2)
	impostor := at(1, testOffer(1, 666))
	as := m.Request(began, 1, impostor)
	want(t, as, Respond, Make) // the call that verifies it shows an offer
	if !as[0].Offer.IsIntroduction() || m.Accepted() != 2 {
		t.Errorf("%v; the peer is %d", as, m.Accepted())
	}
	as = m.Made(began, 1, at(1, testOffer(0, 1)))
	want(t, as, Call)
	want(t, m.CallDone(began, as[0].Call, Introduction(testOffer(1, 2)), nil))
	want(t, m.Request(began, 2, at(1, testOffer(1, 2))), Connect)
	m = up(t)
	if m.Met(began, 9); m.Accepted() != 2 {
		t.Errorf("a machine that knows process 2 took over process %d", m.Accepted())
	}
}

// TestAnotherRouteHasMetAnotherProcess: a channel here is to one that was the peer before, or the other one is. A call to
// the peer's address tells, and the channel to an earlier process is left.
func TestAnotherRouteHasMetAnotherProcess(t *testing.T) {
	for now, leaves := range map[uint64]bool{2: false, 9: true} {
		m := up(t)
		as := m.Met(began.Add(Steady), 9)
		want(t, as, Call)
		as = m.CallDone(began.Add(Steady), as[0].Call, Introduction(testOffer(1, now)), nil)
		if left := slices.Contains(kinds(as), Destroy); left != leaves || m.Accepted() != now {
			t.Errorf("process %d answers: %v; the peer is %d", now, as, m.Accepted())
		}
	}
	m := machine() // without a channel it makes none
	m.Met(began, 2)
	want(t, m.Met(began, 9))
}

// TestACheckThatFailsIsMadeAgain, since another route has its channel already, and says nothing more. It asks for no channel
// over this route, which the other process may not have.
func TestACheckThatFailsIsMadeAgain(t *testing.T) {
	m, now := up(t), began.Add(Steady)
	as := m.Met(now, 9)
	for n := range 3 {
		want(t, as, Call)
		if !as[0].Offer.IsIntroduction() || as[0].Offer.For != 2 {
			t.Errorf("it shows %v for %d", as[0].Offer, as[0].Offer.For)
		}
		want(t, m.CallDone(now, as[0].Call, Offer{}, errors.New("connection refused")))
		if wait := m.Wake().Sub(now); wait != CheckEvery<<(n+1) {
			t.Errorf("after %d calls the next one is due in %v", n+1, wait)
		}
		now = m.Wake()
		as = m.Tick(now)
	}
	want(t, as, Call)
	as = m.CallDone(now, as[0].Call, Introduction(testOffer(1, 9)), nil)
	if !slices.Contains(kinds(as), Destroy) || m.Accepted() != 9 {
		t.Errorf("%v; the peer is %d", as, m.Accepted())
	}
}

// TestAGenerationThatAnotherRouteHasPassedIsALowerOne: the peer gets a higher one.
func TestAGenerationThatAnotherRouteHasPassedIsALowerOne(t *testing.T) {
	m := machine()
	m.Reached(2, 7)
	as := m.Request(began, 1, at(5, testOffer(1, 2)))
	want(t, as, Make)
	if as[0].Generation != 8 {
		t.Fatalf("%v", as)
	}
	as = m.Made(began, as[0].ID, at(8, testOffer(0, 1)))
	want(t, as, Respond)
	if as[0].Offer.Generation != 8 {
		t.Errorf("%v", as)
	}
	// The channel of the present offer is made, although another route has passed it.
	m.Reached(2, 9)
	want(t, m.Request(began, 2, at(8, testOffer(1, 2))), Connect)
}

// TestRoutesChooseDifferentGenerations: each in its lane.
func TestRoutesChooseDifferentGenerations(t *testing.T) {
	for lane, want := range map[uint64][]uint64{1: {1, 4, 7}, 2: {2, 5, 8}, 0: {3, 6, 9}} {
		m := New(Config{Self: testOffer(0, 1), Peer: names[1], Callable: true, Lane: lane, Lanes: 3})
		for i, last := range []uint64{0, want[0], want[1]} {
			if m.last = last; m.next() != want[i] {
				t.Errorf("in lane %d %d comes after %d, want %d", lane, m.next(), last, want[i])
			}
		}
		m.Reached(0, 11) // of no process: it does not matter
		if m.last = 11; m.next()%3 != lane || m.next() <= 11 || m.next() > 14 {
			t.Errorf("in lane %d %d comes after 11", lane, m.next())
		}
	}
}

// TestARestedMachineMakesNoChannels: one that is up stays, and is not made again when it breaks.
func TestARestedMachineMakesNoChannels(t *testing.T) {
	why := status.New(status.Unavailable, "another route")
	m := up(t)
	want(t, m.Rest(began, why))
	if s, _ := m.State(); s != Up {
		t.Errorf("%v", s)
	}
	want(t, m.Broken(began, 3, errors.New("cut")), Destroy)
	if !m.Wake().IsZero() {
		t.Errorf("it wakes at %v", m.Wake())
	}
	want(t, m.Maintain(began), Make)

	m = machine() // an offer that is made
	want(t, m.Maintain(began), Make)
	m.Rest(began, why)
	want(t, m.Made(began, 1, at(1, testOffer(0, 1))), Destroy)
	want(t, m.Maintain(began), Make)

	m = machine() // an offer
	m.Maintain(began)
	m.Made(began, 1, at(1, testOffer(0, 1)))
	want(t, m.Rest(began, why), Destroy)
	want(t, m.Tick(began.Add(time.Hour)))

	m = machine() // HELLO comes after it
	m.Request(began, 1, at(3, testOffer(1, 2)))
	m.Rest(began, why)
	want(t, m.Made(began, 3, at(3, testOffer(0, 1))), Connect)
	m.Connected(began, 3)
	want(t, m.Hello(began, 3), Open)
	want(t, m.Broken(began, 3, errors.New("cut")), Destroy)
}

// TestLeaveEndsAChannelWithABye: and none is made again, but at the peer's request.
func TestLeaveEndsAChannelWithABye(t *testing.T) {
	m := up(t)
	as := m.Leave(began, status.New(status.Unavailable, "another route"))
	want(t, as, Destroy)
	if as[0].Left || !strings.Contains(as[0].Err.Error(), "another route") {
		t.Errorf("%v", as)
	}
	want(t, m.Tick(began.Add(time.Hour)))
	want(t, m.Request(began, 2, at(4, testOffer(1, 2))), Make)
}

// TestARouteThatComesAndGoesKeepsItsBackoff: Rest and Maintain are no way around it.
func TestARouteThatComesAndGoesKeepsItsBackoff(t *testing.T) {
	m := machine()
	m.Maintain(began)
	m.Made(began, 1, at(1, testOffer(0, 1)))
	m.CallDone(began, 1, Offer{}, status.New(status.FailedPrecondition, "no"))
	m.Rest(began, errors.New("another route"))
	want(t, m.Maintain(began))
	if wait := m.Wake().Sub(began); wait != MaxBackoff {
		t.Errorf("it calls after %v", wait)
	}
}

// TestFailuresAreThoseToMakeAChannel: the link of transport/verbs reports breaks itself.
func TestFailuresAreThoseToMakeAChannel(t *testing.T) {
	m := machine()
	m.Maintain(began)
	m.Made(began, 1, at(1, testOffer(0, 1)))
	m.CallDone(began, 1, Offer{}, status.New(status.FailedPrecondition, "no"))
	if n, err := m.Failures(); n != 1 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	m.Broken(began, 1, errors.New("the offer cannot be used"))
	if n, _ := m.Failures(); n != 2 {
		t.Errorf("%d", n)
	}
	m = up(t)
	m.Broken(began, 3, errors.New("cut"))
	if n, _ := m.Failures(); n != 0 {
		t.Errorf("%d", n)
	}
}

// TestARequestWithoutQueuePairsChangesNothing: the peer asks for the inventory.
func TestARequestWithoutQueuePairsChangesNothing(t *testing.T) {
	m := machine()
	as := m.Request(began, 1, Introduction(testOffer(1, 2)))
	want(t, as, Respond)
	if o := as[0].Offer; !o.IsIntroduction() || o.Generation != 0 || o.Incarnation != 1 || m.Accepted() != 0 {
		t.Errorf("%v, and process %x is accepted", o, m.Accepted())
	}
	m.Suspend(began, verbs.ErrDeviceGone)
	refused(t, m.Request(began, 2, Introduction(testOffer(1, 2))), status.Unavailable, "has no verbs for now")
}

// TestOffersOfTCPAndSharedMemory: they have a random GID each, and reach their own kind alone.
func TestOffersOfTCPAndSharedMemory(t *testing.T) {
	of := func(side int, link verbs.LinkLayer) Offer {
		o := at(1, testOffer(side, uint64(side+1)))
		o.Link, o.GIDType, o.Rails[0].GID, o.Rails[0].Data = link, verbs.GIDTypeProcess, verbs.GID{byte(side + 1), 0xff}, []byte{1}
		return o
	}
	for _, link := range []verbs.LinkLayer{verbs.LinkTCP, verbs.LinkShared} {
		a, b := of(0, link), of(1, link)
		b.Host = 99
		if err := errors.Join(Validate(a), Compatible(a, b)); err != nil {
			t.Errorf("%v: %v", link, err)
		}
		changed := of(0, link)
		if changed.Rails[0].Data = []byte{2}; changed.Equal(a) {
			t.Error("the data of a rail makes no difference")
		}
		for words, spoil := range map[string]func(*Offer){
			"GID type on":         func(o *Offer) { o.GIDType = verbs.GIDTypeRoCEv2 },
			"GID is empty":        func(o *Offer) { o.Rails[0].GID = verbs.GID{} },
			"data has 1025 bytes": func(o *Offer) { o.Rails[0].Data = make([]byte, 1025) },
		} {
			o := of(0, link)
			spoil(&o)
			if err := Validate(o); status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), words) {
				t.Errorf("%v: want %q, got %v", link, words, err)
			}
		}
	}
	m := New(Config{Self: of(0, verbs.LinkTCP), Peer: names[1], Callable: true})
	m.Request(began, 1, of(1, verbs.LinkTCP))
	m.Made(began, 1, of(0, verbs.LinkTCP))
	m.Connected(began, 1)
	m.Tick(began.Add(HelloWait))
	if _, err := m.State(); !errors.Is(err, ErrNoPackets) || strings.Contains(err.Error(), "UDP") {
		t.Errorf("silence over TCP: %v", err)
	}
	if err := Compatible(of(0, verbs.LinkTCP), of(1, verbs.LinkShared)); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("%v", err)
	}
	if err := Compatible(of(0, verbs.LinkTCP), testOffer(1, 2)); status.CodeOf(err) != status.FailedPrecondition {
		t.Errorf("%v", err)
	}
}
