//go:build linux

package storm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// settings are what a process is started with.
type settings struct {
	Seed       uint64
	Task, Life int
	Dir        string         // of the logs
	Provider   string         // the providers of the process; "" for gRPC alone
	Fallback   string         // grpc or none
	Cluster    map[int]string // addresses of the proxies, by task
	Model      string         // the file that each task publishes
	Storm      bool           // there are faults
	Plant      plant          // a mistake to make, which the checker must find
	Churn      bool           // tasks leave clusters and come back
	View       map[int]string // of a task: the cluster that it begins with
}

// command is what the test tells a process, one JSON value a line.
type command struct {
	Op      op
	Step    int64
	Again   bool           // of opStep: an earlier life of the task was in the step
	Peer    int            // of opGone
	Percent int            // of opLose
	For     bool           // of opSever: as long as the process lives; of opPoor: no longer
	Cluster map[int]string `json:",omitempty"` // of opCluster
	Newest  []newest       `json:",omitempty"` // of opSettle
}

type op string

const (
	opStep  op = "step"  // take part in a step; answered when this task's part is done
	opGone  op = "gone"  // a peer's life has ended, so its values in a step never come
	opEnd   op = "end"   // end a step
	opLose  op = "lose"  // drop a share of the UDP packets that arrive
	opSever op = "sever" // break the connections of shared memory
	opPoor  op = "poor"  // have no descriptor free; with For, have some again
	opIdle  op = "idle"  // say when nothing is held for peers any more
	opClose op = "close" // stop; answered at the end

	opCluster op = "cluster" // another cluster is the present one
	opStill   op = "still"   // make a last version of each name; answered with them
	opSettle  op = "settle"  // of the watchers: say when you have the newest versions, or after a while
	opUp      op = "up"      // the answer that the process is up
)

// answer is what a process tells the test.
type answer struct {
	Op      op
	Step    int64
	Address string
	Error   string
	Newest  []newest `json:",omitempty"`
}

// The settings of all processes. They make what is rare by default happen often: short timeouts,
// small messages, little registered memory.
const (
	peerTimeout   = 5 * time.Second
	shutdownTime  = 3 * time.Second // with faults: a peer that is cut off acknowledges nothing
	closeTime     = 20 * time.Second
	arena         = 4 << 20
	arenaLimit    = 24 << 20
	queueDepth    = 32
	sendBound     = 1 << 20
	keptPerPeer   = 1 << 20 // of a process with a small cache
	keptTotal     = 2 << 20
	ackTimeout    = 33 * time.Millisecond
	keepaliveTime = 10 * time.Second // gRPC has no shorter one
)

// smallCache reports whether a process keeps few responses. Those of a receiver that is out of reach
// may then be dropped, which that one learns by DataLoss.
func smallCache(seed uint64, task, life int) bool {
	return mix(seed, uint64(task), uint64(life), 1)%4 == 0 //nolint:gosec // only hashed
}

const job = "worker"

func taskName(i int) string { return cluster.Task{Job: job, Index: i}.String() }

// Exit statuses of a process. It ends with exitAlone when the test has gone, and with exitNoFault
// when a fault cannot be made here: a storm without it would prove less than it says.
const (
	exitStart   = 3
	exitLog     = 4
	exitAlone   = 5
	exitNoFault = 6
)

// runNode runs a process until its test tells it to close or goes away.
func runNode(text string) {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitStart)
	}
	limitProcessors()
	log, err := newLog(s.Dir, s.Task, s.Life)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitStart)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{settings: s, log: log, out: json.NewEncoder(os.Stdout), ctx: ctx, cancel: cancel, steps: make(map[int64]*part), closed: make(chan struct{}), quiet: make(chan struct{}), clusters: make(chan command, maxClusters)}
	switch s.Task {
	case puller:
		n.runPuller()
	case watcher:
		n.runWatcher()
	default:
		n.runTask()
	}
}

// node is a process: a task, or the puller.
type node struct {
	settings
	log     *logFile
	server  *server.Server
	pool    *tensor.Pool
	ctx     context.Context // ends when the process stops
	cancel  func()
	work    sync.WaitGroup // goroutines of steps
	chances atomic.Int64   // to make the planted mistake
	recvs   atomic.Int64
	rich    func()            // gives back the descriptors that poor has taken; nil if it has not
	pulls   map[string][]byte // of the puller: the contents of the file, by name

	updaters []*updater
	updates  sync.WaitGroup     // goroutines of updaters
	still    context.CancelFunc // ends them
	closed   chan struct{}      // closed when the server has closed
	quiet    chan struct{}      // closed when watchers are to be quick
	clusters chan command       // the clusters to come

	mu    sync.Mutex // guards the fields below
	out   *json.Encoder
	steps map[int64]*part

	isQuiet bool // quiet is closed
}

func (n *node) answer(a answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.out.Encode(a) // it fails only if the test has gone
}

func (n *node) config() server.Config {
	c := server.Config{}
	c.Listen, c.ShutdownTimeout = "127.0.0.1:0", closeTime
	if n.Storm {
		c.ShutdownTimeout = shutdownTime
	}
	c.Transport, c.Fallback = "grpc", n.Fallback
	if n.Provider != "" {
		c.Transport, c.Provider = "verbs", n.Provider
	}
	if strings.Contains(n.Provider, server.ProviderRoCE) {
		c.RDMA.Device = "lo"
	}
	c.RDMA.Arena, c.RDMA.ArenaLimit, c.RDMA.QueueDepth, c.RDMA.Timeout = arena, arenaLimit, queueDepth, ackTimeout
	c.RDMA.QueuePairs = 1 + n.Life%2
	c.Limits.SendBound = sendBound
	if smallCache(n.Seed, n.Task, n.Life) {
		c.Limits.KeptPerPeer, c.Limits.KeptTotal = keptPerPeer, keptTotal
	}
	c.GRPC.UnaryLimit, c.RDMA.EagerLimit, c.PeerTimeout = unaryLimit, eagerLimit, peerTimeout
	c.Publications.ReplacedPulls = replacedPulls
	c.GRPC.KeepaliveTime, c.GRPC.KeepaliveTimeout = keepaliveTime, time.Second
	return c
}

