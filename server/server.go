// Package server assembles a process from the other packages: a Server, which listens and
// dials, or a Client, which only dials. It defines the order in which their parts start and
// stop.
//
//	Server ── gRPC ── WorkerService, Peers, Chunks ── worker ── Manager ── steps
//	      │       ├── Publications ── Catalog ──────────────────┘ (Source)
//	      │       ├── VerbsService ── rdma ── device (transport verbs only)
//	      │       └── health, reflection
//	      └── HTTP: metrics and probes; profiles (each optional, on its own address)
//	Client ── connections, Manager, rdma; no listener
package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/server/internal/incarnations"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Server is a process that listens: it is a worker of the cluster and serves publications.
// It is safe for concurrent use.
type Server struct {
	*node
	cfg          config.Config
	worker       *worker.Worker
	collective   *collective.Collectives
	catalog      *checkpoint.Catalog
	health       *health.Server
	grpc         *grpc.Server
	greets       grpctransport.Handshakes // of grpc
	requests     grpctransport.RequestStats
	port         *grpctransport.SharedPort // of queue pairs over TCP; nil without them
	socket       net.Listener              // of both
	address      net.Addr
	file         addressFile
	http         []*httpServer
	listeners    *listeners
	incarnations *incarnations.Table
	stepIDs      *stepIDs
	stage        atomic.Int32  // a stage
	accepting    bool          // serving is closed at the end
	serving      chan struct{} // closed when the listener has stopped
	unwatch      func()        // ends the Watch streams of the health service
	failure      error         // of the listener; set before serving is closed
	ended        serverEnd

	closed sync.Once
	result error // of Close

	callbacks callbacks
}

