package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"iter"
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// Register adds the service tryst.Publications to a gRPC server. A stream of Open lasts until
// its puller ends it, so call Drain before a graceful stop.
func (c *Catalog) Register(r grpc.ServiceRegistrar) {
	trystgrpc.RegisterPublicationsServer(r, &service{catalog: c})
}

// service implements tryst.Publications for a Catalog.
type service struct {
	trystgrpc.UnimplementedPublicationsServer
	catalog *Catalog
}

// prepared returns an error as long as not all is published.
func (c *Catalog) prepared() error {
	if !c.ready.Load() {
		return status.New(status.Unavailable, "the server is starting and has not published everything yet; try again")
	}
	return nil
}

func (s *service) List(ctx context.Context, _ *trystpb.ListRequest) (*trystpb.ListResponse, error) {
	if err := s.catalog.prepared(); err != nil {
		return nil, answer(err, setTrailer(ctx))
	}
	return s.catalog.list(), nil
}

func (s *service) Describe(ctx context.Context, req *trystpb.DescribeRequest) (*trystpb.DescribeResponse, error) {
	c := s.catalog
	if err := c.prepared(); err != nil {
		return nil, answer(err, setTrailer(ctx))
	}
	c.mu.RLock()
	p, err := c.findLocked(req.GetPublication(), req.GetVersion())
	c.mu.RUnlock()
	if err != nil {
		return nil, answer(err, setTrailer(ctx))
	}
	return p.described(), nil
}

func (s *service) Open(req *trystpb.OpenRequest, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	began := false
	err := s.catalog.open(req, stream, &began)
	if !began {
		s.catalog.reportEnd(stream.Context(), PullEnd{Code: status.CodeOf(err)})
	}
	return answer(err, stream.SetTrailer)
}

// open sends a puller its step and keys. The step lasts until the stream ends. What costs more comes later: the
// refusals that look at nothing, the publication, the names, the files, the keys. It sets began when it refuses no more.
func (c *Catalog) open(req *trystpb.OpenRequest, stream grpc.ServerStreamingServer[trystpb.OpenResponse], began *bool) (failure error) {
	if err := c.prepared(); err != nil {
		return err
	}
	if err := checkPieceBytes(req.GetPieceBytes()); err != nil {
		return err
	}
	puller, err := c.callerTask(stream.Context(), "puller", req.GetPuller())
	if err != nil {
		return err
	}
	o := newOpened(c.connection(stream.Context()), req.GetNotices())
	step, err := c.streams.begin(o)
	if err != nil {
		return err
	}
	defer c.streams.end(step)
	defer o.close()
	p, end, err := c.begin(req.GetPublication(), req.GetVersion(), o)
	if err != nil {
		return err
	}
	defer end()
	entries, err := p.choose(req.GetTensors())
	if err != nil {
		return err
	}
	// It counts as a pull, since it may take minutes.
	if err := unchanged(stream.Context(), entries, p.byName[req.GetDamaged()]); err != nil {
		if stream.Context().Err() == nil {
			level := slog.LevelWarn
			if p.refused.Swap(true) { // pullers come again, and it is one fact
				level = slog.LevelDebug
			}
			c.o.Logger.Log(stream.Context(), level, "pulls of a publication are refused; publish its files again", "publication", p.manifest.Name, "puller", puller.String(), "reason", err)
		}
		return wrap("publication "+quote(p.manifest.Name), err)
	}
	if c.o.EndStep != nil {
		o.begin(func() { c.o.EndStep(step) })
	}
	*began = true
	pulled, forget := c.pulled.begin(p.manifest.Name, c.publishes)
	defer forget()
	pull, gone := c.underWay.begin(stream.Context(), p.manifest.Publication, entries, puller, pulled)
	defer gone()
	log := c.o.Logger.With("address", pull.Address, "puller", puller.String(), "publication", p.manifest.Name, "version", p.manifest.Version, "step", step)
	log.Debug("a pull begins", "tensors", len(entries), "bytes", pull.Bytes)
	over := func() string { return "" }
	if c.o.Over != nil {
		over = c.o.Over(puller)
	}
	defer func() {
		end := PullEnd{Code: pull.code(failure), Took: time.Since(pull.Since)}
		text := over() // before the step ends: then the puller may be gone
		o.end()
		c.ended.log(stream.Context(), log, pull, end, text, failure)
		c.measured(p, pull, end.Took.Seconds())
		c.reportEnd(stream.Context(), end)
	}()
	if err := c.whileHere(p, o, func() error { return c.sendAll(p, entries, step, puller, req, stream) }); err != nil {
		return err
	}
	return c.attend(p, o, step, stream)
}

