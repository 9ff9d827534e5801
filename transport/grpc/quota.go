package grpctransport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tryst-rdma/tryst/internal/identity"
	"github.com/tryst-rdma/tryst/internal/wiresize"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// The memory that clients use in a server is charged to their connection, to its address and
// to the server (docs/security.md). The limits are:
//
//	                     connection               address                     server
//	unsent responses     PerPeer                  half of Total               Total
//	copies among them    maxCopies                half of Copies              Copies
//	calls of a service   maxServiceCallsPerConn   maxServiceCallsPerAddress   –
//	connections          –                        maxConnsPerAddress          Connections
//	requests             –                        three quarters of Requests  Requests
//
// A response that would exceed a limit waits until others are written. A response larger than
// the limit waits until nothing else is charged. Calls, connections and requests (requests.go,
// guard.go) beyond a limit are refused. Requests above requestWindow take at most largeShare of
// a limit, so that small ones go on beside them.

// quotas has the quotas of one server.
type quotas struct {
	perPeer, perAddress, total int64
	largest                    int64        // bytes of a request
	requests                   limit        // of requests under way
	requested                  atomic.Int64 // bytes of requests under way, those of an address up to its limit
	scanner                    wiresize.Scanner
	stats                      *RequestStats
	copies                     *semaphore.Weighted // of all connections
	copiesOfConn, mostCopies   int64               // of a connection and of all; half of the second for an address
	mostConns                  int                 // in all
	refused                    func()
	log                        *slog.Logger
	refusals                   *refusalLog
	outOfDates                 func() string // of ServerTuning
	bytes                      *semaphore.Weighted
	loans                      *loans

	mu        sync.Mutex // guards the fields below, and those of addressQuota and connQuota that name it
	addresses map[string]*addressQuota
	conns     int // of all addresses
	full      rareLine
}

// addressQuota is the quota of all connections from one address.
type addressQuota struct {
	server *quotas
	host   string
	bytes  *semaphore.Weighted
	copies *semaphore.Weighted

	requests limit        // of requests under way
	taken    atomic.Int64 // by them, in bytes

	// All below are guarded by quotas.mu.
	connections int
	refusing    bool           // a refused connection was logged
	calls       map[string]int // by service
}

// sharedBytes are the bytes of responses that are charged to the address and to the server.
type sharedBytes struct {
	ofAddress, ofTotal int64
	ofCopies           int64 // to both
}

// rareLine lets a log line through once in refusalPause.
type rareLine struct {
	last   time.Time
	silent int // since last
}

// now reports whether to log, and how many lines were left out before.
func (r *rareLine) now(now time.Time) (silent int, ok bool) {
	if !r.last.IsZero() && now.Sub(r.last) < refusalPause {
		r.silent++
		return 0, false
	}
	silent, r.silent, r.last = r.silent, 0, now
	return silent, true
}

// connQuota is the quota of one connection.
type connQuota struct {
	of            *connection // nil in tests without any
	addr          *addressQuota
	bytes, copies *semaphore.Weighted
	unread        unread

	// All below are guarded by quotas.mu.
	closed bool
	sharedBytes
	calls map[string]int // by service
}

func newQuotas(t ServerTuning) *quotas {
	q := &quotas{perPeer: t.PerPeer, total: t.Total, largest: min(max(maxRequest, t.MaxGraph), maxMessage), stats: t.Requests, log: t.Logger, outOfDates: t.OutOfDates, loans: newLoans(), addresses: make(map[string]*addressQuota)}
	q.requests = limit(t.RequestBytes)
	if q.requests == 0 {
		q.requests = limit(DefaultRequestBytes(t.MaxGraph))
	}
	if q.stats == nil {
		q.stats = new(RequestStats)
	}
	q.mostCopies, q.mostConns, q.refused = t.Copies, t.Connections, t.Refused
	if q.mostCopies == 0 {
		q.mostCopies = 1<<63 - 1
	}
	if q.mostConns == 0 {
		q.mostConns = math.MaxInt
	}
	if q.refused == nil {
		q.refused = func() {}
	}
	q.copies, q.copiesOfConn = semaphore.NewWeighted(q.mostCopies), min(maxCopies, max(q.mostCopies/4, 1))
	if q.perPeer == 0 {
		q.perPeer = transport.DefaultKeptPerRequester
	}
	if q.total == 0 {
		q.total = 1<<63 - 1
	}
	q.perAddress = max(q.total/2, 1)
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	q.refusals = newRefusalLog(q.log)
	q.bytes = semaphore.NewWeighted(q.total)
	return q
}

// DefaultRequestBytes is ServerTuning.RequestBytes when it is 0.
func DefaultRequestBytes(maxGraph int64) int64 { return max(requestsOfGraph*maxGraph, minRequests) }

