package grpctransport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// What the clients of a server make it hold is charged to the connection that they use, to the
// address that it comes from, and to all together (docs/security.md):
//
//	                     connection         address           server
//	answers under way    PerPeer            half of Total     Total
//	copies among them    maxCopies          –                 –
//	calls of a service   maxServiceCalls    maxAddressCalls   –
//	connections          –                  maxConnections    –
//
// Bytes are waited for, since a client that reads gives them back soon. What is larger than a
// limit passes when nothing else is charged. Calls and connections beyond a limit are refused.

// quotas are those of one server.
type quotas struct {
	perPeer, perAddress, total int64
	log                        *slog.Logger
	bytes                      *semaphore.Weighted

	mu        sync.Mutex // guards what follows, and the counts of addresses and connections
	addresses map[string]*addressQuota
}

// addressQuota is what the connections of one address have together.
type addressQuota struct {
	of      *quotas
	address string
	bytes   *semaphore.Weighted

	// All below are guarded by quotas.mu.
	connections int
	refusing    bool           // a refusal was logged
	calls       map[string]int // by service
}

// connQuota is what one connection has.
type connQuota struct {
	of            *addressQuota
	bytes, copies *semaphore.Weighted

	// All below are guarded by quotas.mu.
	closed             bool
	ofAddress, ofTotal int64          // bytes that are charged to the address and to all
	calls              map[string]int // by service
}

func newQuotas(t ServerTuning) *quotas {
	q := &quotas{perPeer: t.PerPeer, total: t.Total, log: t.Logger, addresses: make(map[string]*addressQuota)}
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
	q.bytes = semaphore.NewWeighted(q.total)
	return q
}

// hostOf is an address without its port. Of an IPv6 address it is the network of 64 bits: a host
// has all of that as a rule.
func hostOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String() // a network without ports
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

// connect counts a connection from an address. The caller closes what it returns.
func (q *quotas) connect(from net.Addr) (*connQuota, error) {
	host := hostOf(from)
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.addresses[host]
	if a == nil {
		a = &addressQuota{of: q, address: host, bytes: semaphore.NewWeighted(q.perAddress), calls: make(map[string]int)}
		q.addresses[host] = a
	}
	if a.connections >= maxConnections {
		if !a.refusing {
			a.refusing = true
			q.log.Warn("connections are refused: their address has as many as one may have", "address", host, "connections", a.connections)
		}
		return nil, status.Errorf(status.ResourceExhausted, "%s has %d connections to this server, as many as one address may have", host, a.connections)
	}
	a.connections++
	return &connQuota{
		of: a, bytes: semaphore.NewWeighted(q.perPeer), copies: semaphore.NewWeighted(maxCopies), calls: make(map[string]int),
	}, nil
}

// close gives back what the connection has of its address and of all. gRPC may have dropped
// answers, which only the garbage collector finds.
func (c *connQuota) close() {
	a, q := c.of, c.of.of
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.returnLocked(c.ofAddress, c.ofTotal)
	for service, n := range c.calls {
		a.calls[service] -= n
	}
	a.refusing = false
	if a.connections--; a.connections == 0 {
		delete(q.addresses, a.address)
	}
}

// returnLocked gives bytes back to the address and to all.
func (c *connQuota) returnLocked(ofAddress, ofTotal int64) {
	c.ofAddress -= ofAddress
	c.ofTotal -= ofTotal
	c.of.bytes.Release(ofAddress)
	c.of.of.bytes.Release(ofTotal)
}

// enter counts a call of a service; leave ends it. Both do nothing where c is nil: the server
// was made without ServerOptions.
func (c *connQuota) enter(service string) error {
	if c == nil {
		return nil
	}
	a := c.of
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	switch {
	case c.closed:
		return status.New(status.Unavailable, "the connection has ended")
	case c.calls[service] >= maxServiceCalls:
		return status.Errorf(status.ResourceExhausted,
			"%d calls of %s are under way on this connection, as many as one may have; end some first", c.calls[service], service)
	case a.calls[service] >= maxAddressCalls:
		return status.Errorf(status.ResourceExhausted,
			"%d calls of %s are under way from %s, as many as one address may have; end some first", a.calls[service], service, a.address)
	}
	c.calls[service]++
	a.calls[service]++
	return nil
}

func (c *connQuota) leave(service string) {
	if c == nil {
		return
	}
	c.of.of.mu.Lock()
	defer c.of.of.mu.Unlock()
	if !c.closed {
		c.calls[service]--
		c.of.calls[service]--
	}
}

// charge is bytes of an answer under way. Its zero value is for no bytes.
type charge struct {
	to *connQuota

	copies, ofConn, ofAddress, ofTotal int64 // what each limit counts
}

// chargeOf is n bytes, of which copies are no tensor's.
func (c *connQuota) chargeOf(n, copies int64) charge {
	q := c.of.of
	return charge{c, min(copies, maxCopies), min(n, q.perPeer), min(n, q.perAddress), min(n, q.total)}
}

// limits are what counts a charge, in the order in which they are taken, and how much each does.
func (g *charge) limits() [4]limited {
	a := g.to.of
	return [...]limited{{g.to.copies, g.copies}, {g.to.bytes, g.ofConn}, {a.bytes, g.ofAddress}, {a.of.bytes, g.ofTotal}}
}

type limited struct {
	limit *semaphore.Weighted
	n     int64
}

// take takes what a charge counts by acquire, all or nothing.
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
	c, q := g.to, g.to.of.of
	q.mu.Lock()
	defer q.mu.Unlock()
	c.ofAddress += g.ofAddress
	c.ofTotal += g.ofTotal
	if c.closed { // meanwhile
		c.returnLocked(g.ofAddress, g.ofTotal)
	}
	return nil
}

// charge waits until n bytes of an answer may be under way, of which copies are no tensor's.
// The caller ends what it returns when they are not needed any more.
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

var errMustWait = errors.New("other answers are under way")

// tryCharge is charge unless it would have to wait.
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

// end gives the bytes back.
func (g charge) end() {
	c := g.to
	if c == nil {
		return
	}
	c.copies.Release(g.copies)
	c.bytes.Release(g.ofConn)
	q := c.of.of
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.closed {
		c.returnLocked(g.ofAddress, g.ofTotal)
	}
}
