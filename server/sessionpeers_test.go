package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// taskOf is a task of a job.
func taskOf(job string, i int) cluster.Task { return cluster.Task{Job: job, Index: i} }

// member is a task of a cluster that a session propagates.
type member struct {
	task    cluster.Task
	server  *Server // nil: none is up
	address string  // that of the server when empty
}

// ownCluster is sessions of one master at all members of its cluster.
type ownCluster struct {
	t        *testing.T
	members  []member
	sessions []*master.Session // nil where no server is up
}

// propagate opens sessions that bring a cluster of their own, or none with nobody in it.
func propagate(t *testing.T, dial grpctransport.DialOptions, members ...member) *ownCluster {
	t.Helper()
	c := &ownCluster{t: t, members: members, sessions: make([]*master.Session, len(members))}
	jobs := make(map[string]*tfpb.JobDef)
	for i := range members {
		m := &members[i]
		if m.address == "" {
			m.address = m.server.Addr().String()
		}
		if jobs[m.task.Job] == nil {
			jobs[m.task.Job] = &tfpb.JobDef{Name: m.task.Job, Tasks: map[int32]string{}}
		}
		jobs[m.task.Job].Tasks[int32(m.task.Index)] = m.address
	}
	def := &tfpb.ClusterDef{}
	for job := range maps.Values(jobs) {
		def.Job = append(def.Job, job)
	}
	for i, m := range members {
		if m.server != nil {
			c.sessions[i] = openSessionBy(t, m.server, dial, master.Options{ServerDef: &tfpb.ServerDef{
				Protocol: "grpc", JobName: m.task.Job, TaskIndex: int32(m.task.Index), Cluster: def,
			}})
		}
	}
	return c
}

// peer is the device of a member.
func (c *ownCluster) peer(i int) master.Peer {
	p := master.Peer{Device: cluster.DeviceOf(c.members[i].task), Incarnation: 1}
	if s := c.members[i].server; s != nil {
		p.Incarnation = s.Incarnation()
	}
	return p
}

// send sends x in a step of its own from one member to another, and returns what comes.
func (c *ownCluster) send(from, to int, x *tensor.Tensor) (*tensor.Tensor, error) {
	c.t.Helper()
	out := c.sessions[from].NewGraphOn(c.peer(from))
	out.Send("x", out.Feed("x", x.DType()), x.DType(), c.peer(to).Device)
	sender, step := registerGraph(c.t, c.sessions[from], out), master.NewStep()
	sent := make(chan error)
	go func() {
		_, err := sender.Run(c.t.Context(), step, map[string]*tensor.Tensor{"x": x})
		sent <- err
	}()
	y, err := c.receive(from, to, step, x.DType())
	if err := <-sent; err != nil {
		c.t.Error(err)
	}
	if err := c.sessions[from].CleanUp(c.t.Context(), step); err != nil {
		c.t.Error(err)
	}
	return y, err
}

// receive receives in a step at one member what another sends.
func (c *ownCluster) receive(from, to int, step int64, dtype tensor.DType) (*tensor.Tensor, error) {
	c.t.Helper()
	in := c.sessions[to].NewGraphOn(c.peer(to))
	in.Fetch("x", in.Recv("x", dtype, c.peer(from)), dtype)
	v, err := registerGraph(c.t, c.sessions[to], in).Run(c.t.Context(), step, nil)
	if err := c.sessions[to].CleanUp(c.t.Context(), step); err != nil {
		c.t.Error(err)
	}
	return v["x"], err
}

// exchange sends a small tensor and a large one from one member to another, and checks that these come.
func (c *ownCluster) exchange(from, to int) {
	c.t.Helper()
	for _, elements := range []int64{1, 1 << 20} {
		x := tensortest.Random(rand.New(rand.NewPCG(uint64(from), uint64(elements))), tensor.Int32, tensortest.Shape(c.t, elements), tensor.Heap{}) //nolint:gosec // a test that can be repeated
		y, err := c.send(from, to, x)
		if err != nil {
			c.t.Fatal(err)
		}
		if !bytes.Equal(x.Bytes(), y.Bytes()) {
			c.t.Errorf("%d elements from %v to %v: other values came", elements, c.members[from].task, c.members[to].task)
		}
		x.Release()
		y.Release()
	}
}