func (n *node) options() server.Options {
	if n.pool == nil {
		n.pool = tensor.NewPool(tensor.PoolOptions{})
	}
	return server.Options{Allocator: n.pool, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))}
}

func (n *node) start() error {
	c, o := n.config(), n.options()
	c.Task = cluster.Task{Job: job, Index: n.Task}.String()
	spec, err := cluster.NewSpec(map[string]map[int]string{job: n.View})
	if err != nil {
		return err
	}
	c.Cluster = spec.Lists()
	o.Prepare = func(ctx context.Context, s *server.Server) error {
		_, err := s.Catalog().Publish(ctx, publication, n.Model)
		return err
	}
	n.server, err = server.Start(n.ctx, c, o)
	return err
}

// runTask serves and obeys until opClose.
func (n *node) runTask() {
	if err := n.start(); err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(exitStart)
	}
	n.begins()
	sockets := udpSockets()
	n.answer(answer{Op: opUp, Address: n.server.Addr().String()})
	in := json.NewDecoder(os.Stdin)
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			os.Exit(exitAlone)
		}
		switch c.Op {
		case opStep:
			n.begin(c)
		case opGone:
			n.gone(c)
		case opEnd:
			n.end(c.Step)
		case opLose:
			if err := dropPackets(sockets, c.Percent); err != nil {
				fmt.Fprintln(os.Stderr, "drop packets:", err)
				os.Exit(exitNoFault)
			}
		case opSever:
			severShared(c.For)
		case opPoor:
			n.poor(!c.For)
		case opIdle:
			n.work.Go(n.idle)
		case opStill:
			n.work.Go(n.endUpdates)
		case opCluster:
			n.clusters <- c
		case opClose:
			n.stop(in)
			return
		}
	}
}

// poor takes the free descriptors of this process away, or gives them back.
func (n *node) poor(yes bool) {
	if n.rich != nil {
		n.rich()
		n.rich = nil
	}
	if !yes {
		return
	}
	var err error
	if n.rich, err = runOut(); err != nil {
		fmt.Fprintln(os.Stderr, "descriptors:", err)
		os.Exit(exitNoFault)
	}
}

// idleTime bounds the time until nothing is held for peers: the quarantine of memory takes the
// longest.
const idleTime = 20 * time.Second

// idle waits until this process holds nothing for its peers, and answers with what it holds else.
func (n *node) idle() {
	n.endVersions()
	late := time.After(idleTime)
	for a := (answer{Op: opIdle}); ; {
		held := n.held()
		if held == "" {
			n.answer(a)
			return
		}
		select {
		case <-late:
			a.Error = held
			n.answer(a)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// held describes what this process holds for its peers.
func (n *node) held() string {
	k := n.server.Kept()
	text := ""
	if k.Kept != 0 || k.Waiting != 0 {
		text = fmt.Sprintf("%d responses are kept and %d requests wait", k.Kept, k.Waiting)
	}
	if v, ok := n.server.Verbs(); ok {
		if m := v.Memory(); m.Receiving.InUse != 0 || m.Quarantined != 0 {
			text += fmt.Sprintf("; %d bytes of received tensors are in use, %d in quarantine", m.Receiving.InUse, m.Quarantined)
		}
	}
	if k := n.heldVersions(); k != 0 {
		text += fmt.Sprintf("; the memory of %d versions that were withdrawn is not back", k)
	}
	return text
}

// stop stops the server as a user's SIGTERM would. A part of a step that is not done is given
// up; from here on the checker expects nothing of it. The answer has what was left behind.
func (n *node) stop(in *json.Decoder) {
	n.log.write(record{Kind: kindLeave})
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	alone := context.AfterFunc(ctx, func() { os.Exit(exitAlone) }) // also a Close that hangs must end
	err := n.server.Close(ctx)
	close(n.closed)
	n.cancel()
	n.updates.Wait()
	n.work.Wait()
	if left := n.inUse(); left != 0 {
		err = errors.Join(err, fmt.Errorf("%s%d bytes of tensors were never released", leftBehind, left))
	}
	if leak := goleak.Find(); leak != nil {
		err = errors.Join(err, fmt.Errorf("%s%w", leftBehind, leak))
	}
	alone()
	a := answer{Op: opClose}
	if err != nil {
		a.Error = err.Error()
	}
	n.answer(a)
	for ignored := (command{}); in.Decode(&ignored) == nil; { // until the test has read the answer
		continue
	}
}

// inUse returns how many bytes of tensors are in use. gRPC forgets messages of connections that
// break; then the garbage collector gives the memory back.
func (n *node) inUse() int64 {
	limit := upTime / 4
	if n.Plant == plantLeak {
		limit = plantedDrain // it never comes back
	}
	for late := time.After(limit); ; {
		left := n.pool.Stats().InUse
		if left == 0 {
			return 0
		}
		runtime.GC()
		select {
		case <-late:
			return left
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// leftBehind begins the errors of a stop that are never allowed. That calls were cut off is, while
// there are faults.
const leftBehind = "left behind: "