// Start starts a server and returns when it listens. The settings must be valid
// (config.Config.Validate). ctx bounds the start only; Close ends the server.
func Start(ctx context.Context, cfg config.Config, o Options) (*Server, error) {
	cfg, parts := fit(cfg, config.ForServer, o)
	nc := nodeConfig{task: cfg.Task, budget: parts, sendBound: cfg.SendBound, devices: cfg.CPUDevices, cache: transport.CacheOptions{
		MaxWaiting: cfg.MaxWaiting, MaxWaitingBytes: cfg.MaxWaitingBytes,
		KeptPerRequester: cfg.KeptPerPeer, KeptTotal: cmp.Or(cfg.KeptTotal, transport.DefaultKeptPerRequester),
		MaxRemembered: int(parts.Remembered),
	}}
	own := newOwnAddress(ctx, cfg, lookup)
	if cfg.Transport == verbstransport.Name {
		nc.localAddr = own.local
	}
	lis, err := listenAs(ctx, cfg, own, o.Logger)
	if err != nil {
		return nil, err
	}
	if o.Listening != nil {
		if err := o.Listening(lis.Addr()); err != nil {
			_ = lis.Close() // nobody has been accepted
			return nil, err
		}
	}
	nc.addresses = dialedAddresses(cfg, lis.Addr())
	n, err := newNode(ctx, nc, cfg.Client, o)
	if err != nil {
		_ = lis.Close() // nobody has been accepted
		return nil, err
	}
	s := &Server{
		node: n, cfg: cfg, socket: lis, address: lis.Addr(), serving: make(chan struct{}),
		ended: serverEnd{done: make(chan struct{})}, stepIDs: newStepIDs(), listeners: newListeners(n.log),
	}
	if err := s.start(ctx, o); err != nil {
		ctx, cancel := context.WithTimeout(ctx, cfg.ShutdownTimeout)
		defer cancel()
		_ = s.stop(ctx) // the first error is the one to report
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options) error {
	s.incarnations = incarnations.New(incarnations.Options{
		Task: s.task, Incarnation: s.incarnation, PeerTimeout: s.cfg.PeerTimeout, Steps: s.manager, Ask: s.askIncarnation,
	})
	s.collective = s.newCollectives()
	s.manager.AddSource(s.collective.Source())
	s.worker = worker.New(worker.Options{
		Task: s.task, Incarnation: s.incarnation, Session: s.place, Manager: s.manager, Cache: s.cache,
		CacheRPCResponse: s.cfg.CacheRPCResponse, MaxWaiting: s.cfg.MaxWaiting, MaxWaitingBytes: s.cfg.MaxWaitingBytes,
		Kernels: o.Kernels, Allocator: s.allocator, Cluster: s.spec, Places: s.places, NewPeers: s.newPeers, Collectives: s.collective, Limits: worker.Limits{
			Sessions: s.cfg.MaxSessions, Graphs: s.cfg.MaxGraphs, GraphBytes: s.cfg.MaxGraphBytes, SessionBytes: s.cfg.MaxSessionBytes, Steps: s.cfg.MaxRunningSteps,
		},
	})
	s.self.Worker = s.worker
	s.lateWorker.Store(s.worker)
	var err error
	s.catalog, err = checkpoint.NewCatalog(checkpoint.CatalogOptions{
		Device: s.Device(), Incarnation: s.incarnation, Allocator: s.sendAllocator(),
		Digest: s.cfg.Digest, MMap: s.cfg.PublishMMap, CacheBytes: s.cfg.FileCache, CacheTime: 2 * s.cfg.ReleaseAfter,
		EndStep: s.worker.EndStep, Over: s.sentOver, CheckPuller: s.checkPuller, Preparing: true, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.manager.AddSource(s.catalog)
	if err := s.makeGRPC(o); err != nil {
		return err
	}
	s.file.path = s.cfg.AddressFile
	s.file.clear()
	if s.cfg.TLS.Cert == "" && !loopback(s.address) {
		s.log.Warn("listening beyond loopback without TLS; every host that reaches the port can read and write tensors; set tls.cert, tls.key and tls.ca, or let only trusted hosts reach it", "address", s.address.String())
	}
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
	LogVariables(s.log, s.cfg)
	if s.rdma != nil {
		s.rdma.connect() // peers that are up answer now; the others call when they start
	}
	if err := s.startHTTP(ctx); err != nil {
		return err
	}
	if o.Prepare != nil {
		if err := o.Prepare(ctx, s); err != nil {
			return err
		}
	}
	s.catalog.Ready()
	s.enter(ready)
	if err := s.file.write(s.address.String()); err != nil {
		return err
	}
	s.log.Info("serving", "address", s.address.String(), "task", s.task.String(), "transport", s.remoter().Name())
	return nil
}

func (s *Server) makeGRPC(o Options) error {
	if a := s.acceptor(); a != nil {
		s.port = grpctransport.NewSharedPort(a)
	}
	creds, err := certificates.ServerCredentials(s.cfg.TLS, s.port != nil)
	if err != nil {
		return err
	}
	maxGraph := int64(0)
	if o.Kernels != nil {
		maxGraph = s.cfg.MaxGraphBytes
	}
	opts := append(grpctransport.ServerOptions(grpctransport.ServerTuning{
		Credentials: creds, KeepaliveTime: s.cfg.Keepalive.Time, KeepaliveTimeout: s.cfg.Keepalive.Timeout,
		MaxWaiting: s.cfg.MaxWaiting, MaxGraph: maxGraph, PerPeer: s.cfg.KeptPerPeer, Total: cmp.Or(s.cfg.KeptTotal, transport.DefaultKeptPerRequester), Logger: s.log, Handshakes: &s.greets, Shared: s.port,
		OutOfDates:   certificates.OutOfDates(s.cfg.TLS),
		RequestBytes: s.budget.Requests, Requests: &s.requests, Copies: s.budget.Copies, Connections: s.budget.connections(), Refused: s.listeners.turned.Inc,
	}),
		grpc.ChainUnaryInterceptor(s.metrics.unary),
		grpc.ChainStreamInterceptor(s.metrics.stream),
	)
	if o.ServerStats != nil {
		opts = append(opts, grpc.StatsHandler(o.ServerStats))
	}
	s.grpc = grpc.NewServer(opts...)
	grpctransport.Register(s.grpc, grpctransport.ServiceOptions{
		Self: s.process(), Worker: countingWorker{s.worker, s.metrics, s.cfg.Cluster}, Cache: s.cache, UnaryLimit: s.cfg.UnaryLimit,
		Host: hostIn(s.cfg.Cluster), LeftGeneration: s.leftGeneration(),
	})
	if s.rdma != nil {
		s.rdma.register(s.grpc)
	}
	rarely := grpctransport.LimitCalls(s.grpc)
	s.catalog.Register(rarely)
	s.health = health.NewServer()
	s.enter(publishing) // until Start completes
	watched, unwatch := context.WithCancel(context.Background())
	s.unwatch = unwatch
	healthpb.RegisterHealthServer(rarely, healthServer{s.health, watched})
	registerReflection(rarely, s.grpc)

	s.metrics.active = s.heap.used
	s.metrics.all = append(s.metrics.all, s.listeners.failed, s.listeners.refused, s.listeners.turned)
	s.addKept()
	s.metrics.gauge("tryst_requesters", "Processes that send requests here, or did recently.", func() float64 { return float64(s.cache.Stats().Requesters) })
	s.metrics.gauge("tryst_connected_requesters", "Requesters that have a connection.", func() float64 { return float64(s.cache.Stats().Connected) })
	s.metrics.gauge("tryst_waiting_receives", "Requests of Tryst peers that wait for their value.", func() float64 { return float64(s.cache.Stats().Waiting) })
	s.metrics.gauge("tryst_cached_responses", "Responses in the response cache: those that the requester has not acknowledged yet.", func() float64 { return float64(s.cache.Stats().Kept) })
	s.metrics.gauge("tryst_cached_response_bytes", "Content of the responses in the response cache, in bytes.", func() float64 { return float64(s.cache.Stats().Bytes) })
	s.metrics.gauge("tryst_unreceived_bytes", "What steps that use SendWait have sent and their receivers do not have yet, in bytes.", func() float64 { n, _ := s.manager.Unreceived(); return float64(n) })
	s.metrics.gauge("tryst_waiting_sends", "Calls of SendWait that wait for space within send-bound.", func() float64 { _, n := s.manager.Unreceived(); return float64(n) })
	s.metrics.addGraphs(s.worker)
	s.metrics.addRequests(&s.requests)
	s.metrics.gauge("tryst_publications", "Publications that the server offers.", func() float64 { return float64(len(s.catalog.List())) })
	s.metrics.gauge("tryst_pulls", "Pulls in progress.", func() float64 { return float64(s.catalog.Pulls()) })
	return s.metrics.register(s.registry)
}

func (s *Server) startHTTP(ctx context.Context) error {
	const metricsKey, pprofKey = "metrics-address", "pprof-address"
	refused := s.listeners.refused.WithLabelValues(pprofKey, refusedByCalls)
	for _, e := range []endpoint{
		{metricsKey, s.cfg.MetricsAddress, s.operatorHandler()},
		{pprofKey, s.cfg.PprofAddress, pprofHandler(refused.Inc)},
	} {
		if e.address == "" {
			continue
		}
		h, err := e.start(ctx, s.listeners)
		if err != nil {
			return err
		}
		s.http = append(s.http, h)
	}
	return nil
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

// Catalog returns the publications of this server.
func (s *Server) Catalog() *checkpoint.Catalog { return s.catalog }

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
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownTimeout)
	defer cancel()
	s.log.Info("stopping", "address", s.address.String())
	s.enter(stopping)
	err := s.catalog.Drain(ctx)
	s.collective.Close()
	s.manager.Shutdown() // otherwise new sends and requests would prolong the wait
	err = errors.Join(err, s.cache.Drain(ctx))
	err = errors.Join(err, s.stop(ctx))
	if s.failure != nil {
		err = errors.Join(err, s.listenerFailed())
	}
	s.file.remove()
	s.log.Info("stopped", "address", s.address.String())
	return err
}

// stop undoes start, as far as start came. First it ends waiting requests with an error, then
// the calls that carry those errors to peers, then what the calls used. Callbacks may wait for a
// step or for the Delivery of a value, so steps and kept responses end before anything waits for
// callbacks.
func (s *Server) stop(ctx context.Context) error {
	s.incarnations.End()
	if s.collective != nil {
		s.collective.Close()
		s.manager.RemoveSource(s.collective.Source())
	}
	s.manager.Shutdown()
	s.cache.Close()
	kernels := s.stopWorker(ctx) // the receives of its steps have ended
	err := kernels
	if s.rdma != nil {
		err = errors.Join(err, s.rdma.stop(ctx))
	}
	s.manager.Close()
	s.stopGRPC(ctx, kernels == nil)
	err = errors.Join(err, s.node.close(ctx))
	s.incarnations.Wait()
	s.callbacks.wait()
	if s.catalog != nil {
		s.manager.RemoveSource(s.catalog)
		s.catalog.Close()
	}
	for _, h := range s.http {
		h.close()
	}
	s.metrics.unregister(s.registry)
	s.trim()
	return err
}

// stopWorker ends the steps of graphs and waits for their kernels until ctx ends. A kernel that
// computes does not look at its context and may take hours. What it uses stays valid: it has
// references to its tensors, and what it sends meets a step that has ended.
func (s *Server) stopWorker(ctx context.Context) error {
	if s.worker == nil {
		return nil
	}
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
		return status.New(status.DeadlineExceeded, "kernels of running steps, or graphs that masters register, go on computing; the server does not wait for them: they end by themselves or with the process")
	}
}

// stopGRPC waits for the calls in progress, until ctx ends. handlers says whether to wait for the
// handlers of calls that were cut off.
func (s *Server) stopGRPC(ctx context.Context, handlers bool) {
	if !s.accepting {
		_ = s.socket.Close() // nobody has been accepted
	}
	if s.grpc == nil {
		return
	}
	s.unwatch()
	s.greets.End() // gRPC would wait for clients that send nothing
	s.port.End()   // channels have ended
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.grpc.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.grpc.Stop()
		if handlers {
			<-graceful
		}
	}
	if s.accepting {
		<-s.serving
	}
}