// close closes the sessions.
func (c *ownCluster) close() {
	c.t.Helper()
	for i, s := range c.sessions {
		if s == nil {
			continue
		}
		if err := s.Close(c.t.Context()); err != nil {
			c.t.Errorf("session %d: %v", i, err)
		}
	}
}

// TestAPropagatedCluster: a master gives two servers, which do not know each other, names and
// addresses in a cluster of its own; values go from one to the other.
func TestAPropagatedCluster(t *testing.T) {
	a, b := start(t, settings(), Options{Kernels: ops.New()}), start(t, settings(), Options{Kernels: ops.New()})
	c := propagate(t, grpctransport.DialOptions{}, member{task: taskOf("trainer", 0), server: a}, member{task: taskOf("trainer", 1), server: b})
	c.exchange(0, 1)
	c.close()
	if got := b.Received(); got["grpc"] != 2 {
		t.Errorf("received %v", got)
	}
}

// TestRenamedTasksTakeAnyRoute: a master propagates a cluster that gives servers other names than they
// know each other by, also the names of one another. Values between them come from the right server,
// and over the route that they have without a session.
func TestRenamedTasksTakeAnyRoute(t *testing.T) {
	a := certtest.New(t)
	for i := range 3 {
		a.MakeFor(taskOf("worker", i).String(), certificateOf(i), certtest.Loopback)
	}
	for _, route := range []struct {
		provider string
		secure   bool
	}{{"shm", false}, {"tcp", false}, {"tcp", true}, {"roce", false}} {
		t.Run(fmt.Sprintf("%s, TLS %v", route.provider, route.secure), func(t *testing.T) {
			switch route.provider {
			case "shm":
				needsSharedMemory(t)
			case "roce":
				needsLoopback(t, "127.0.0.1")
			}
			w := newVerbsTown(t, 3)
			servers := make([]*Server, 3)
			for i := range servers {
				servers[i] = startRouteWith(t, w.settings(i, func(c *Config) {
					c.Provider, c.RDMA.Timeout, c.Fallback = route.provider, 0, "none"
					if route.secure {
						c.TLS, c.TLS.RequireClientCert = TLS(a.Pair(certificateOf(i))), true
					}
				}), Options{Kernels: ops.New()}).Server
			}
			var dial grpctransport.DialOptions
			if route.secure {
				security, err := certificates.ClientTLS(certificates.Files(a.Pair(certificateOf(2))))
				if err != nil {
					t.Fatal(err)
				}
				dial.Credentials = certificates.ClientCredentials(security)
			}
			received := 0
			for _, names := range [][3]cluster.Task{
				{taskOf("worker", 0), taskOf("worker", 1), taskOf("worker", 2)},
				{taskOf("ps", 3), taskOf("trainer", 0), taskOf("trainer", 7)},
				{taskOf("worker", 1), taskOf("worker", 0), taskOf("worker", 2)},
				{taskOf("worker", 1), taskOf("worker", 2), taskOf("worker", 0)},
			} {
				members := make([]member, len(servers))
				for i, s := range servers {
					members[i] = member{task: names[i], server: s}
				}
				members[0].address = "[::ffff:127.0.0.1]" + strings.TrimPrefix(servers[0].Addr().String(), "127.0.0.1")
				c := propagate(t, dial, members...)
				for from := range servers {
					c.exchange(from, (from+1)%3)
				}
				c.close()
				received += 2
			}
			for i, s := range servers {
				if got := s.Received(); len(got) != 1 || got["verbs"] != received {
					t.Errorf("server %d received %v, want %d over verbs", i, got, received)
				}
				name := fmt.Sprintf(`tryst_received_tensors_total{peer=%q,transport="verbs"}`, taskOf("worker", (i+2)%3))
				if n := metric(t, metricsText(s.gatherer), name); int(n) != received {
					t.Errorf("server %d counts %v tensors of its peer, want %d", i, n, received)
				}
			}
		})
	}
}

