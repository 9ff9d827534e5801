// Package server assembles a process from the other packages: a Server, which listens and
// dials, or a Client, which only dials. Start and Dial are the lists of their parts, in the order in
// which they start. Each part gets its own settings (settings.go); its room is a package, most below
// server/internal.
//
//	Server ── gRPC ── WorkerService, Peers, Chunks ── worker ── Manager ── steps
//	      │       ├── Publications ── Catalog ──────────────────┘ (Publisher)
//	      │       ├── VerbsService ── rdma ── device (transport verbs only)
//	      │       └── health, reflection
//	      └── HTTP: metrics and probes; profiles (each optional, on its own address)
//	Client ── connections, Manager, rdma; no listener
package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/calls"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
	"github.com/tryst-rdma/tryst/server/internal/incarnations"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/server/internal/sessions"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Server is a process that listens: it is a worker of the cluster and serves publications.
// It is safe for concurrent use.
type Server struct {
	*node
	shutdown     time.Duration // bounds Close
	incarnations *incarnations.Table
	worker       *worker.Worker
	kernels      bool // some go on computing after stopWorker
	collective   *collective.Collectives
	catalog      *checkpoint.Catalog
	grpc         *calls.Server
	socket       net.Listener
	address      net.Addr
	file         listen.File
	http         *httpserver.Server
	overview     *serverOverview
	listeners    *listen.Listeners
	stepIDs      *stepIDs
	stage        atomic.Int32  // a stage
	accepting    bool          // serving is closed at the end
	serving      chan struct{} // closed when the listener has stopped
	failure      error         // of the listener; set before serving is closed
	ended        serverEnd

	closed sync.Once
	result error // of Close

	callbacks callbacks
}

// Start starts a server and returns when it listens. Invalid settings are InvalidArgument, an address in
// use is Unavailable. ctx bounds the start only; Close ends the server.
//
// The parts start in this order and stop in the reverse one.
func Start(ctx context.Context, c Config, o Options) (*Server, error) {
	all, err := c.check(config.ForServer, o.GraphLimits)
	if err != nil {
		return nil, err
	}
	cfg := &all
	memory := cfg.divide(o.processMemory(c.Memory), config.ForServer)
	s := newServer(cfg, o)
	at := listen.Choose(ctx, listenOptions(cfg), listen.Lookup)
	cache := cacheOptions(cfg, memory)
	devices, err := verbsSettings(cfg, reach{local: at.Local}, cache.MaxWaiting, o, s.log)
	if err != nil {
		return nil, err
	}
	err = s.parts.start(ctx,
		part{"listener", func(ctx context.Context) error { return s.listen(ctx, at, o.Listening) }, s.closeSocket},
		part{"memory", func(context.Context) error { return s.divideMemory(memory, cfg.ReleaseAfter, o.LimitHeap) }, s.trim},
		part{"metrics", nil, s.unregister}, // each part adds its own, which are registered with the calls
		part{"HTTP", nil, s.closeHTTP},     // starts with the calls; probes are answered until the end
		part{"publications", func(context.Context) error { return s.openCatalog(catalogOptions(cfg)) }, s.closeCatalog},
		part{"callbacks", nil, s.waitForCallbacks}, // receives start them
		part{"peers", func(context.Context) error { return s.connectPeers(peersSettings(cfg, nil, cache, o)) }, s.disconnectPeers},
		part{"devices", func(ctx context.Context) error {
			return s.openDevices(ctx, devices, func() []string { return at.Dialed(s.address) })
		}, s.closeDevices},
		part{"lost packets", s.watchLosses, s.stopLosses},
		part{"gRPC", func(context.Context) error { return s.makeGRPC(callsSettings(cfg, o)) }, s.stopGRPC},
		part{"steps", func(context.Context) error { return s.startSteps(cfg.Limits.SendBound) }, s.stopSteps},
		part{"channels", nil, s.closeChannels}, // the first are made with the calls
		part{"worker", func(context.Context) error { return s.startWorker(workerOptions(cfg, o), cfg.leader) }, s.stopWorker},
		part{"waiting requests", nil, s.endRequests},
		part{"overview", func(context.Context) error { return s.startOverview(overviewOptionsOf(cfg, o)) }, s.stopOverview},
		part{"calls", func(ctx context.Context) error { return s.serve(ctx, serveOptionsOf(cfg, o)) }, nil},
	)
	if err != nil {
		ctx, cancel := context.WithTimeout(ctx, s.shutdown)
		defer cancel()
		_ = s.parts.stop(ctx) // the first error is the one to report
		return nil, err
	}
	return s, nil
}

// newServer makes a server without parts.
func newServer(cfg *complete, o Options) *Server {
	s := &Server{
		node: newNode(cfg.task, cfg.spec, cfg.CPUDevices, o), shutdown: cfg.ShutdownTimeout, serving: make(chan struct{}),
		ended: serverEnd{done: make(chan struct{})}, stepIDs: newStepIDs(), file: listen.File{Path: cfg.AddressFile},
	}
	s.listeners = listen.NewListeners(s.log)
	return s
}

