package checkpoint

import (
	"context"
	"fmt"
	"hash"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// CatalogOptions configures a Catalog. Device and Incarnation are needed.
type CatalogOptions struct {
	// Device is the source in the keys, and Incarnation its incarnation in this process'
	// rendezvous.
	Device      cluster.Device
	Incarnation uint64
	// Allocator allocates the memory into which files are read; a tensor.Pool of the
	// catalog's own when nil.
	Allocator tensor.Allocator
	// Digest is XXH64 or SHA256; XXH64 when empty.
	Digest string
	// MMap maps files instead of reading them. The process crashes if a mapped file is
	// truncated.
	MMap bool
	// CacheBytes is how many bytes of the files' content stay in memory for the next puller,
	// while several pulls are under way. 0 means DefaultCacheBytes, a negative number means none.
	CacheBytes int64
	// CacheTime is how long that content stays without use. 0 means DefaultCacheTime; with a
	// negative number it stays until newer content takes its place.
	CacheTime time.Duration
	// Settle is how long other files must have the names of published ones, and must not have
	// changed, before they are taken, and the interval at which the catalog looks at its files.
	// 0 means DefaultSettle. With a negative number files are only taken by Reload, at once,
	// and replaced versions stay until a later Reload.
	Settle time.Duration
	// EndStep, if not nil, is called once for each step of a puller, when its stream has
	// ended and its state can be released. It must not block.
	EndStep func(step int64)
	// EndKeys, if not nil, is called when a version from memory has ended: what is kept for keys for which withdrawn returns
	// true can be released, in whatever step it was requested.
	EndKeys func(withdrawn func(rendezvous.Key) bool)
	// Over, if not nil, is called when a pull begins. Its result is called when the pull has ended,
	// for the log, and returns over what the puller got its tensors; empty if that is not known.
	Over func(puller cluster.Task) func() string
	// CheckPuller, if not nil, returns an error if the caller of Open, whose context it gets, may not
	// use the name of a puller: its keys would be for another process.
	CheckPuller func(ctx context.Context, puller cluster.Task) error
	// PullEnded, if not nil, is called when a pull has ended or was refused.
	PullEnded func(PullEnd)
	// Progress, if not nil, is called a few times a second with the number of bytes of a
	// publication that have been read for its digests.
	Progress func(publication string, done, total int64)
	// ReplacedPulls is how long pulls of a version in memory may go on when another one has taken its place.
	// 0 means DefaultReplacedPulls.
	ReplacedPulls time.Duration
	// NoDeltas gives every version whole, also to watchers that take deltas.
	NoDeltas bool
	// Connection, if not nil, returns the connection of a call; nil if it is not known.
	Connection func(ctx context.Context) Connection
	// Returned, if not nil, is called when the memory of a version has come back, with the time since pulls of it
	// were ended. It must not block.
	Returned func(time.Duration)
	// Preparing makes the service answer Unavailable until Ready is called, so that pullers
	// do not take the publications that are there already for all of them.
	Preparing bool
	// Logger logs each publication and each pull; nil for no log.
	Logger *slog.Logger
}

// Catalog has the publications of one server. It is the rendezvous.Publisher of their tensors, and
// implements the service tryst.Publications (Register). It is safe for concurrent use.
type Catalog struct {
	o        CatalogOptions
	newHash  func() hash.Hash
	loader   *loader
	streams  streams
	ready    atomic.Bool
	ended    endedLog
	underWay pullCounts
	pulled   pulledBytes
	saved    savedBytes

	watchers atomic.Int64 // streams of Watch

	comparisons *comparisons // of the content of files that were touched

	reloading chan struct{} // holds a value while a publication is read again
	work      sync.WaitGroup

	mu sync.RWMutex
	// All below are guarded by mu.
	old          []*publication          // replaced, for pulls of them
	lines        map[string]*line        // by name
	stopWatch    context.CancelFunc      // nil before the first publication of files
	publications map[string]*publication // nil for one that is being made
	edges        map[string]*entry       // by the edge name of the key
	listed       *trystpb.ListResponse   // the publications, encoded; nil when they have changed
	closed       bool
}

// NewCatalog returns an empty catalog. An unknown digest is InvalidArgument.
func NewCatalog(o CatalogOptions) (*Catalog, error) {
	if o.Digest == "" {
		o.Digest = XXH64
	}
	newHash, err := newHash(o.Digest)
	if err != nil {
		return nil, err
	}
	if o.Allocator == nil {
		o.Allocator = tensor.NewPool(tensor.PoolOptions{})
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.CacheTime == 0 {
		o.CacheTime = DefaultCacheTime
	}
	if o.Settle == 0 {
		o.Settle = DefaultSettle
	}
	if o.ReplacedPulls == 0 {
		o.ReplacedPulls = DefaultReplacedPulls
	}
	if o.Returned == nil {
		o.Returned = func(time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Catalog{
		o: o, newHash: newHash,
		publications: make(map[string]*publication),
		edges:        make(map[string]*entry),
		lines:        make(map[string]*line),
		reloading:    make(chan struct{}, 1),
	}
	c.streams.init()
	c.loader = newLoader(o.Allocator, o.CacheBytes, o.CacheTime, func() bool { return c.Pulls() > 1 })
	c.comparisons = newComparisons(c.streams.closing)
	c.ready.Store(!o.Preparing)
	if o.MMap {
		// The user has chosen it.
		o.Logger.Info("published files are mapped into memory: a file that is truncated meanwhile kills this process; replace files by renaming others onto their names")
	}
	return c, nil
}

// Ready ends the time of CatalogOptions.Preparing.
func (c *Catalog) Ready() { c.ready.Store(true) }

// Publish publishes the tensors of files under a name. It returns when their digests are
// computed. A path is a .safetensors file, the index of a sharded checkpoint
// (*.safetensors.index.json), a directory with one of the two, or an .npy file; the tensor of
// an .npy file has the file's base name without the extension. If name is empty and there is
// one path, the name is the base name of the path without its extension.
//
// The files stay open. When other files are renamed onto the names of all tensor files, or an index
// onto its name after those that have changed, the publication gets a new version with their
// content; pulls in progress go on with the old one. A file that is
// written in place is an error to pullers until Reload.
//
// The error is AlreadyExists for a name in use, and InvalidArgument or DataLoss for an invalid
// file, which it names.
func (c *Catalog) Publish(ctx context.Context, name string, paths ...string) (Publication, error) {
	if name == "" && len(paths) == 1 {
		name = defaultName(paths[0])
	}
	return c.publish(ctx, name, func() (*publication, error) { return c.fromFiles(name, paths) })
}

// PublishTensors publishes tensors in memory, which must have names. It takes references of its
// own. The memory must not be written to until all references are released.
func (c *Catalog) PublishTensors(ctx context.Context, name string, tensors ...*tensor.Tensor) (Publication, error) {
	return c.publish(ctx, name, func() (*publication, error) { return fromTensors(name, tensors) })
}

// publish reserves the name, makes the publication and adds it to the catalog.
func (c *Catalog) publish(ctx context.Context, name string, build func() (*publication, error)) (Publication, error) {
	begin := time.Now()
	if err := checkName("publication", name); err != nil {
		return Publication{}, err
	}
	what := "publishing " + quote(name)
	if err := c.reserve(name); err != nil {
		return Publication{}, wrap(what, err)
	}
	p, err := build()
	if err == nil {
		if err = c.complete(ctx, p); err == nil {
			err = c.enter(ctx, p)
		}
		if err != nil {
			p.close()
		}
	}
	if err != nil {
		c.mu.Lock()
		delete(c.publications, name)
		c.mu.Unlock()
		return Publication{}, wrap(what, err)
	}
	c.logPublished(p, begin)
	return p.manifest.Publication, nil
}

func (c *Catalog) logPublished(p *publication, begin time.Time, more ...any) {
	m := &p.manifest
	c.o.Logger.Info("published", append([]any{"publication", m.Name, "version", m.Version, "tensors", m.Tensors,
		"bytes", m.Bytes, "digest", m.Digest(), "seconds", time.Since(begin).Round(time.Millisecond).Seconds()}, more...)...)
}

// complete computes digests and version of a new publication.
func (c *Catalog) complete(ctx context.Context, p *publication) error {
	m := &p.manifest
	var report func(done, total int64)
	if c.o.Progress != nil {
		report = func(done, total int64) { c.o.Progress(m.Name, done, total) }
	}
	if err := p.digest(ctx, c.newHash, c.o.Allocator, report); err != nil {
		return err
	}
	m.Algorithm, m.Published = c.o.Digest, time.Now()
	return m.setVersion()
}

func (c *Catalog) reserve(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed()
	}
	if _, ok := c.publications[name]; ok {
		return alreadyExists()
	}
	c.publications[name] = nil
	return nil
}

func alreadyExists() *status.Error {
	return status.New(status.AlreadyExists, "there is a publication of this name already: give this one another name, or withdraw that one first")
}

// enter adds a new publication, whose name was reserved, to the catalog. It waits while two withdrawn versions of the
// name are in memory.
func (c *Catalog) enter(ctx context.Context, p *publication) error {
	l := c.use(p.manifest.Name)
	defer c.leave(l)
	return c.waitForRoom(ctx, l, func() ([]*life, bool, error) {
		number, err := l.next(0)
		if err != nil {
			return nil, false, err
		}
		return c.admitLocked(l, p, number, false)
	})
}

// watchFilesLocked begins to look at files.
func (c *Catalog) watchFilesLocked(p *publication) {
	if len(p.paths) > 0 && c.o.Settle > 0 && c.stopWatch == nil {
		ctx, cancel := context.WithCancel(context.Background())
		c.stopWatch = cancel
		c.work.Go(func() { c.watch(ctx) })
	}
}

// end releases the memory and the files of publications that are not in the catalog any more.
func (c *Catalog) end(all []*publication) {
	for _, p := range all {
		c.loader.forget(p.entries)
		p.close()
	}
}

// List returns the publications, sorted by name.
func (c *Catalog) List() []Publication {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.listLocked()
}

func (c *Catalog) listLocked() []Publication {
	var all []Publication
	for _, p := range c.publications {
		if p != nil {
			all = append(all, p.manifest.Publication)
		}
	}
	slices.SortFunc(all, byName)
	return all
}

// list returns the publications as a message, which all calls share.
func (c *Catalog) list() *trystpb.ListResponse {
	c.mu.RLock()
	l := c.listed
	c.mu.RUnlock()
	if l != nil {
		return l
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listed == nil {
		l = &trystpb.ListResponse{}
		for _, p := range c.listLocked() {
			l.Publications = append(l.Publications, p.proto())
		}
		c.listed = encoded(l)
	}
	return c.listed
}

// GiveBack releases n bytes of the files' content that is in memory for the next puller and that nobody reads now, or
// all of it. It reports whether there was any. An allocator calls it that would otherwise refuse memory. It does not
// wait.
func (c *Catalog) GiveBack(n int64) bool { return c.loader.giveBack(n) }

// Cached returns how many bytes of the files' content are in memory for the next puller.
func (c *Catalog) Cached() int64 { return c.loader.size() }

// Describe returns the manifest of a publication. An empty version means the current one. A version
// that was replaced is there while it is pulled, and at least a minute longer. Any other version, and an
// unknown name, is NotFound.
func (c *Catalog) Describe(name, version string) (*Manifest, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, err := c.findLocked(name, version)
	if err != nil {
		return nil, err
	}
	return &p.manifest, nil
}

func (c *Catalog) findLocked(name, version string) (*publication, error) {
	p := c.publications[name]
	if p == nil {
		if _, ok := c.publications[name]; ok {
			return nil, status.Errorf(status.Unavailable, "publication %s is being prepared; try again", quote(name))
		}
		return nil, status.Errorf(status.NotFound, "there is no publication %s; %s", quote(name), nearest(name, maps.Keys(c.publications)))
	}
	if version != "" && version != p.manifest.Version {
		for _, old := range c.old {
			if old.manifest.Name == name && old.manifest.Version == version {
				return old, nil
			}
		}
		return nil, status.Errorf(status.NotFound, "publication %s has version %s; %s is not here", quote(name), p.manifest.Version, quote(version))
	}
	return p, nil
}

// Publishes implements rendezvous.Publisher.
func (c *Catalog) Publishes(key rendezvous.Key) bool {
	_, _, _, _, ok := parseEdge(key.Edge())
	return ok && (key.SrcEmpty() || key.Src() == c.o.Device)
}

// find returns the content of a key, without an entry if it is not published; held is a reference
// to its tensor if that is in memory. ok is false for a key that no publication can have.
func (c *Catalog) find(name string, key *rendezvous.Key) (x content, held *tensor.Tensor, closed, ok bool) {
	if !strings.HasPrefix(name, edgePrefix) || !key.SrcEmpty() && key.Src() != c.o.Device {
		return content{}, nil, false, false
	}
	c.mu.RLock()
	x.entry, closed = c.edges[name], c.closed
	if x.entry == nil {
		x = c.pieceLocked(name)
	}
	if x.entry != nil && x.held != nil {
		held = x.held.Retain() // under mu: Withdraw releases after it
	}
	c.mu.RUnlock()
	if held != nil {
		var err error
		if held, err = pieceOf(held, x.piece); err != nil {
			return content{}, nil, closed, true
		}
	}
	return x, held, closed, true
}

// pieceLocked returns the content of the key of a piece; without an entry if there is none.
func (c *Catalog) pieceLocked(name string) content {
	publication, version, tensor, p, ok := parseEdge(name)
	if !ok || p.whole() {
		return content{}
	}
	e := c.edges[EdgeName(publication, version, tensor)]
	if e == nil || !e.has(p) {
		return content{}
	}
	return content{e, p}
}

// RecvPublished implements rendezvous.Publisher. It calls done on this goroutine for a tensor in
// memory, and on a goroutine of the catalog for a tensor that must be read.
func (c *Catalog) RecvPublished(ctx context.Context, key rendezvous.Key, done rendezvous.DoneFunc) bool {
	name := key.Edge()
	if k, ok := parseDeltaEdge(name); ok {
		c.recvDelta(&key, &k, done)
		return true
	}
	x, held, closed, ok := c.find(name, &key)
	switch {
	case !ok:
		return false
	case held != nil:
		c.underWay.sent(&key, held.Size(), held.Size())
		done(rendezvous.Value{Tensor: held}, rendezvous.Args{}, nil)
	case x.entry != nil:
		c.loader.get(ctx, x, func(t *tensor.Tensor, err error) {
			if err == nil {
				c.underWay.sent(&key, t.Size(), t.Size())
			}
			done(rendezvous.Value{Tensor: t}, rendezvous.Args{}, err)
		})
	default:
		publication, version, tensor, p, ok := parseEdge(name)
		if !ok {
			return false
		}
		what := "tensor " + quote(tensor)
		if !p.whole() {
			what = fmt.Sprintf("the piece of %d bytes at %d of %s", p.n, p.off, what)
		}
		c.underWay.missed(&key)
		err := status.Errorf(status.NotFound, "%s of publication %s, version %s, is not here any more: it was withdrawn, or never published",
			what, quote(publication), quote(version))
		if closed {
			err = errClosed()
		}
		done(rendezvous.Value{}, rendezvous.Args{}, err)
	}
	return true
}

// TakePublished implements rendezvous.Publisher.
func (c *Catalog) TakePublished(key rendezvous.Key) (v rendezvous.Value, ok bool) {
	if k, ok := parseDeltaEdge(key.Edge()); ok {
		return c.takeDelta(&key, &k)
	}
	_, held, _, _ := c.find(key.Edge(), &key)
	if held != nil {
		c.underWay.sent(&key, held.Size(), held.Size())
	}
	return rendezvous.Value{Tensor: held}, held != nil
}

// Close ends all pulls with Unavailable and all publications, waits for reads in progress, and
// releases all memory. It may be called twice.
func (c *Catalog) Close() {
	c.mu.Lock()
	c.closed = true
	all := c.old
	for _, p := range c.publications {
		if p != nil {
			all = append(all, p)
		}
	}
	for _, p := range all {
		p.endedAt = time.Now()
	}
	c.old, c.publications, c.listed = nil, make(map[string]*publication), nil
	c.edges = make(map[string]*entry)
	for _, l := range c.lines {
		l.changedLocked()
		l.deltas.clear()
		c.setTimerLocked(l)
	}
	if c.stopWatch != nil {
		c.stopWatch()
	}
	c.mu.Unlock()
	c.streams.close()
	c.work.Wait()
	c.loader.close(errClosed())
	c.comparisons.all.Wait() // pulls, the watch and the loader, which start them, have ended
	for _, p := range all {
		p.close()
	}
}

func errClosed() *status.Error {
	return status.New(status.Unavailable, "the server is stopping")
}
