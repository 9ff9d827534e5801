package library

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/library/internal/capi"
)

// Options are what Open needs.
type Options struct {
	// Directory has TensorFlow's two libraries, such as …/site-packages/tensorflow. Empty means the
	// one that Find returns.
	Directory string
	// Go has the kernels of the nodes that stay in Go: communication, and nodes too small for a
	// function. The definitions of all ops are TensorFlow's.
	Go graph.KernelSet
	// Blocking is how many functions that may wait, such as a dequeue, run at a time in one State; 0
	// means DefaultBlocking. Each of them has a thread while it waits. All States together have 4,096.
	Blocking int
	// Process, if not empty, is the command of a child process that opens the library in place of this
	// one: a program that calls ServeProcess with the arguments that come after these. TensorFlow ends
	// its process where an internal check fails; then only the child ends.
	Process []string
	// Files is what graphs may do with files. The zero value refuses graphs that read or write any.
	Files FileAccess
	// Directories are those of FilesBelow, which needs Process, Linux 5.19 or newer with Landlock, and
	// one directory at least.
	Directories []string
}

// Set is the kernel set of an open library. It implements graph.KernelSet.
type Set struct {
	dir      string
	version  string
	own      graph.KernelSet
	blocking int
	// compute has a token for each function that runs and only computes, in any state.
	compute chan struct{}
	// waiting has one for each that may wait for others.
	waiting chan struct{}
	ops     map[string]*tfpb.OpDef
	// reach says what each op reaches; an op that is not in it is refused.
	reach map[string]reach
	files FileAccess

	// salts is the number of graphs so far that have random nodes in functions.
	salts atomic.Uint64

	mu      sync.Mutex // guards the fields below
	engine  engine
	start   func() (engine, error)
	kernels map[string][]*kernelDef // by op, once asked for
}

// Open opens a TensorFlow library. It stays open until the process ends. FailedPrecondition says what
// is missing or does not fit.
func Open(o Options) (*Set, error) {
	if o.Go == nil {
		return nil, status.New(status.InvalidArgument, "library: Options.Go is not set; the nodes that communicate need its kernels")
	}
	dir := o.Directory
	if dir == "" {
		var err error
		if dir, err = Find(); err != nil {
			return nil, err
		}
	}
	if err := check(dir); err != nil {
		return nil, err
	}
	reaches, err := parseReach(opsText)
	if err != nil {
		return nil, err
	}
	below, err := o.directories()
	if err != nil {
		return nil, err
	}
	start := func() (engine, error) {
		l, err := capi.Open(dir)
		return local{l}, err
	}
	if len(o.Process) > 0 {
		start = func() (engine, error) { return startProcess(o.Process, dir, below) }
	}
	e, err := start()
	if err != nil {
		return nil, err
	}
	s := &Set{start: start, compute: make(chan struct{}, computing()), waiting: make(chan struct{}, maxBlocking), engine: e, dir: dir, version: e.version(), own: o.Go, blocking: o.Blocking,
		kernels: map[string][]*kernelDef{}, reach: reaches, files: o.Files}
	if s.blocking <= 0 {
		s.blocking = DefaultBlocking
	}
	list, err := e.opList()
	if err == nil {
		s.ops, err = parseOpList(list)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return s, nil
}

// computing returns how many functions that only compute run at once. A function may have a loop, and compute for
// as long as a client likes. So on one processor there are two: a single long one keeps no other session out.
func computing() int { return max(2, runtime.GOMAXPROCS(0)) }

// Close ends the kernel process. Without one it does nothing: the library stays open.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine.close()
}

// live returns the engine of new contexts: a new one when the process of the last one has ended.
func (s *Set) live() (engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.liveLocked()
}

func (s *Set) liveLocked() (engine, error) {
	if s.engine.ended() == nil {
		return s.engine, nil
	}
	e, err := s.start()
	if err != nil {
		return nil, err
	}
	s.engine = e
	return e, nil
}

// parseOpList returns the definitions of an OpList message: field 1, repeated OpDef.
func parseOpList(b []byte) (map[string]*tfpb.OpDef, error) {
	ops := map[string]*tfpb.OpDef{}
	err := eachMessage(b, 1, func(m []byte) error {
		def := new(tfpb.OpDef)
		if err := proto.Unmarshal(m, def); err != nil {
			return err
		}
		ops[def.GetName()] = def
		return nil
	})
	if err != nil {
		return nil, status.Errorf(status.Internal, "the list of TensorFlow's ops: %v", err)
	}
	return ops, nil
}

// eachMessage calls f with each message of a repeated field.
func eachMessage(b []byte, field protowire.Number, f func([]byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, kind, b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if number == field && kind == protowire.BytesType {
			m, _ := protowire.ConsumeBytes(b)
			if err := f(m); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

// Name implements graph.KernelSet.
func (s *Set) Name() string { return "tensorflow" }

// Version is the version of the TensorFlow library, such as 2.21.0.
func (s *Set) Version() string { return s.version }

// Directory is where the TensorFlow library is.
func (s *Set) Directory() string { return s.dir }

// OpDef implements graph.KernelSet.
func (s *Set) OpDef(op string) *tfpb.OpDef {
	if def := s.ops[op]; def != nil {
		return def
	}
	if staysInGo(op) {
		return s.own.OpDef(op)
	}
	return nil
}

// Ops returns the names of all ops in alphabetical order.
func (s *Set) Ops() []string { return slices.Sorted(maps.Keys(s.ops)) }

// NewState implements graph.KernelSet.
func (s *Set) NewState() (graph.State, error) {
	own, err := s.own.NewState()
	if err != nil {
		return nil, err
	}
	c, err := s.newContext()
	if err != nil {
		own.Close()
		return nil, err
	}
	return newState(s, own, c), nil
}

// staysInGo reports whether an op is of communication or of control flow, which the executor and the
// Go kernels run: TensorFlow's own would use a rendezvous and frames of TensorFlow's.
func staysInGo(op string) bool {
	switch op {
	case "_Send", "_Recv", "_HostSend", "_HostRecv",
		"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "ControlTrigger", "_SwitchN",
		"RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration":
		return true
	}
	return strings.HasPrefix(op, "Collective")
}

// mayWait reports whether an op waits for another one: for an element of a queue or for room in it, for
// the other values of a batch, or for the elements of a dataset, whose functions may do so.
func mayWait(op string) bool {
	for _, part := range []string{"QueueEnqueue", "QueueDequeue", "BarrierTakeMany", "BarrierInsertMany", "AccumulatorTakeGradient",
		"IteratorGetNext", "ReaderRead", "Unstage", "MapPeek", "StagePeek", "RecordInput"} {
		if strings.Contains(op, part) {
			return true
		}
	}
	switch op {
	case "DatasetToSingleElement", "ReduceDataset", "Batch", "Unbatch", "UnbatchGrad", "BatchFunction", "Stage", "MapStage", "OrderedMapStage", "OrderedMapPeek", "MutexLock", "PyFunc", "EagerPyFunc":
		return true
	}
	return false
}