// listen opens the listener. Peers that connect wait until the server accepts calls.
func (s *Server) listen(ctx context.Context, at *listen.Address, listening func(net.Addr) error) error {
	lis, err := at.Open(ctx, s.log)
	if err != nil {
		return err
	}
	if listening != nil {
		if err := listening(lis.Addr()); err != nil {
			_ = lis.Close() // nobody has been accepted
			return err
		}
	}
	s.socket, s.address = lis, lis.Addr()
	return nil
}

// closeSocket closes the listener of a server that has not accepted calls.
func (s *Server) closeSocket(context.Context) error {
	if !s.accepting {
		_ = s.socket.Close() // nobody has been accepted
	}
	return nil
}

// openCatalog starts the part that has the publications. o has the settings.
func (s *Server) openCatalog(o checkpoint.CatalogOptions) (err error) {
	o.Device, o.Incarnation, o.Allocator = s.Device(), s.incarnation, sendMemory{s.node}
	o.EndStep, o.Over, o.CheckPuller = s.EndStep, s.sentOver, s.checkPuller
	o.EndKeys = func(withdrawn func(rendezvous.Key) bool) { s.cache.EndKeys(withdrawn) } // the part of the cache starts later
	o.Preparing, o.Logger = true, s.log
	o.Connection = func(ctx context.Context) checkpoint.Connection {
		if c, ok := grpctransport.ConnectionOf(ctx); ok {
			return c
		}
		return nil
	}
	returned := metrics.NewReturned()
	o.Returned = returned.Observe
	o.PullEnded = s.metrics.AddPulls(func() *checkpoint.Catalog { return s.catalog }).Ended
	if s.catalog, err = checkpoint.NewCatalog(o); err == nil {
		s.lateCatalog.Store(s.catalog)
		s.metrics.Add(returned)
		s.metrics.Gauge("tryst_watchers", "Watchers of publications.", func() float64 { return float64(s.catalog.Watchers()) })
		s.metrics.Gauge("tryst_old_versions", "Versions of tensors in memory that were replaced or withdrawn, and whose memory is not back.", func() float64 {
			_, old := s.catalog.Held()
			return float64(old)
		})
	}
	return err
}

func (s *Server) closeCatalog(context.Context) error {
	s.catalog.Close()
	return nil
}

func (s *Server) waitForCallbacks(context.Context) error {
	s.callbacks.wait()
	return nil
}

// startSteps starts the part that has the steps, and the incarnations of the peers that they receive from.
func (s *Server) startSteps(sendBound int64) error {
	if err := s.node.startSteps(sendBound); err != nil {
		return err
	}
	s.incarnations = incarnations.New(incarnations.Options{
		Task: s.task, Incarnation: s.incarnation, PeerTimeout: s.peers.PeerTimeout, Steps: s.manager, Ask: s.askIncarnation,
	})
	return nil
}

// stopSteps returns when nothing of a step is under way.
func (s *Server) stopSteps(ctx context.Context) error {
	err := s.node.stopSteps(ctx)
	s.incarnations.Wait()
	s.manager.RemovePublisher(s.catalog)
	return err
}

// startWorker starts the part that runs graphs, with the collectives. o has the settings.
func (s *Server) startWorker(o worker.Options, leader cluster.Task) error {
	s.collective = s.newCollectives(leader)
	s.manager.AddPublisher(s.collective.Publisher())
	s.manager.AddPublisher(s.catalog)
	o.Task, o.Incarnation, o.Session, o.Manager, o.Cache = s.task, s.incarnation, s.place, s.manager, s.cache
	tasks := sessions.New(sessions.Options{
		Task: s.task, Spec: s.members.Spec, Transport: s.remoter(), Process: s.process(), Local: s.self, Dial: s.peers.Dial, Idle: s.peers.ReleaseAfter,
		PeerTimeout: s.peers.PeerTimeout, Allocator: s.allocator, Transfers: s.transfers, Memory: s.budget, Logger: s.log,
	})
	tasks.AddMetrics(s.metrics)
	o.Left = s.left
	o.Allocator, o.Cluster, o.Places, o.NewPeers, o.Collectives = s.allocator, s.members.Spec, tasks.Places, tasks.Peers, s.collective
	o.RecordBytes, o.Print = s.budget.Records(), printer(s.log)
	s.worker = worker.New(o)
	s.self.Worker = s.worker
	s.lateWorker.Store(s.worker)
	return nil
}

// stopWorker ends the steps of graphs and waits for their kernels until ctx ends. A kernel that
// computes does not look at its context and may take hours. What it uses stays valid: it has
// references to its tensors, and what it sends meets a step that has ended.
func (s *Server) stopWorker(ctx context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.worker.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
	}
	grace := time.NewTimer(kernelGrace)
	defer grace.Stop()
	select {
	case <-closed:
		return nil
	case <-grace.C:
		s.kernels = true
		return status.New(status.DeadlineExceeded, "kernels of running steps, or graphs that masters register, go on computing; the server does not wait for them: they end by themselves or with the process")
	}
}