// connect counts a connection from an address. The caller must close the connQuota.
func (q *quotas) connect(from net.Addr) (*connQuota, error) {
	host := identity.AddressOf(from)
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.addresses[host]
	if a == nil {
		a = &addressQuota{server: q, host: host, bytes: semaphore.NewWeighted(q.perAddress), copies: semaphore.NewWeighted(max(q.mostCopies/2, 1)), requests: q.requests / 4 * 3, calls: make(map[string]int)}
		q.addresses[host] = a
	}
	if q.conns >= q.mostConns || q.conns >= q.mostConns-q.mostConns/newcomersPart && a.connections >= newcomerConns {
		q.refused()
		if not, ok := q.full.now(time.Now()); ok {
			q.log.Warn("refusing connections: there are too many in all; end some, let fewer hosts reach the port, or give the process more memory (setting memory) or descriptors", "address", host, "connections", q.conns, "not_logged", not)
		}
		return nil, status.Errorf(status.ResourceExhausted, "this server has %d connections, the limit for all addresses together", q.conns)
	}
	if most := min(maxConnsPerAddress, max(q.mostConns/2, 1)); a.connections >= most {
		q.refused()
		if !a.refusing {
			a.refusing = true
			q.log.Warn("refusing connections from an address that has reached the limit; let its processes share connections, or end some", "address", host, "connections", a.connections)
		}
		return nil, status.Errorf(status.ResourceExhausted, "%s has %d connections to this server, the limit for one address", host, a.connections)
	}
	a.connections++
	q.conns++
	return &connQuota{
		addr: a, bytes: semaphore.NewWeighted(q.perPeer), copies: semaphore.NewWeighted(q.copiesOfConn), calls: make(map[string]int),
	}, nil
}

// close returns all that the connection has charged to its address and to the server. It does
// not wait for the leases: those of responses that gRPC dropped end only by the garbage
// collector.
func (c *connQuota) close() {
	a, q := c.addr, c.addr.server
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.returnLocked(c.sharedBytes)
	for service, n := range c.calls {
		a.calls[service] -= n
	}
	if a.connections <= refusingUntil { // not at each connection that ends while others wait
		a.refusing = false
	}
	q.conns--
	if a.connections--; a.connections == 0 {
		delete(q.addresses, a.host)
	}
}

// returnLocked returns bytes to the address and to the server. The caller holds quotas.mu.
func (c *connQuota) returnLocked(g sharedBytes) {
	c.sharedBytes = sharedBytes{c.ofAddress - g.ofAddress, c.ofTotal - g.ofTotal, c.ofCopies - g.ofCopies}
	c.addr.bytes.Release(g.ofAddress)
	c.addr.server.bytes.Release(g.ofTotal)
	c.addr.copies.Release(g.ofCopies)
	c.addr.server.copies.Release(g.ofCopies)
}

// enter counts a call of a service until leave. Both do nothing when c is nil, that is for a
// server made without ServerOptions.
func (c *connQuota) enter(service string) error {
	if c == nil {
		return nil
	}
	a := c.addr
	a.server.mu.Lock()
	defer a.server.mu.Unlock()
	switch {
	case c.closed:
		return status.New(status.Unavailable, "the connection has ended")
	case c.calls[service] >= maxServiceCallsPerConn:
		return status.Passing("%d calls of %s are in progress on this connection, the limit for one connection; end some first", c.calls[service], service)
	case a.calls[service] >= maxServiceCallsPerAddress:
		return status.Passing("%d calls of %s are in progress from %s, the limit for one address; end some first", a.calls[service], service, a.host)
	}
	c.calls[service]++
	a.calls[service]++
	return nil
}

func (c *connQuota) leave(service string) {
	if c == nil {
		return
	}
	c.addr.server.mu.Lock()
	defer c.addr.server.mu.Unlock()
	if !c.closed {
		c.calls[service]--
		c.addr.calls[service]--
	}
}

// charge is what a response is charged with until it is written. The zero value is a charge
// of 0 bytes.
type charge struct {
	conn *connQuota

	copies, ofConn int64 // bytes charged to each limit of the connection
	sharedBytes
}

// chargeOf returns the charge for a response of n bytes. The second argument is the part of them that is
// copied for the response and does not belong to a tensor.
func (c *connQuota) chargeOf(n, copies int64) charge {
	q := c.addr.server
	copies = min(copies, q.copiesOfConn)
	return charge{c, copies, min(n, q.perPeer), sharedBytes{min(n, q.perAddress), min(n, q.total), copies}}
}

// limits returns the limits that a charge is taken from, in that order, with the bytes of each.
func (g *charge) limits() [6]limited {
	a := g.conn.addr
	return [...]limited{
		{g.conn.copies, g.copies}, {g.conn.bytes, g.ofConn}, {a.bytes, g.ofAddress}, {a.server.bytes, g.ofTotal},
		{a.copies, g.ofCopies}, {a.server.copies, g.ofCopies},
	}
}

type limited struct {
	limit *semaphore.Weighted
	n     int64
}