// callerTask returns the task that a caller says it is, as which it may call. what names it in errors.
func (c *Catalog) callerTask(ctx context.Context, what, name string) (cluster.Task, error) {
	if len(name) > maxTaskName {
		return cluster.Task{}, status.Errorf(status.InvalidArgument, "%s: the name %s is longer than %d bytes", what, quote(name), maxTaskName)
	}
	task, err := cluster.ParseTask(name)
	if err != nil {
		return cluster.Task{}, wrap(what, err)
	}
	if c.o.CheckPuller != nil {
		err = c.o.CheckPuller(ctx, task)
	}
	return task, err
}

// whileHere calls send, which sends messages to a puller and waits until it reads them. It returns when that is done, and
// without it at the end of the catalog, of a puller that does not answer, and leaveWithin after the version is gone. Then send
// ends with the stream: gRPC ends it when its handler has returned.
func (c *Catalog) whileHere(p *publication, o *opened, send func() error) error {
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	select {
	case err := <-sent:
		return err
	case <-c.streams.closing:
		return errClosed()
	case <-o.deaf:
		return errDeaf()
	case <-p.gone:
	}
	late := time.NewTimer(leaveWithin)
	defer late.Stop()
	select {
	case err := <-sent:
		return err
	case <-c.streams.closing:
		return errClosed()
	case <-o.deaf:
		return errDeaf()
	case <-late.C:
	}
	if _, newer := p.why.Payload(changedKey); newer { // this payload does not reach the puller; it asks again, and finds the newer version
		return status.Errorf(status.Unavailable, "the puller has not read its keys for %v, and meanwhile %s", leaveWithin, p.why.Message())
	}
	return p.why
}

// connection returns the connection of a call; nil if it is not known.
func (c *Catalog) connection(ctx context.Context) Connection {
	if c.o.Connection == nil {
		return nil
	}
	return c.o.Connection(ctx)
}

func (s *service) Alive(_ context.Context, req *trystpb.AliveRequest) (*trystpb.AliveResponse, error) {
	if o := s.catalog.streams.find(req.GetStepId()); o != nil {
		o.answered()
	}
	return &trystpb.AliveResponse{}, nil
}

// sendAll sends the keys of the entries, and then the offers of deltas.
func (c *Catalog) sendAll(p *publication, entries []*entry, step int64, puller cluster.Task, req *trystpb.OpenRequest, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	offers := c.offers(p, entries, puller, req.GetDeltas())
	err := c.sendKeys(p, entries, step, puller, int64(req.GetPieceBytes()), offers.any(), stream)
	if err == nil && offers.any() {
		err = offers.send(step, stream)
	}
	return err
}

