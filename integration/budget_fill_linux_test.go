package integration

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// What others make a small server hold, beside what budget_linux_test.go has.

// published is the name of its publication: many small tensors, so that manifest and keys are large, and some large ones.
const published = "all"

// writePublication writes a safetensors file. The content of the large tensors has no blocks on the disk.
func writePublication(t *testing.T, path string) {
	t.Helper()
	header, end := map[string]any{}, int64(0)
	add := func(name string, bytes int64) {
		header[name] = map[string]any{"dtype": "F32", "shape": []int64{bytes / 4}, "data_offsets": []int64{end, end + bytes}}
		end += bytes
	}
	for i := range 20_000 {
		add(fmt.Sprintf("small/%05d/%s", i, strings.Repeat("n", 40)), 4)
	}
	for i := range 8 {
		add(fmt.Sprintf("large/%d", i), 32<<20)
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(b))+end); err != nil {
		t.Fatal(err)
	}
}

// unread is a proxy of the server through which responses do not arrive any more once it stops.
type unread struct {
	net.Listener
	stop    chan struct{} // closed by Stop
	address string
}

// unreadFrom makes a proxy for an address of loopback.
func (s *small) unreadFrom(from string) *unread {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	u := &unread{l, make(chan struct{}), l.Addr().String()}
	s.conns = append(s.conns, l)
	s.work.Go(func() {
		var copies sync.WaitGroup
		defer copies.Wait()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			to, err := d.Dial("tcp", s.address)
			if err != nil {
				_ = conn.Close()
				continue
			}
			copies.Go(func() {
				_, _ = io.Copy(to, conn) // ends with the client
				_ = to.Close()
			})
			copies.Go(func() {
				b := make([]byte, 32<<10)
				for {
					n, err := to.Read(b)
					select {
					case <-u.stop: // what came is lost, and nothing more is read
						return
					default:
					}
					if _, werr := conn.Write(b[:n]); err != nil || werr != nil {
						_ = conn.Close()
						return
					}
				}
			})
		}
	})
	return u
}

// fetchUnread runs steps whose values nobody reads: each fetches a tensor.
func (s *small) fetchUnread(from string, steps int, size int64) {
	s.t.Helper()
	u := s.unreadFrom(from)
	session := s.memberAt(u.address)
	g := session.NewGraph()
	dims, err := tensor.FromSlice(tensor.Vector(1), []int64{size / 4})
	d := s.constant(g, "d", dims, err)
	one, err := tensor.FromSlice(tensor.Shape{}, []float32{1})
	v := s.constant(g, "v", one, err)
	g.Fetch("out", g.Add("filled", "Fill", master.Attrs{"T": master.Type(tensor.Float32), "index_type": master.Type(tensor.Int64)}, d, v), tensor.Float32)
	p, err := session.Register(s.t.Context(), g)
	if err != nil {
		s.t.Error(err)
		return
	}
	close(u.stop)
	for range steps {
		s.work.Go(func() {
			values, _ := p.Step(s.t.Context(), nil) // ends with the connection
			for _, x := range values {
				x.Release()
			}
		})
	}
}

// callUnread asks for manifests, lists and keys and reads none.
func (s *small) callUnread(from string, conns, calls int) {
	for range conns {
		u := s.unreadFrom(from)
		conn := s.dialAt(u.address, "127.0.0.1")
		s.conns = append(s.conns, conn)
		p := trystgrpc.NewPublicationsClient(conn)
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		_, err := p.List(ctx, new(trystpb.ListRequest))
		cancel()
		close(u.stop)
		if err != nil { // refused, like the calls would be
			continue
		}
		for i := range calls {
			s.work.Go(func() {
				if i%2 == 0 {
					_, _ = p.Describe(context.Background(), &trystpb.DescribeRequest{Publication: published})
					return
				}
				if stream, err := p.Open(context.Background(), &trystpb.OpenRequest{Publication: published, Puller: fmt.Sprintf("/job:client/replica:0/task:%d", rand.Int32())}); err == nil {
					_, _ = stream.Recv() // ends with the connection
				}
			})
		}
	}
}

