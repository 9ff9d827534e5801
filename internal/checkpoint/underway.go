package checkpoint

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
)

// MaxPulls is how many pulls a Catalog serves at once.
const MaxPulls = maxStreams

// Pulling is a pull that is under way.
type Pulling struct {
	Publication, Version string
	Puller               cluster.Task
	Address              string // of the puller's connection
	Since                time.Time
	Tensors              int
	// Bytes is what the pull wants: what it asked for without what an earlier session has brought. Sent is what was handed to the transport for it, at most Bytes: a tensor that
	// is requested again counts again.
	Bytes, Sent int64
}

// Offer is a version of a publication.
type Offer struct {
	Publication
	Current  bool // otherwise it was replaced, and stays for its pulls
	Pulls    int
	Watchers int // of the current version
}

// Offers returns the publications with their versions, sorted by name, the current version of each first.
func (c *Catalog) Offers() []Offer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]Offer, 0, len(c.publications)+len(c.old))
	for _, p := range c.publications {
		if p != nil {
			one := Offer{Publication: p.manifest.Publication, Current: true, Pulls: p.pulls}
			if l := c.lines[one.Name]; l != nil {
				one.Watchers = len(l.watching)
			}
			all = append(all, one)
		}
	}
	for _, p := range c.old {
		all = append(all, Offer{Publication: p.manifest.Publication, Pulls: p.pulls})
	}
	slices.SortStableFunc(all, func(a, b Offer) int {
		switch {
		case a.Name != b.Name:
			return strings.Compare(a.Name, b.Name)
		case a.Current != b.Current && a.Current:
			return -1
		case a.Current != b.Current:
			return 1
		}
		return b.Published.Compare(a.Published)
	})
	return all
}

// Pulling returns the pulls that are under way, the oldest first.
func (c *Catalog) Pulling() []Pulling { return c.underWay.all() }

// pullCounts counts what each pull under way has got. The zero value is ready for use.
type pullCounts struct {
	mu sync.RWMutex // guards what follows
	of map[cluster.Task][]*pullCount
}

// pullCount is a pull with its count.
type pullCount struct {
	Pulling
	number uint64 // of the version
	sent   atomic.Int64
	pulled *atomic.Int64 // of all pulls of the publication
	missed atomic.Bool   // it has asked for a tensor that was withdrawn
}

// begin notes a pull until the returned function is called. pulled counts for all pulls of the publication.
func (p *pullCounts) begin(ctx context.Context, of Publication, entries []*entry, puller cluster.Task, pulled *atomic.Int64) (n *pullCount, end func()) {
	n = &pullCount{pulled: pulled, number: of.Number, Pulling: Pulling{Publication: of.Name, Version: of.Version, Puller: puller, Since: time.Now(), Tensors: len(entries)}}
	if from, ok := peer.FromContext(ctx); ok {
		n.Address = from.Addr.String()
	}
	for _, e := range entries {
		n.Bytes += e.info.Bytes
	}
	n.Bytes = wantedBytes(ctx, n.Bytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[cluster.Task][]*pullCount)
	}
	p.of[puller] = append(p.of[puller], n)
	return n, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		left := slices.DeleteFunc(p.of[puller], func(o *pullCount) bool { return o == n })
		if p.of[puller] = left; len(left) == 0 {
			delete(p.of, puller)
		}
	}
}

// sent counts bytes of the value of a key, which stand for so many of the version.
func (p *pullCounts) sent(key *rendezvous.Key, bytes, stand int64) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if one := p.findLocked(key); one != nil {
		one.sent.Add(stand)
		one.pulled.Add(bytes)
	}
}

// missed notes that the content of a key is not here any more.
func (p *pullCounts) missed(key *rendezvous.Key) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if one := p.findLocked(key); one != nil {
		one.missed.Store(true)
	}
}

// findLocked returns the pull that a key is of; nil if there is none.
func (p *pullCounts) findLocked(key *rendezvous.Key) *pullCount {
	pulls := p.of[key.Dst().Task]
	if len(pulls) < 2 { // a key of another publication would be a hostile puller's
		for _, one := range pulls {
			return one
		}
		return nil
	}
	publication, version, _, _, ok := parseEdge(key.Edge())
	d, isDelta := parseDeltaEdge(key.Edge())
	i := slices.IndexFunc(pulls, func(o *pullCount) bool {
		return o.Publication == publication && (o.Version == version || isDelta && o.number >= d.to)
	})
	if !ok || i < 0 {
		return nil
	}
	return pulls[i]
}

func (p *pullCounts) all() (all []Pulling) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, of := range p.of {
		for _, n := range of {
			one := n.Pulling
			one.Sent = min(n.sent.Load(), one.Bytes)
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Pulling) int { return a.Since.Compare(b.Since) })
	return all
}