// take acquires the bytes of all limits, or none.
func (g *charge) take(acquire func(limited) error) error {
	limits := g.limits()
	for i, l := range limits {
		if err := acquire(l); err != nil {
			for _, had := range limits[:i] {
				had.limit.Release(had.n)
			}
			return err
		}
	}
	c, q := g.conn, g.conn.addr.server
	c.unread.begin()
	q.mu.Lock()
	defer q.mu.Unlock()
	c.sharedBytes = sharedBytes{c.ofAddress + g.ofAddress, c.ofTotal + g.ofTotal, c.ofCopies + g.ofCopies}
	if c.closed { // while acquire waited
		c.returnLocked(g.sharedBytes)
	}
	return nil
}

// charge charges n bytes of a response, of which copies are copies rather than memory of a
// tensor. It waits until the limits permit them, or ctx ends. The caller must end the charge.
func (c *connQuota) charge(ctx context.Context, n, copies int64) (charge, error) {
	if c == nil {
		return charge{}, nil
	}
	g := c.chargeOf(n, copies)
	err := g.take(func(l limited) error { return l.limit.Acquire(ctx, l.n) })
	if err != nil {
		return charge{}, status.From(err)
	}
	return g, nil
}

// chargeNothing returns a charge for a response whose memory is counted elsewhere. The caller must end it.
func (c *connQuota) chargeNothing() charge {
	if c == nil {
		return charge{}
	}
	c.unread.begin()
	return charge{conn: c}
}

var errMustWait = errors.New("other responses are in progress")

// tryCharge is charge without waiting: ok is false when charge would wait.
func (c *connQuota) tryCharge(n, copies int64) (g charge, ok bool) {
	if c == nil {
		return charge{}, true
	}
	g = c.chargeOf(n, copies)
	err := g.take(func(l limited) error {
		if !l.limit.TryAcquire(l.n) {
			return errMustWait
		}
		return nil
	})
	if err != nil {
		return charge{}, false
	}
	return g, true
}

// loans returns the loans of the server, nil without one.
func (g *charge) loans() *loans {
	if g.conn == nil {
		return nil
	}
	return g.conn.addr.server.loans
}

// end returns the bytes.
func (g charge) end() {
	c := g.conn
	if c == nil {
		return
	}
	c.unread.end()
	c.copies.Release(g.copies)
	c.bytes.Release(g.ofConn)
	q := c.addr.server
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.closed {
		c.returnLocked(g.sharedBytes)
	}
}

// limit is how many bytes the requests under way may take.
type limit int64

// allows reports whether a request of size may take the last of n bytes.
func (l limit) allows(n, size int64) bool {
	if size > requestWindow {
		l = l / largeShareOf * largeShare
	}
	return n <= int64(l)
}

// takeRequest charges n more bytes, and returns what requests take of all limits together and of this address.
// Calls are charged before they are refused. Beyond the limit of their address they take nothing of the
// server's, so that a client that begins calls faster than they are refused keeps none from others.
func (a *addressQuota) takeRequest(n int64) (all, ofAddress int64) {
	q := a.server
	q.stats.bytes.Add(n)
	ofAddress = a.taken.Add(n)
	most := int64(a.requests)
	return q.requested.Add(min(ofAddress, most) - min(ofAddress-n, most)), ofAddress
}

// takeRequest charges n more bytes of a request that takes size, or returns why it does not.
func (c *connQuota) takeRequest(n, size int64) (refused string) {
	a, q := c.addr, c.addr.server
	switch all, ofAddress := a.takeRequest(n); {
	case !q.requests.allows(all, size):
		refused = fmt.Sprintf("the requests under way take %d bytes, and may take %d", max(0, all-n), q.requests)
	case !a.requests.allows(ofAddress, size):
		refused = fmt.Sprintf("the requests under way from %s take %d bytes, and those of one address may take %d", a.host, ofAddress-n, a.requests)
	default:
		return ""
	}
	c.giveRequest(n)
	return fmt.Sprintf("a request takes %d bytes; %s", max(size, callBytes), refused)
}

// fits reports whether a request of size is within the limits when no other one is under way.
func (c *connQuota) fits(size int64) bool {
	return c.addr.requests.allows(size, size) && c.addr.server.requests.allows(size, size)
}

// forceRequest charges n bytes of a request, whatever the limits.
func (c *connQuota) forceRequest(n int64) { c.addr.takeRequest(n) }

func (c *connQuota) giveRequest(n int64) { c.forceRequest(-n) }

// crowded returns why no request can be served; nil when one can.
func (c *connQuota) crowded() error {
	if c == nil {
		return nil
	}
	if refused := c.takeRequest(0, 0); refused != "" {
		return status.Passing("the server takes no more calls: %s; end some first, or try again later", refused)
	}
	return nil
}

// refuseRequest logs and counts a refused request.
func (q *quotas) refuseRequest(from net.Addr, kind refusalKind, reason string) {
	switch kind {
	case refusedBytes:
		q.stats.crowd.Add(1)
	case refusedLate:
		q.stats.late.Add(1)
	case refusedSize:
		q.stats.growth.Add(1)
	case refusedUnread:
		q.stats.unread.Add(1)
	}
	q.refusals.add(from, refusal{kind: kind, reason: reason})
}