// sendKeys sends the keys of the entries, in messages of up to keysPerMessage. Tensors that are
// larger than pieceBytes, if it is not 0, are given in pieces. more says that other messages follow before the last one.
func (c *Catalog) sendKeys(p *publication, entries []*entry, step int64, puller cluster.Task, pieceBytes int64, more bool, stream grpc.ServerStreamingServer[trystpb.OpenResponse]) error {
	keys := keyCursor{
		publication: &p.manifest.Publication, entries: entries, pieceBytes: pieceBytes,
		src: c.o.Device.String(), dst: cluster.Device{Task: puller, Type: "CPU"}.String(), incarnation: c.o.Incarnation,
	}
	for last := false; !last; {
		var n, size int
		n, size, last = keys.measure()
		err := sendBuilt(stream, size, func() *trystpb.OpenResponse {
			resp := &trystpb.OpenResponse{StepId: step, Keys: make([]*trystpb.TensorKey, n), Last: last && !more}
			for i := range resp.Keys {
				resp.Keys[i] = keys.next()
			}
			return resp
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// builtSender is a stream that charges a message of up to size bytes to its client before it is built, so that
// what waits for a client that does not read takes no memory (transport/grpc.LimitCalls).
type builtSender interface {
	SendBuilt(size int, build func() proto.Message) error
}

// sendBuilt sends what build returns, which takes up to size bytes.
func sendBuilt(stream grpc.ServerStreamingServer[trystpb.OpenResponse], size int, build func() *trystpb.OpenResponse) error {
	if s, ok := stream.(*grpc.GenericServerStream[trystpb.OpenRequest, trystpb.OpenResponse]); ok {
		if b, ok := s.ServerStream.(builtSender); ok {
			return b.SendBuilt(size, func() proto.Message { return build() })
		}
	}
	return stream.Send(build())
}

// keyCursor makes the keys of entries, one after the other.
type keyCursor struct {
	publication *Publication
	src, dst    string
	incarnation uint64
	pieceBytes  int64

	entries []*entry // that are left
	off     int64    // in the first one
}

// skip passes over the next key, and returns what it is for. There must be one.
func (k *keyCursor) skip() (e *entry, x piece) {
	e = k.entries[0]
	x = e.pieceAt(k.off, k.pieceBytes)
	if k.off += x.n; x.n == 0 || k.off == e.info.Bytes {
		k.entries, k.off = k.entries[1:], 0
	}
	return e, x
}

// next returns the next key. There must be one.
func (k *keyCursor) next() *trystpb.TensorKey {
	e, x := k.skip()
	edge := edgeName(k.publication.Name, k.publication.Version, e.info.Name, x)
	key := rendezvous.CreateKey(k.src, k.incarnation, k.dst, edge, rendezvous.FrameIter{})
	return &trystpb.TensorKey{Name: e.info.Name, Key: key, Offset: uint64(x.off), Bytes: uint64(x.n)}
}

// measure returns how many keys the next message has, the most bytes that it may take, and whether no key is left
// after it. It makes none of them.
func (k *keyCursor) measure() (n, size int, last bool) {
	ahead := *k
	for size = messageHead; len(ahead.entries) > 0; n++ {
		e := ahead.entries[0]
		more := keyHead + len(k.src) + len(k.dst) + e.edgeLength + len(e.info.Name)
		if n > 0 && size+more > keysPerMessage {
			return n, size, false
		}
		size += more
		ahead.skip()
	}
	return n, size, true
}

// choose returns the entries with the given names, each once, in the order of
// the manifest; all of them when there are no names.
func (p *publication) choose(names []string) ([]*entry, error) {
	if len(names) == 0 {
		return p.entries, nil
	}
	wanted, n := make([]uint64, len(p.entries)/64+1), 0 // a bit for each entry, whatever the names are
	for _, name := range names {
		e := p.byName[name]
		if e == nil {
			return nil, status.Errorf(status.NotFound, "publication %s has no tensor %s; %s",
				quote(p.manifest.Name), quote(name), nearest(name, p.names()))
		}
		if bit := uint64(1) << (e.at % 64); wanted[e.at/64]&bit == 0 {
			wanted[e.at/64] |= bit
			n++
		}
	}
	chosen := make([]*entry, 0, n) // the pull holds it, however large the publication is
	for i, set := range wanted {
		for ; set != 0; set &= set - 1 {
			chosen = append(chosen, p.entries[64*i+bits.TrailingZeros64(set)])
		}
	}
	return chosen, nil
}

// names returns the names of the tensors, in the order of the manifest.
func (p *publication) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, e := range p.entries {
			if !yield(e.info.Name) {
				return
			}
		}
	}
}

// streams counts the open pulls and chooses their steps.
type streams struct {
	closing  chan struct{} // closed by close
	once     sync.Once
	stopping chan struct{} // closed by drain: watchers end

	mu sync.Mutex
	// All below are guarded by mu.
	steps    map[int64]*opened
	draining bool
	idle     chan struct{} // made by drain; closed when the last step ends
}

func (s *streams) init() {
	s.closing = make(chan struct{})
	s.steps = make(map[int64]*opened)
	s.stopping = make(chan struct{})
}

// begin opens a step. Its id has bit 62 set and random other bits. So it differs from the ids of
// TensorFlow's masters, whose highest bit is 56, and from small ids that programs count.
func (s *streams) begin(o *opened) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0, errClosed()
	}
	if len(s.steps) >= maxStreams {
		return 0, status.Passing("%d pulls are under way, as many as this server takes; try again later", len(s.steps))
	}
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // crypto/rand.Read never returns an error
		step := int64(binary.LittleEndian.Uint64(b[:])>>2 | 1<<62)
		if _, taken := s.steps[step]; !taken {
			s.steps[step] = o
			return step, nil
		}
	}
}

// find returns the pull of a step; nil if there is none.
func (s *streams) find(step int64) *opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps[step]
}

func (s *streams) end(step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.steps, step)
	if len(s.steps) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// drain refuses new steps and returns a channel that is closed when no step is
// open.
func (s *streams) drain() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		close(s.stopping)
	}
	s.draining = true
	if len(s.steps) == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

func (s *streams) close() {
	s.once.Do(func() { close(s.closing) })
	<-s.drain()
}

// Pulls returns how many pulls are in progress.
func (c *Catalog) Pulls() int {
	c.streams.mu.Lock()
	defer c.streams.mu.Unlock()
	return len(c.streams.steps)
}

// Drain refuses new pulls and waits for those in progress. If ctx ends first, it returns
// DeadlineExceeded or Cancelled, with the number of pulls that are left.
func (c *Catalog) Drain(ctx context.Context) error {
	drained := c.streams.drain()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-drained: // with both, nothing is left
		return nil
	default:
		return wrap("waiting for pulls", status.Errorf(status.CodeOf(ctx.Err()), "%d have not ended", c.Pulls()))
	}
}
