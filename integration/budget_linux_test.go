package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// smallMemory is the memory of the server, in bytes.
const smallMemory = 1 << 30

// patience bounds what the server answers or gives back while it lives.
const patience = time.Minute

// memoryGroup is a memory control group for one process.
type memoryGroup struct{ dir, usage string }

// newMemoryGroup makes a group with a limit, below that of this process. It skips where none can be made.
func newMemoryGroup(t *testing.T, limit int64) memoryGroup {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skipf("there are no control groups: %v", err)
	}
	const v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	g, limitFile := memoryGroup{}, ""
	for line := range strings.Lines(string(own)) {
		switch f := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case len(f) == 3 && f[1] == "memory":
			g, limitFile = memoryGroup{filepath.Join(v1, f[2]), "memory.usage_in_bytes"}, "memory.limit_in_bytes"
		case len(f) == 3 && f[0] == "0" && g.dir == "":
			g, limitFile = memoryGroup{filepath.Join(v2, f[2]), "memory.current"}, "memory.max"
		}
	}
	parent := g.dir
	if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil { // the path is that of another namespace
		parent = strings.TrimSuffix(v1, "/memory")
		if limitFile == "memory.limit_in_bytes" {
			parent = v1
		}
	}
	if g.dir, err = os.MkdirTemp(parent, "tryst-test-"); err != nil {
		t.Skipf("no control group of memory can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(g.dir); err != nil { // rmdir; the process has ended
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(g.dir, limitFile), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		t.Skipf("no control group of memory can be limited here: %v", err)
	}
	for _, swap := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max"} {
		value := strconv.FormatInt(limit, 10)
		if swap == "memory.swap.max" {
			value = "0"
		}
		_ = os.WriteFile(filepath.Join(g.dir, swap), []byte(value), 0) // where the kernel counts swap
	}
	return g
}

// used returns the memory of the group in bytes.
func (g memoryGroup) used(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, g.usage))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// small is a server in a memoryGroup.
type small struct {
	t       *testing.T
	group   memoryGroup
	program string // tryst
	address string // of gRPC
	metrics string
	ended   chan struct{}
	log     *bytes.Buffer // valid when it has ended
	conns   []io.Closer
	work    sync.WaitGroup
}

func startSmall(t *testing.T) *small {
	t.Helper()
	group := newMemoryGroup(t, smallMemory)
	dir := t.TempDir()
	program := filepath.Join(dir, "tryst")
	tool := "go"
	if name := os.Getenv("GO"); name != "" { // set by make
		tool = name
	}
	if out, err := exec.Command(tool, "build", "-race=false", "-o", program, "../cmd/tryst").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	publication := filepath.Join(dir, "all.safetensors")
	writePublication(t, publication)
	s := &small{t: t, group: group, program: program, metrics: transporttest.FreeAddresses(t, 1)[0], ended: make(chan struct{}), log: new(bytes.Buffer)}
	file := filepath.Join(dir, "address")
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
	cmd := exec.CommandContext(ctx, "sh", "-c", `echo $$ > "$0" && ulimit -n 4096 && exec "$@"`, filepath.Join(group.dir, "cgroup.procs"),
		program, "serve", "--transport", "verbs", "--provider", "tcp,shm", "--listen", "127.0.0.1:0", "--address-file", file,
		"--metrics-address", s.metrics, "--release-after", "1s", "--shutdown-timeout", "1s",
		"--publish", published+"="+publication)
	cmd.Stderr = s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-s.ended
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log)
		}
	})
	for s.address == "" {
		s.alive("at the start")
		text, _ := os.ReadFile(file)
		s.address = strings.TrimSpace(string(text))
	}
	return s
}

// alive fails the test when the server has ended.
func (s *small) alive(when string) {
	s.t.Helper()
	select {
	case <-s.ended:
		s.t.Fatalf("%s the server has ended", when)
	default:
	}
}

// dial connects from an address of loopback, which has shares of its own.
func (s *small) dial(from string) *grpc.ClientConn {
	s.t.Helper()
	return s.dialAt(s.address, from)
}

func (s *small) dialAt(address, from string) *grpc.ClientConn {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return d.DialContext(ctx, "tcp", a) }))
	if err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// honest checks that calls of another address are answered.
func (s *small) honest(when string) {
	s.t.Helper()
	s.alive(when)
	conn := s.dial("127.0.0.99")
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, new(healthpb.HealthCheckRequest)); err != nil {
		s.t.Errorf("%s: health: %v", when, err)
	}
	if _, err := trystgrpc.NewPublicationsClient(conn).List(ctx, new(trystpb.ListRequest)); err != nil {
		s.t.Errorf("%s: publications: %v", when, err)
	}
	if _, err := tensorflowgrpc.NewWorkerServiceClient(conn).GetStatus(ctx, new(tfpb.GetStatusRequest)); err != nil {
		s.t.Errorf("%s: GetStatus: %v", when, err)
	}
	s.alive(when)
}

