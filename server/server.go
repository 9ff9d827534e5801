// Package server puts a process together: what listens, what dials, and the
// order in which they start and stop.
//
//	Server ── gRPC ── WorkerService, Peers, Chunks ── worker ── Manager ── steps
//	      │       └── Publications ── Catalog ──────────────────┘ (Source)
//	      │       ├── VerbsService ── rdma ── device (transport verbs alone)
//	      │       └── health, reflection
//	      └── HTTP: metrics, profiles (each on an address of its own, if any)
//	Client ── what dials, without the rest
package server

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/worker"
)

// Server is a process that listens: a worker of the cluster, and a place for
// publications. It is safe for concurrent use.
type Server struct {
	*node
	cfg     config.Config
	worker  *worker.Worker
	catalog *checkpoint.Catalog
	health  *health.Server
	grpc    *grpc.Server
	address net.Addr
	file    addressFile
	http    []*httpServer
	devices incarnations
	serving chan struct{} // closed when the listener has ended
	unwatch func()        // has those who watch the health go
	failure error         // why it ended; set before serving is closed

	mu     sync.Mutex // guards what follows
	ending bool
	work   sync.WaitGroup // look-ups of peers' devices; Add needs mu and not ending
	closed sync.Once
	result error // of Close
}

// Start makes a server of settings that are valid (config.Config.Validate),
// listens, and returns while it serves. ctx bounds the start, not the server:
// that ends with Close.
func Start(ctx context.Context, cfg config.Config, o Options) (*Server, error) {
	nc := nodeConfig{task: cfg.Task, kept: transport.KeptOptions{
		MaxWaiting: cfg.MaxWaiting, MaxWaitingBytes: cfg.MaxWaitingBytes,
		KeptPerRequester: cfg.KeptPerPeer, KeptTotal: keptTotal(cfg.KeptTotal),
	}}
	if cfg.Transport == verbstransport.Name {
		nc.localAddr = serverLocalAddr(ctx, cfg)
	}
	n, err := newNode(ctx, nc, cfg.Client, o)
	if err != nil {
		return nil, err
	}
	s := &Server{node: n, cfg: cfg, serving: make(chan struct{})}
	if err := s.start(ctx, o.Prepare); err != nil {
		ctx, cancel := context.WithTimeout(ctx, cfg.ShutdownTimeout)
		defer cancel()
		_ = s.stop(ctx) // that it did not start is what counts
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, prepare func(context.Context, *Server) error) error {
	s.worker = worker.New(worker.Options{
		Task: s.task, Incarnation: s.incarnation, Manager: s.manager, Cache: s.kept,
		CacheRPCResponse: s.cfg.CacheRPCResponse, MaxWaiting: s.cfg.MaxWaiting, MaxWaitingBytes: s.cfg.MaxWaitingBytes,
	})
	s.self.Worker = s.worker
	var err error
	s.catalog, err = checkpoint.NewCatalog(checkpoint.CatalogOptions{
		Device: s.Device(), Incarnation: s.incarnation, Allocator: s.sendAllocator(),
		Digest: s.cfg.Digest, MMap: s.cfg.PublishMMap, CacheBytes: s.cfg.FileCache,
		EndStep: s.worker.EndStep, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.manager.AddSource(s.catalog)
	if err := s.makeGRPC(); err != nil {
		return err
	}
	lis, err := listen(ctx, "listen", s.cfg.Listen)
	if err != nil {
		return err
	}
	s.address = lis.Addr()
	s.file.path = s.cfg.AddressFile
	s.file.clear()
	if s.cfg.TLS.Cert == "" && !loopback(s.address) {
		s.log.Warn("listening beyond loopback without TLS: whoever reaches the port can read and write tensors", "address", s.address.String())
	}
	go func() {
		defer close(s.serving)
		if err := s.grpc.Serve(lis); !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			s.failure = err
		}
	}()
	LogInherited(s.log, s.cfg)
	if s.rdma != nil {
		s.rdma.connect() // peers that are up answer now, the others call when they come
	}
	if err := s.startHTTP(ctx); err != nil {
		return err
	}
	if prepare != nil {
		if err := prepare(ctx, s); err != nil {
			return err
		}
	}
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	if err := s.file.write(s.address.String()); err != nil {
		return err
	}
	s.log.Info("serving", "address", s.address.String(), "task", s.task.String(), "transport", s.remoter().Name())
	return nil
}

// keptTotal is the limit of kept answers: the one that was set, or a quarter of
// the memory that this process may use.
func keptTotal(set int64) int64 {
	if set != 0 {
		return set
	}
	if m := memory(); m != 0 {
		return m / 4
	}
	return transport.DefaultKeptPerRequester // memory is not known here: what one peer may have
}

func (s *Server) makeGRPC() error {
	creds, err := serverCredentials(s.cfg.TLS)
	if err != nil {
		return err
	}
	opts := append(grpctransport.ServerOptions(grpctransport.ServerTuning{
		Credentials: creds, KeepaliveTime: s.cfg.Keepalive.Time, KeepaliveTimeout: s.cfg.Keepalive.Timeout,
		MaxWaiting: s.cfg.MaxWaiting, PerPeer: s.cfg.KeptPerPeer, Total: keptTotal(s.cfg.KeptTotal), Logger: s.log,
	}),
		grpc.ChainUnaryInterceptor(s.metrics.unary),
		grpc.ChainStreamInterceptor(s.metrics.stream),
	)
	if h := s.trace.serverHandler(); h != nil {
		opts = append(opts, grpc.StatsHandler(h))
	}
	s.grpc = grpc.NewServer(opts...)
	grpctransport.Register(s.grpc, grpctransport.ServiceOptions{
		Self: s.process(), Worker: countingWorker{s.worker, s.metrics, s.cfg.Cluster}, Kept: s.kept, UnaryLimit: s.cfg.UnaryLimit,
		Host: hostIn(s.cfg.Cluster), LeftGeneration: s.leftGeneration(),
	})
	if s.rdma != nil {
		s.rdma.register(s.grpc)
	}
	rarely := grpctransport.LimitCalls(s.grpc)
	s.catalog.Register(rarely)
	s.health = health.NewServer()
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING) // until it is ready
	watched, unwatch := context.WithCancel(context.Background())
	s.unwatch = unwatch
	healthpb.RegisterHealthServer(rarely, healthServer{s.health, watched})
	registerReflection(rarely, s.grpc)

	s.metrics.gauge("tryst_requesters", "Processes that send requests here, or did lately.", func() float64 { return float64(s.kept.Stats().Requesters) })
	s.metrics.gauge("tryst_connected_requesters", "Processes that send requests here and have a connection.", func() float64 { return float64(s.kept.Stats().Connected) })
	s.metrics.gauge("tryst_waiting_receives", "Receives of Tryst peers that wait for their value.", func() float64 { return float64(s.kept.Stats().Waiting) })
	s.metrics.gauge("tryst_kept_responses", "Responses kept until their requester has acknowledged them.", func() float64 { return float64(s.kept.Stats().Kept) })
	s.metrics.gauge("tryst_kept_bytes", "Content of the responses kept, in bytes.", func() float64 { return float64(s.kept.Stats().Bytes) })
	s.metrics.gauge("tryst_publications", "Publications.", func() float64 { return float64(len(s.catalog.List())) })
	s.metrics.gauge("tryst_pulls", "Pulls under way.", func() float64 { return float64(s.catalog.Pulls()) })
	return s.metrics.register(s.registry)
}

func (s *Server) startHTTP(ctx context.Context) error {
	if a := s.cfg.MetricsAddress; a != "" {
		h, err := startHTTP(ctx, "metrics-address", a, metricsHandler(s.registry), s.log)
		if err != nil {
			return err
		}
		s.http = append(s.http, h)
	}
	if a := s.cfg.PprofAddress; a != "" {
		h, err := startHTTP(ctx, "pprof-address", a, pprofHandler(), s.log)
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

// Task returns the name of this process.
func (s *Server) Task() cluster.Task { return s.task }

// Incarnation returns the random number that this process chose at its start.
func (s *Server) Incarnation() uint64 { return s.incarnation }

// Device returns the device of this process.
func (s *Server) Device() cluster.Device { return worker.Device(s.task) }

// Catalog returns the publications of this server.
func (s *Server) Catalog() *checkpoint.Catalog { return s.catalog }

// Kept counts the receives of peers that wait here, and the answers that are
// kept for them.
func (s *Server) Kept() transport.CacheStats { return s.kept.Stats() }

// Transfers returns the last receives of this process, the oldest first.
func (s *Server) Transfers() []transport.Transfer { return s.transfers.Transfers() }

// Done is closed when the server listens no more: after Close, or when the
// listener failed.
func (s *Server) Done() <-chan struct{} { return s.serving }

// Close stops gracefully: no new pulls, and those under way are waited for; then
// nothing new is sent or received, and what waits for a value ends with Aborted; the
// answers that peers have not taken yet are waited for. When ctx ends, or the shutdown
// timeout has passed, what is still under way is cut off, which the error tells. It
// returns when nothing of the server is left, and it may be called again.
func (s *Server) Close(ctx context.Context) error {
	s.closed.Do(func() { s.result = s.close(ctx) })
	return s.result
}

func (s *Server) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownTimeout)
	defer cancel()
	s.log.Info("stopping", "address", s.address.String())
	s.health.Shutdown()
	err := s.catalog.Drain(ctx)
	s.manager.Shutdown() // else what is sent and asked for meanwhile would have to be waited for, too
	err = errors.Join(err, s.kept.Drain(ctx))
	err = errors.Join(err, s.stop(ctx))
	if s.failure != nil {
		err = errors.Join(err, status.Errorf(status.Internal, "the listener on %s failed: %w", s.address, s.failure))
	}
	s.file.remove() // nobody listens there any more
	s.log.Info("stopped", "address", s.address.String())
	return err
}

// stop ends everything that start began, as far as it came. First what waits is
// answered, then the calls that carry the answers end, then what they used.
func (s *Server) stop(ctx context.Context) error {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	var err error
	if s.rdma != nil {
		err = s.rdma.stop(ctx)
	}
	s.manager.Close()
	s.kept.Close()
	s.stopGRPC(ctx)
	err = errors.Join(err, s.node.close(ctx))
	s.work.Wait()
	if s.catalog != nil {
		s.manager.RemoveSource(s.catalog)
		s.catalog.Close()
	}
	for _, h := range s.http {
		h.close()
	}
	s.metrics.unregister(s.registry)
	return err
}

// stopGRPC lets the calls under way end, until ctx ends.
func (s *Server) stopGRPC(ctx context.Context) {
	if s.grpc == nil {
		return
	}
	s.unwatch()
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.grpc.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.grpc.Stop()
		<-graceful
	}
	if s.address != nil {
		<-s.serving
	}
}