// trace records what runs, as often as it may, while a graph with long names runs.
func (s *small) trace(session *master.Session, steps int) {
	s.t.Helper()
	answers := make(chan int, 4)
	for range 4 {
		s.work.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), 90*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/trace?seconds=20", nil)
			if err != nil {
				s.t.Error(err)
				return
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answers <- 0
				return
			}
			defer resp.Body.Close()
			answers <- resp.StatusCode
			_, _ = io.Copy(io.Discard, resp.Body)
		})
	}
	for range 2 { // others are under way when these are refused
		if code := <-answers; code != http.StatusServiceUnavailable {
			s.t.Errorf("a trace beside two others ended with %d", code)
		}
	}
	g := session.NewGraph()
	one, err := tensor.FromSlice(tensor.Shape{}, []float32{1})
	last := s.constant(g, "v", one, err)
	for i := range 300 {
		last = g.Add(fmt.Sprintf("%d_%s", i, strings.Repeat("x", 4000)), "Identity", master.Attrs{"T": master.Type(tensor.Float32)}, last)
	}
	g.Fetch("out", last, tensor.Float32)
	p, err := session.Register(s.t.Context(), g)
	if err != nil {
		s.t.Fatal(err)
	}
	for range steps {
		values, err := p.Step(s.t.Context(), nil)
		for _, x := range values {
			x.Release()
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// remember makes the server remember processes, and ids of receives that have ended. It returns how many calls were
// refused.
func (s *small) remember(from string, processes, ids int) (refused int64) {
	s.t.Helper()
	conn := s.dial(from)
	s.conns = append(s.conns, conn)
	p := trystgrpc.NewPeersClient(conn)
	var all sync.WaitGroup
	var count atomic.Int64
	call := func(i int, ids []uint64) {
		_, err := p.Cancel(s.t.Context(), &trystpb.CancelRequest{
			Requester: fmt.Sprintf("/job:client/replica:0/task:%d", i), RequesterIncarnation: rand.Uint64(), Ids: ids,
		})
		if grpcstatus.Code(err) == codes.ResourceExhausted {
			count.Add(1)
		}
	}
	for i := range 16 {
		all.Go(func() {
			for n := i; n < processes; n += 16 {
				call(n, []uint64{rand.Uint64()})
			}
		})
	}
	all.Wait()
	for n := range 4 {
		for range ids / 100_000 {
			some := make([]uint64, 100_000)
			for i := range some {
				some[i] = rand.Uint64()
			}
			call(1<<20+n, some)
		}
	}
	return count.Load()
}

// pullAndStop starts pulls over a device that stop as soon as something has come: they hold what they have requested,
// and what they have not acknowledged.
func (s *small) pullAndStop(provider string, pulls int) {
	s.t.Helper()
	for range pulls {
		dir := s.t.TempDir()
		cmd := exec.CommandContext(s.t.Context(), s.program, "pull", "--from", s.address, "--transport", "verbs", "--provider", provider, "--fallback", "none",
			"--tensor", "large/*", "--out", dir+"/", published)
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait()
		}()
		s.conns = append(s.conns, closer(func() error {
			_ = cmd.Process.Kill() // also one that is stopped
			<-ended
			return nil
		}))
		tick := time.NewTicker(5 * time.Millisecond)
		for some := false; !some; {
			select {
			case <-tick.C:
				parts, _ := filepath.Glob(filepath.Join(dir, "*.part"))
				some = len(parts) > 0
			case <-ended: // refused
				some = true
			}
		}
		tick.Stop()
		_ = cmd.Process.Signal(syscall.SIGSTOP)
	}
}

func (s *small) constant(g *master.Graph, name string, x *tensor.Tensor, err error) string {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	defer x.Release()
	return g.Const(name, x)
}

// fillMore takes what fillAll does not.
func (s *small) fillMore() {
	t := s.t
	t.Helper()
	session := s.member()
	s.trace(session, 900)
	s.honest("while traces are recorded")
	s.pullAndStop("tcp", 2)
	s.pullAndStop("shm", 2)
	s.honest("while pulls stand still")
	for i := range 3 {
		s.fetchUnread(fmt.Sprintf("127.0.0.%d", 30+i), 70, 8<<20)
		s.callUnread(fmt.Sprintf("127.0.0.%d", 40+i), 4, 64)
	}
	s.honest("while responses are not read")
	refused := int64(0)
	for i := range 3 {
		refused += s.remember(fmt.Sprintf("127.0.0.%d", 50+i), 12_000, 500_000)
	}
	if refused == 0 {
		t.Error("no process and no id was refused")
	}
	s.honest("while it remembers processes and ids")
	if err := s.fill(session, 512<<18, 0, ""); status.CodeOf(err) != status.ResourceExhausted {
		t.Errorf("a tensor of 512 MiB: %v, want ResourceExhausted", err)
	}
}