// member opens a session of TensorFlow.
func (s *small) member() *master.Session {
	s.t.Helper()
	return s.memberAt(s.address)
}

func (s *small) memberAt(address string) *master.Session {
	s.t.Helper()
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {address}})
	if err != nil {
		s.t.Fatal(err)
	}
	conns := grpctransport.NewConns(grpctransport.ConnsOptions{Self: cluster.ClientTask(), Spec: spec})
	w, err := conns.Worker(cluster.Task{Job: "worker"})
	if err != nil {
		s.t.Fatal(err)
	}
	session, err := master.Open(s.t.Context(), w, master.Options{Isolate: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.conns = append(s.conns, closer(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return errors.Join(session.Close(ctx), conns.Close())
	}))
	return session
}

type closer func() error

func (c closer) Close() error { return c() }

// fill runs a graph that makes a tensor of floats, and keeps copies of it in variables whose names begin so.
func (s *small) fill(session *master.Session, elements int64, copies int, variable string) error {
	s.t.Helper()
	shape, err := tensor.NewShape(1)
	if err != nil {
		s.t.Fatal(err)
	}
	g := session.NewGraph()
	dims, err := tensor.FromSlice(shape, []int64{elements})
	d := s.constant(g, "d", dims, err)
	one, err := tensor.FromSlice(tensor.Shape{}, []float32{1})
	v := s.constant(g, "v", one, err)
	float := master.Type(tensor.Float32)
	var after []string
	filled := v
	for i := range copies {
		handle := g.Add("handle", "VarHandleOp", master.Attrs{"dtype": float, "shape": master.Shape(shape), "shared_name": master.Text(variable + strconv.Itoa(i))})
		again := g.Add("again", "Fill", master.Attrs{"T": float, "index_type": master.Type(tensor.Int64)}, d, v)
		after = append(after, "^"+g.Add("assign", "AssignVariableOp", master.Attrs{"dtype": float}, handle, again))
	}
	if copies == 0 {
		filled = g.Add("filled", "Fill", master.Attrs{"T": float, "index_type": master.Type(tensor.Int64)}, d, v)
	}
	out := g.Add("size", "Size", master.Attrs{"T": float, "out_type": master.Type(tensor.Int32)}, append([]string{filled}, after...)...)
	g.Fetch("out", out, tensor.Int32)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	p, err := session.Register(ctx, g)
	if err != nil {
		return err
	}
	values, err := p.Step(ctx, nil)
	for _, x := range values {
		x.Release()
	}
	return errors.Join(err, p.Close(ctx))
}

// http2Conn is a connection whose requests do not end.
func (s *small) http2Conn(from string) (net.Conn, *http2.Framer, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	conn, err := d.Dial("tcp", s.address)
	if err != nil {
		return nil, nil, err
	}
	f := http2.NewFramer(conn, conn)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, f.WriteSettings())
	if err == nil {
		_, err = f.ReadFrame() // the settings of the server, or the end of a refused connection
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, f, nil
}

// unfinished begins requests of 64 KiB that do not end, until the server ends the connection or the window is full.
func (s *small) unfinished(from string, streams int) {
	conn, f, err := s.http2Conn(from)
	if err != nil {
		return
	}
	s.conns = append(s.conns, conn)
	s.work.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // ends with the connection
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", tensorflowgrpc.WorkerService_GetStatus_FullMethodName}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // a buffer takes all
	}
	_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	body := binary.BigEndian.AppendUint32([]byte{0}, 1<<20)
	body = append(body, make([]byte, 16<<10-len(body))...)
	for i := range streams {
		id := uint32(2*i + 1) //nolint:gosec // small
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
			return
		}
		for range 3 {
			if err := f.WriteData(id, false, body); err != nil {
				return
			}
		}
	}
}

// TestSmallServerLives: a server with 1 GiB lives while a member and strangers fill all that they can fill at
// once, answers calls of others meanwhile, and gives the memory back: also while peers over tcp and shm stop in their
// pulls, nobody reads responses, traces are recorded, and many processes and ids are to be remembered (fillMore). The tensors of the member are outside the
// Go heap when they are large, and on it when they are small.
func TestSmallServerLives(t *testing.T) {
	s := startSmall(t)
	s.honest("at the start")
	base := s.group.used(t)
	session := s.member()
	if err := s.fill(session, 1023<<18, 0, ""); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("a tensor of 1023 MiB: %v, want ResourceExhausted", err)
	}
	s.honest("after a tensor of the whole memory")
	s.close()
	s.fillAll(1, 64<<20, 1)
	s.wantBack(base)
	s.fillAll(2, 256<<10, 100)
	s.wantBack(base)
	s.fillMore()
	s.fillAll(3, 64<<20, 1)
	s.wantBack(base)
}