// TestSessionTaskAtAnotherAddress: an address that the cluster of the process does not have is reached
// over gRPC, also when it leads to a server of that cluster.
func TestSessionTaskAtAnotherAddress(t *testing.T) {
	w := newVerbsTown(t, 2)
	a, b := w.startWith(0, Options{Kernels: ops.New()}), w.startWith(1, Options{Kernels: ops.New()})
	w.up(b, a.Task())
	_, port, err := net.SplitHostPort(a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := propagate(t, grpctransport.DialOptions{},
		member{task: taskOf("trainer", 0), server: a.Server, address: net.JoinHostPort("localhost", port)},
		member{task: taskOf("trainer", 1), server: b.Server})
	c.exchange(0, 1)
	c.close()
	if got := b.Received(); len(got) != 1 || got["grpc"] != 2 {
		t.Errorf("received %v", got)
	}
	if n := metric(t, metricsText(b.gatherer), `tryst_received_tensors_total{peer="other",transport="grpc"}`); n != 2 {
		t.Errorf("%v tensors of others are counted", n)
	}
	if n := metric(t, metricsText(a.gatherer), fmt.Sprintf(`tryst_sent_tensors_total{peer=%q,transport="grpc"}`, b.Task())); n != 2 {
		t.Errorf("%v tensors for the peer are counted", n)
	}
}

// TestErrorsOfRenamedTasks: an error says which task is meant by the name of the session, and by that
// which this process knows.
func TestErrorsOfRenamedTasks(t *testing.T) {
	w := newVerbsTown(t, 3)
	a := w.startWith(0, Options{Kernels: ops.New()})
	b := w.startWith(1, Options{Kernels: ops.New()}, func(c *Config) { c.PeerTimeout = time.Second })
	w.up(b, a.Task())
	down, _ := w.spec.Address(taskOf("worker", 2))
	c := propagate(t, grpctransport.DialOptions{},
		member{task: taskOf("trainer", 1), server: b.Server}, member{task: taskOf("trainer", 5), address: down})
	_, err := c.receive(1, 0, master.NewStep(), tensor.Float32)
	wantStatus(t, err, status.Unavailable, "/job:trainer/replica:0/task:5 is /job:worker/replica:0/task:2 in the cluster of this process: /job:worker/replica:0/task:2 was not reached for 1s")
	c.close()

	// The session at a gives it another name than the one at b.
	c = propagate(t, grpctransport.DialOptions{}, member{task: taskOf("ps", 0), server: a.Server})
	defer c.close()
	d := propagate(t, grpctransport.DialOptions{}, member{task: taskOf("trainer", 0), address: a.Addr().String()}, member{task: taskOf("trainer", 1), server: b.Server})
	defer d.close()
	_, err = d.receive(0, 1, master.NewStep(), tensor.Float32)
	wantStatus(t, err, status.InvalidArgument, "/job:worker/replica:0/task:0 has no device /job:trainer/replica:0/task:0/device:CPU:0")
}

// TestLinesAboutPeersOfSessionsAreBounded: the cluster of a session may have thousands of tasks that cannot be reached.
func TestLinesAboutPeersOfSessionsAreBounded(t *testing.T) {
	const linesOfSession = 30 // a minute
	var log syncBuffer
	s := start(t, settings(func(c *Config) { c.PeerTimeout = 50 * time.Millisecond }), Options{
		Kernels: ops.New(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	members := []member{{task: taskOf("ps", 0), server: s}}
	nobody := transporttest.FreeAddresses(t, 1)[0]
	for i := range 2 * linesOfSession {
		members = append(members, member{task: taskOf("worker", i), address: nobody})
	}
	c := propagate(t, grpctransport.DialOptions{}, members...)
	defer c.close()
	var receives sync.WaitGroup
	for i := range members[1:] {
		receives.Go(func() {
			if _, err := c.receive(i+1, 0, master.NewStep(), tensor.Int32); err == nil {
				t.Error("a value came from nobody")
			}
		})
	}
	receives.Wait()
	lines := strings.Count(log.String(), "the peer is not reached")
	if lines == 0 || lines > linesOfSession {
		t.Errorf("%d lines are about %d peers, want %d at most:\n%s", lines, len(members)-1, linesOfSession, log.String())
	}
}
