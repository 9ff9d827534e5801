package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	"github.com/tryst-rdma/tryst/verbs"
)

// The second process speaks JSON on its standard input and output, a value a
// line: it reads a setup, answers with a hello, and then answers each command
// until its input ends, which also is how the death of the first process shows.

// setup says what the second process shall serve.
type setup struct {
	Sizes   []int64 `json:"sizes"`             // of the tensors that it publishes
	Profile string  `json:"profile,omitempty"` // a directory for its CPU profile; none when empty
	Pin     *pin    `json:"pin,omitempty"`
	// Bare makes it a process of the bare baselines, which runs nothing of Tryst.
	Bare *bareSetup `json:"bare,omitempty"`
	// Reduce makes it a member of an all-reduce, and nothing else.
	Reduce *memberSetup `json:"reduce,omitempty"`
	// Step makes it one of the two tasks of a benchmark of steps.
	Step *memberSetup `json:"step,omitempty"`
	// Versions makes it a publisher of versions, or a watcher.
	Versions *versionsSetup `json:"versions,omitempty"`
	// TLS has certificates that both processes use; none without it.
	TLS server.TLS `json:"tls"`
	verbsSetup
}

// hello has the address of the process and its task there.
type hello struct {
	Server      string `json:"server"`
	Task        string `json:"task"`
	Device      string `json:"device"`
	Incarnation uint64 `json:"incarnation"`
	Baselines   string `json:"baselines"` // the gRPC calls
	TCP         string `json:"tcp"`
	UDP         string `json:"udp"` // empty where the system has no super-packets
	// Bare is where the bare baselines are.
	Bare *bareAddresses `json:"bare,omitempty"`
}

// command asks for one thing.
type command struct {
	Send *sendCommand `json:"send,omitempty"`
	Echo *echoCommand `json:"echo,omitempty"`
	Used bool         `json:"used,omitempty"` // tell nothing but that, and Switches
	// Resident reports the memory of the whole process, which takes some time.
	Resident bool             `json:"resident,omitempty"`
	Run      *bareRun         `json:"run,omitempty"`
	Reduce   *reduceRun       `json:"reduce,omitempty"`
	Step     *stepRun         `json:"step,omitempty"`
	Versions *versionsCommand `json:"versions,omitempty"`
}

// sendCommand sends Count tensors of 8 bytes, of the names that edge gives.
type sendCommand struct {
	Step  int64  `json:"step"`
	To    string `json:"to"` // a device
	Count int    `json:"count"`
}

// state is the answer to every command.
type state struct {
	Error   string `json:"error,omitempty"`
	Waiting int    `json:"waiting"` // receives
	Memory  int64  `json:"memory"`  // that is in use after a garbage collection, in bytes
	// Used is the time of processors that the process has taken.
	Used time.Duration `json:"used,omitempty"`
	// Switches is how often one of its threads has waited for something and was woken.
	Switches int64 `json:"switches,omitempty"`
	// Resident is the memory of the process in bytes.
	Resident int64 `json:"resident,omitempty"`
	// Echo is where messages are sent back from.
	Echo *verbs.Endpoint `json:"echo,omitempty"`
	// Run is the result of a bare baseline, or of task 0 of a benchmark of steps.
	Run *bareResult `json:"run,omitempty"`
	// Rounds is how long each round of an all-reduce took at this member.
	Rounds []time.Duration `json:"rounds,omitempty"`
	// Versions is what came of a command to a publisher or a watcher.
	Versions *versionsState `json:"versions,omitempty"`
}

const (
	// publication is the name of what the second process publishes.
	publication = "bench"
	// benchStep is the step of what it sends.
	benchStep = 1
)

// edge names the i-th value of many.
func edge(i int) string { return "edge_" + strconv.Itoa(i) }