// endRequests ends waiting requests with an error, here and at peers, so that nothing that stops later
// waits for them. Callbacks may wait for a step or for the Delivery of a value, so steps and kept
// responses end here, too.
func (s *Server) endRequests(context.Context) error {
	s.incarnations.End()
	s.collective.Close()
	s.manager.RemovePublisher(s.collective.Publisher())
	s.manager.Shutdown()
	s.cache.Close()
	return nil
}

// serveOptions are the arguments of serve.
type serveOptions struct {
	Secured    bool   // calls are under TLS
	Transport  string // the setting
	UnaryLimit int64
	HTTP       httpserver.Options                   // the settings
	Prepare    func(context.Context, *Server) error // see Options; may be nil
}

// serve accepts calls, and returns when the server is ready for them.
func (s *Server) serve(ctx context.Context, o serveOptions) error {
	if err := s.register(o.UnaryLimit); err != nil {
		return err
	}
	s.file.Clear()
	if !o.Secured && !loopback(s.address) {
		s.log.Warn("listening beyond loopback without TLS; every host that reaches the port can read and write tensors; set tls.cert, tls.key and tls.ca, or let only trusted hosts reach it", "address", s.address.String())
	}
	s.accept()
	if s.rdma != nil {
		s.rdma.Connect() // peers that are up answer now; the others call when they start
	}
	var err error
	if s.http, err = httpserver.Start(ctx, s.httpOptions(o.HTTP)); err != nil {
		return err
	}
	if o.Prepare != nil {
		if err := o.Prepare(ctx, s); err != nil {
			return err
		}
	}
	s.catalog.Ready()
	s.enter(ready)
	if err := s.file.Write(s.address.String()); err != nil {
		return err
	}
	s.log.Info("serving", "address", s.address.String(), "task", s.task.String(), "transport", o.Transport)
	return nil
}

// accept accepts connections from now on.
func (s *Server) accept() {
	s.accepting = true
	lis := s.listener()
	go func() {
		defer close(s.serving)
		err := s.grpc.Serve(lis)
		if err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before Serve
			s.failure = err
			s.ended.end()
		}
	}()
}

func (s *Server) closeHTTP(context.Context) error {
	s.http.Close()
	return nil
}

// httpOptions completes o, which has the settings.
func (s *Server) httpOptions(o httpserver.Options) httpserver.Options {
	o.Listeners, o.Metrics, o.Record = s.listeners, s.gatherer, s.worker.Record
	o.Links, o.Alive, o.Ready = func() any { return s.Links() }, s.alive, s.ready
	o.Status, o.Changed = s.overview.get, s.overview.watch.Changed
	return o
}

func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.address }

// Task returns the task of this process.
func (s *Server) Task() cluster.Task { return s.task }

// Incarnation returns the random number that this process chose at its start.
func (s *Server) Incarnation() uint64 { return s.incarnation }

// Device returns the device of this process.
func (s *Server) Device() cluster.Device { return cluster.DeviceOf(s.task) }

// Catalog has the publications of a server. Their names, files and versions are those of tryst.Server, which
// has the same methods.
type Catalog interface {
	Publish(ctx context.Context, name string, paths ...string) (checkpoint.Publication, error)
	PublishTensors(ctx context.Context, name string, tensors ...*tensor.Tensor) (checkpoint.Publication, error)
	Reload(ctx context.Context) error
	Update(ctx context.Context, name string, tensors []*tensor.Tensor, o checkpoint.UpdateOptions) (*checkpoint.Lent, error)
	Withdraw(ctx context.Context, name string) (*checkpoint.Lent, error)
	List() []checkpoint.Publication
}

// Catalog returns the publications of this server.
func (s *Server) Catalog() Catalog { return s.catalog }

// Kept returns statistics of the response cache: the requests of peers that wait for their value,
// and the responses kept for them.
func (s *Server) Kept() transport.CacheStats { return s.cache.Stats() }

// Transfers returns the most recent receives of this process, the oldest first.
func (s *Server) Transfers() []transport.Transfer { return s.transfers.Transfers() }

// Close stops gracefully. It refuses new pulls and waits for those in progress. Then it
// refuses new sends and receives, ends waiting ones with Aborted, and waits until peers have
// acknowledged the cached responses. When ctx ends or the shutdown timeout passes, it cuts
// off the rest, and the error says so. It returns when all goroutines of the server have
// ended. It leaves a kernel that goes on computing: its goroutine ends with it, and the error says
// so. Close may be called again.
func (s *Server) Close(ctx context.Context) error {
	s.closed.Do(func() {
		defer s.ended.end()
		s.result = s.close(ctx)
	})
	return s.result
}

func (s *Server) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.shutdown)
	defer cancel()
	s.log.Info("stopping", "address", s.address.String())
	s.enter(stopping)
	s.members.Close()
	err := s.catalog.Drain(ctx)
	s.collective.Close()
	s.manager.Shutdown() // otherwise new sends and requests would prolong the wait
	err = errors.Join(err, s.cache.Drain(ctx))
	err = errors.Join(err, s.parts.stop(ctx))
	if s.failure != nil {
		err = errors.Join(err, s.listenerFailed())
	}
	s.file.Remove()
	s.log.Info("stopped", "address", s.address.String())
	return err
}
