// Package overview has what /api/status needs between two requests: the rates and the history of traffic, the last warnings of
// the log, and the last snapshot.
package overview

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// Total is what was sent to a peer and received from it over a route, in bytes.
type Total struct {
	Peer, Route    string
	Sent, Received int64
}

// Traffic keeps rates. It is a pure state machine: Add is called once each interval with the totals.
type Traffic struct {
	mu     sync.Mutex // guards what follows
	last   time.Time
	before map[peerRoute]pair // totals at the last Add
	routes map[string]*routeHistory
	peers  map[string]*peerRate
	at     int // of the next interval in the rings
}

type peerRoute struct{ peer, route string }

type pair struct{ sent, received int64 }

func (p *pair) add(o pair) { p.sent, p.received = p.sent+o.sent, p.received+o.received }

// routeHistory are the rates of a route; ring is indexed by Traffic.at modulo its length.
type routeHistory struct {
	total pair
	ring  [historyIntervals]pair
}

// peerRate are the bytes of a peer in the last intervals.
type peerRate struct {
	total pair
	ring  [rateIntervals]pair
	seen  int // Traffic.at when it was in the totals last
}

// NewTraffic returns a Traffic without rates.
func NewTraffic() *Traffic {
	return &Traffic{before: make(map[peerRoute]pair), routes: make(map[string]*routeHistory), peers: make(map[string]*peerRate)}
}

// Add notes the totals of a process. A total that has become smaller begins again.
func (t *Traffic) Add(now time.Time, totals []Total) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seconds := now.Sub(t.last).Seconds()
	if first := t.last.IsZero(); first || seconds <= 0 {
		seconds = interval.Seconds()
	}
	t.last = now
	t.at++
	for _, r := range t.routes {
		r.ring[t.at%historyIntervals] = pair{}
	}
	for _, p := range t.peers {
		p.ring[t.at%rateIntervals] = pair{}
	}
	for _, one := range totals {
		key, is := peerRoute{one.Peer, one.Route}, pair{one.Sent, one.Received}
		was := t.before[key]
		t.before[key] = is
		if is.sent < was.sent || is.received < was.received {
			was = pair{}
		}
		is = pair{is.sent - was.sent, is.received - was.received}
		p := t.peer(one.Peer)
		p.total.add(is)
		p.ring[t.at%rateIntervals].add(is)
		p.seen = t.at
		if one.Route != "" {
			r := t.route(one.Route)
			r.total.add(is)
			r.ring[t.at%historyIntervals].add(pair{int64(float64(is.sent) / seconds), int64(float64(is.received) / seconds)})
		}
	}
	t.forget()
}

// forget drops the peers that are not in the totals any more: their number is bounded there.
func (t *Traffic) forget() {
	maps.DeleteFunc(t.peers, func(_ string, p *peerRate) bool { return t.at-p.seen > rateIntervals })
	maps.DeleteFunc(t.before, func(k peerRoute, _ pair) bool { return t.peers[k.peer] == nil })
}

func (t *Traffic) peer(name string) *peerRate {
	p := t.peers[name]
	if p == nil {
		p = new(peerRate)
		t.peers[name] = p
	}
	return p
}

func (t *Traffic) route(name string) *routeHistory {
	r := t.routes[name]
	if r == nil {
		r = new(routeHistory)
		t.routes[name] = r
	}
	return r
}

// Counts returns the counts of each peer.
func (t *Traffic) Counts() map[string]statusapi.Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]statusapi.Counts, len(t.peers))
	for name, p := range t.peers {
		var sum pair
		for _, one := range p.ring {
			sum.add(one)
		}
		all[name] = counts(p.total, sum, min(t.at, rateIntervals))
	}
	return all
}

func counts(total, sum pair, intervals int) statusapi.Counts {
	seconds := int64(max(intervals, 1)) * int64(interval/time.Second)
	return statusapi.Counts{
		SentBytes: total.sent, ReceivedBytes: total.received, SentPerSecond: sum.sent / seconds, ReceivedPerSecond: sum.received / seconds,
	}
}

// Routes returns the counts of each route, sorted by name, and their history, with the rates of the last interval.
func (t *Traffic) Routes() (now []statusapi.Route, history *statusapi.History) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(t.at, historyIntervals)
	history = &statusapi.History{IntervalSeconds: interval.Seconds(), End: t.last, Routes: []statusapi.RouteHistory{}}
	now = []statusapi.Route{}
	for _, name := range slices.Sorted(maps.Keys(t.routes)) {
		r := t.routes[name]
		h := statusapi.RouteHistory{Route: name, Sent: make([]int64, n), Received: make([]int64, n)}
		for i := range n {
			one := r.ring[(t.at-n+1+i)%historyIntervals]
			h.Sent[i], h.Received[i] = one.sent, one.received
		}
		history.Routes = append(history.Routes, h)
		now = append(now, statusapi.Route{Route: name, Counts: counts(r.total, r.ring[t.at%historyIntervals], 1)})
	}
	return now, history
}