// Serve is the second process: it serves what Run measures until in ends or ctx
// does, and tells on out where.
func Serve(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	reader, writer := json.NewDecoder(in), json.NewEncoder(out)
	var s setup
	if err := reader.Decode(&s); err != nil {
		return status.Errorf(status.InvalidArgument, "this command is for tryst-bench to start; its input is no setup: %w", err)
	}
	if err := s.Pin.apply(); err != nil {
		return err
	}
	stop, err := profile(s.Profile, secondProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	p, err := startSecond(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := writer.Encode(p.hello()); err != nil {
		return status.Errorf(status.Unavailable, "telling where to measure: %w", err)
	}
	commands := make(chan command)
	ended := make(chan struct{})
	defer close(ended)
	go func() { // ends with in
		defer close(commands)
		for {
			var c command
			if reader.Decode(&c) != nil {
				return
			}
			select {
			case commands <- c:
			case <-ended:
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case c, more := <-commands:
			if !more {
				return nil
			}
			if err := writer.Encode(p.obey(c)); err != nil {
				return nil // nobody asks any more
			}
		}
	}
}

// second is what a second process is: a peer, one of the bare baselines, a member of an all-reduce,
// a task of a benchmark of steps, or a publisher of versions or a watcher.
type second interface {
	hello() hello
	obey(command) state
	close() error
}

func startSecond(ctx context.Context, s setup) (second, error) {
	switch {
	case s.Reduce != nil:
		return startMember(ctx, s)
	case s.Step != nil:
		return startStepper(ctx, s)
	case s.Versions != nil:
		return startVersions(ctx, *s.Versions)
	case s.Bare == nil:
		return startPeer(ctx, s)
	case s.Bare.From == nil:
		return startBareServer(ctx, s.Sizes)
	}
	return startBareReceiver(s.Bare.From)
}

// peer is a complete Tryst server beside the listeners of the older baselines.
type peer struct {
	where     hello
	pool      *tensor.Pool
	tensors   map[int64]*tensor.Tensor // by size
	server    *server.Server
	baselines *grpc.Server
	served    chan struct{} // closed when baselines has ended
	tcp       *tcpServer
	udp       *loopServer // nil for none
	rdma      server.RDMA
	echo      *echo // nil for none
}

func (p *peer) hello() hello { return p.where }

func startPeer(ctx context.Context, s setup) (_ *peer, err error) {
	p := &peer{
		pool:    tensor.NewPool(tensor.PoolOptions{}),
		tensors: make(map[int64]*tensor.Tensor),
		served:  make(chan struct{}),
		rdma:    s.RDMA,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := p.startServer(ctx, s); err != nil {
		return nil, err
	}
	if err := p.publish(ctx, s.Sizes); err != nil {
		return nil, err
	}
	if err := p.startBaselines(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// randomTensor returns a vector of bytes with content that is the same each
// time.
func randomTensor(a tensor.Allocator, size int64) (*tensor.Tensor, error) {
	shape, err := tensor.NewShape(size)
	if err != nil {
		return nil, err
	}
	t, err := tensor.Allocate(a, tensor.Uint8, shape)
	if err != nil {
		return nil, err
	}
	seed := [32]byte{byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24), byte(size >> 32)}
	_, _ = rand.NewChaCha8(seed).Read(t.Bytes()) // never fails
	return t, nil
}

func (p *peer) startServer(ctx context.Context, s setup) (err error) {
	c := server.Config{Listen: loopback}
	s.apply(&c)
	c.TLS = s.TLS
	c.TLS.RequireClientCert = s.TLS != server.TLS{}
	if p.server, err = server.Start(ctx, c, server.Options{Allocator: p.pool}); err != nil {
		return err
	}
	p.where.Server = p.server.Addr().String()
	p.where.Task = p.server.Task().String()
	p.where.Device = p.server.Device().String()
	p.where.Incarnation = p.server.Incarnation()
	return nil
}

// publish makes tensors where they can be sent from without a copy, and publishes
// them.
func (p *peer) publish(ctx context.Context, sizes []int64) (err error) {
	var memory tensor.Allocator = p.pool
	if v, ok := p.server.Verbs(); ok {
		memory = v.SendAllocator()
	}
	var named []*tensor.Tensor
	for _, size := range sizes {
		if p.tensors[size] != nil {
			continue
		}
		t, err := randomTensor(memory, size)
		if err != nil {
			return err
		}
		p.tensors[size] = t
		named = append(named, t.Named(strconv.FormatInt(size, 10)))
	}
	if len(named) > 0 {
		_, err = p.server.Catalog().PublishTensors(ctx, publication, named...)
	}
	return err
}

// loopback is where everything here listens: on a free port.
const loopback = "127.0.0.1:0"

func (p *peer) startBaselines(ctx context.Context) error {
	var lc net.ListenConfig
	calls, err := lc.Listen(ctx, "tcp", loopback)
	if err != nil {
		return status.Errorf(status.Unavailable, "the listener of the baselines: %w", err)
	}
	opts := append(grpctransport.ServerOptions(grpctransport.ServerTuning{}), grpc.ForceServerCodecV2(newCodec()))
	p.baselines = grpc.NewServer(opts...)
	p.baselines.RegisterService(baselineService(p.tensors), nil)
	go func() {
		defer close(p.served)
		_ = p.baselines.Serve(calls) // ends with Stop
	}()
	p.where.Baselines = calls.Addr().String()

	plain, err := lc.Listen(ctx, "tcp", loopback)
	if err != nil {
		return status.Errorf(status.Unavailable, "the listener of %s: %w", RawTCP, err)
	}
	p.tcp = serveTCP(plain, p.tensors, false)
	p.where.TCP = plain.Addr().String()

	if p.udp, err = serveLoop(p.tensors); errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return status.Errorf(status.Unavailable, "the sockets of %s: %w", UDPLoop, err)
	}
	p.where.UDP = p.udp.address().String()
	return nil
}

// obey carries out a command.
func (p *peer) obey(c command) state {
	var s state
	if c.Used {
		u, err := usage()
		if err != nil {
			s.Error = err.Error()
		}
		s.Used, s.Switches = time.Duration(u.Utime.Nano()+u.Stime.Nano()), u.Nvcsw
		return s // the rest takes some itself
	}
	if c.Resident {
		var err error
		if s.Resident, err = resident(); err != nil {
			s.Error = err.Error()
		}
		return s
	}
	if c.Send != nil {
		if err := p.send(c.Send); err != nil {
			s.Error = status.From(err).Message()
		}
	}
	if c.Echo != nil {
		if err := p.startOrStop(c.Echo, &s); err != nil {
			s.Error = err.Error()
		}
	}
	s.Waiting = p.server.Kept().Waiting
	s.Memory = memory()
	return s
}

// startOrStop changes what is sent back.
func (p *peer) startOrStop(c *echoCommand, s *state) (err error) {
	if p.echo != nil {
		err = p.echo.close()
		p.echo = nil
	}
	if err != nil || c.Stop {
		return err
	}
	if p.echo, err = startEcho(p.rdma, c); err == nil {
		s.Echo = &p.echo.loop.own
	}
	return err
}

func (p *peer) send(c *sendCommand) error {
	t, err := randomTensor(p.pool, 8)
	if err != nil {
		return err
	}
	defer t.Release()
	for i := range c.Count {
		if err := p.server.Send(c.Step, c.To, edge(i), t, false); err != nil {
			return err
		}
	}
	return nil
}

// memory returns what this process uses of Go's memory: what lives on the heap,
// and the stacks.
func memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one found to be finalized or unpooled
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// close ends everything; it may be called on a peer that has not quite started.
func (p *peer) close() (err error) {
	if p.tcp != nil {
		p.tcp.close()
	}
	if p.udp != nil {
		p.udp.close()
	}
	if p.baselines != nil {
		p.baselines.Stop()
		<-p.served
	}
	if p.echo != nil {
		err = p.echo.close()
	}
	for _, t := range p.tensors { // the publication has references of its own
		t.Release()
	}
	if p.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		err = errors.Join(err, p.server.Close(ctx))
	}
	return err
}