// fillAll takes all that a member and strangers may have at once: tensors of a size that stay, and what strangers
// can begin. The receives are for a step, which ends with them.
func (s *small) fillAll(step, size int64, copies int) {
	t := s.t
	t.Helper()
	session := s.member()
	has := int64(0)
	for i := 0; size > 64<<10; i++ {
		switch err := s.fill(session, size/4, copies, fmt.Sprintf("kept%d_", i)); {
		case err == nil:
			has += size * int64(copies)
		case status.CodeOf(err) == status.ResourceExhausted:
			size /= 2
		default:
			t.Fatal(err)
		}
	}
	if step < 3 && has < smallMemory/4 { // otherwise others have some already
		t.Errorf("the member could keep %d bytes only", has)
	}
	s.honest("while a member keeps all that it may")

	// Strangers: receives that wait, unfinished requests, connections, and half requests for metrics, from several
	// addresses.
	waiters := s.dial("127.0.0.20")
	s.conns = append(s.conns, waiters)
	full := make(chan struct{})
	var once sync.Once
	for i := range 8000 {
		s.work.Go(func() { // ends with the connection
			_, err := tensorflowgrpc.NewWorkerServiceClient(waiters).RecvTensor(context.Background(), &tfpb.RecvTensorRequest{
				StepId: step, RendezvousKey: fmt.Sprintf("%s;%016x;/job:worker/replica:0/task:1/device:CPU:0;%d;0:0", session.Attributes()[0].GetName(), session.Attributes()[0].GetIncarnation(), i),
			})
			if grpcstatus.Code(err) == codes.ResourceExhausted {
				once.Do(func() { close(full) })
			}
		})
	}
	select {
	case <-full:
	case <-time.After(patience):
		t.Error("no receive was refused")
	}
	s.honest("while receives wait")
	refused := 0
	for a := range 4 {
		from := fmt.Sprintf("127.0.0.%d", 10+a)
		for range 8 {
			s.unfinished(from, 64)
		}
		for range 2000 {
			conn, _, err := s.http2Conn(from)
			if err != nil {
				refused++
				break
			}
			s.conns = append(s.conns, conn)
		}
		for range 40 {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			conn, err := d.Dial("tcp", s.metrics)
			if err != nil {
				t.Fatal(err)
			}
			s.conns = append(s.conns, conn)
			_, _ = io.WriteString(conn, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1")
		}
	}
	if refused == 0 {
		t.Error("no connection was refused")
	}
	if err := s.fill(session, 64<<18, 1, "again"); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("a tensor of 64 MiB: %v, want ResourceExhausted", err)
	}
	s.honest("while strangers and a member have all that they may")
	t.Logf("%d MiB of %d MiB are in use", s.group.used(t)>>20, smallMemory>>20)
	s.close()
}

// kept is how many bytes the server may have beyond those of its start once all has ended. A heap of less than twice
// what it was at its last release stays (memory.Release), and a release in the midst of what others fill can find
// 100 MiB in use. What they fill is two times as much.
const kept = 256 << 20

// wantBack waits until the server has not much more memory than at its start: some seconds, or two minutes where two
// releases came in the midst of what was filled, until the runtime collects by itself.
func (s *small) wantBack(base int64) {
	t := s.t
	t.Helper()
	deadline := time.NewTimer(4 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for most := base + kept; s.group.used(t) > most; {
		s.alive("afterwards")
		select {
		case <-tick.C:
		case <-deadline.C:
			stat, _ := os.ReadFile(filepath.Join(s.group.dir, "memory.stat"))
			t.Fatalf("%d MiB are in use after all has ended; at the start it was %d MiB\n%s\n%s", s.group.used(t)>>20, base>>20, stat, s.kept())
		}
	}
	t.Logf("%d MiB are in use after all has ended; at the start it was %d MiB", s.group.used(t)>>20, base>>20)
	s.honest("afterwards")
}

// kept returns the metrics that say what the server has memory for.
func (s *small) kept() string {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/metrics", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return strings.Join(memoryMetric.FindAllString(string(text), -1), "\n")
}

var memoryMetric = regexp.MustCompile(`(?m)^(go_memstats|go_goroutines|tryst_kept|tryst_memory|tryst_requesters|tryst_connected|tryst_waiting|tryst_pulls).*$`)

// close ends what members and strangers have.
func (s *small) close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.work.Wait()
}
