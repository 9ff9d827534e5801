//go:build rxe && linux

package verbs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// job is the job of all tasks.
const job = "worker"

func task(index int) cluster.Task { return cluster.Task{Job: job, Index: index} }

// runNode runs a node: a server, or a client that pulls. It reads commands from stdin and writes
// replies to stdout. It ends after opClose, or with its input.
func runNode(text string) {
	n := &node{out: json.NewEncoder(os.Stdout), cancels: make(map[int]context.CancelFunc)}
	if err := n.start(text); err != nil {
		n.reply(errorReply(0, err))
		return
	}
	in := json.NewDecoder(os.Stdin)
	for {
		c := command{Op: opClose}
		if err := in.Decode(&c); err != nil || c.Op == opClose {
			n.reply(errorReply(c.ID, n.close()))
			return
		}
		n.do(c)
	}
}

// node is the state of runNode.
type node struct {
	settings settings
	server   *server.Server
	verbs    *server.VerbsServer // nil for a node without verbs
	client   *server.Client
	pool     *tensor.Pool
	work     sync.WaitGroup // receives and pulls

	mu      sync.Mutex // guards what follows
	out     *json.Encoder
	cancels map[int]context.CancelFunc // of receives under way, by their commands
}

func (n *node) reply(r reply) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.out.Encode(r) // it fails only if the test has ended
}

func errorReply(id int, err error) reply {
	r := reply{ID: id}
	if err != nil {
		r.Code, r.Text = status.CodeOf(err).String(), err.Error()
	}
	return r
}

func (n *node) start(text string) error {
	s := &n.settings
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return err
	}
	c := server.Config{}
	c.Listen, c.ShutdownTimeout = "127.0.0.1:0", 30*time.Second
	c.Transport, c.Provider, c.RDMA.Device = verbstransport.Name, server.ProviderLibibverbs, s.Device
	c.RDMA.Timeout = 200 * time.Millisecond // long, since an emulated processor may be busy
	c.RDMA.Arena = 4 << 20                  // small, since most of a start is registration
	c.PeerTimeout = 10 * time.Minute
	if s.Fallback != "" {
		c.Fallback = s.Fallback
	}
	if s.PeerTimeout != 0 {
		c.PeerTimeout = s.PeerTimeout
	}
	if s.QueueDepth != 0 {
		c.RDMA.QueueDepth = s.QueueDepth
	}
	if s.ArenaLimit != 0 {
		c.RDMA.ArenaLimit, c.RDMA.Arena = s.ArenaLimit, s.ArenaLimit/2
	}
	n.pool = tensor.NewPool(tensor.PoolOptions{})
	o := server.Options{Allocator: n.pool, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	ctx := context.Background()
	var err error
	if s.Dial != "" {
		if n.client, err = server.Dial(ctx, c.ForClient(), s.Dial, o); err != nil {
			return err
		}
		n.reply(reply{})
		return nil
	}
	c.Task = task(s.Task).String()
	spec, err := cluster.NewSpec(map[string]map[int]string{job: s.Cluster})
	if err != nil {
		return err
	}
	c.Cluster = spec.Lists()
	if n.server, err = server.Start(ctx, c, o); err != nil {
		return err
	}
	n.verbs, _ = n.server.Verbs()
	n.reply(reply{Address: n.server.Addr().String()})
	return nil
}

// close closes the node. Its error also reports memory and goroutines that are left.
func (n *node) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var err error
	if n.client != nil {
		err = n.client.Close(ctx)
	} else {
		err = n.server.Close(ctx)
	}
	n.work.Wait()
	if p := n.pool.Stats(); p.InUse != 0 {
		err = errors.Join(err, fmt.Errorf("%d bytes of tensors were never released", p.InUse))
	}
	return errors.Join(err, goleak.Find())
}

func (n *node) do(c command) {
	switch c.Op {
	case opSend:
		n.reply(errorReply(c.ID, n.send(c)))
	case opRecv:
		n.recv(c)
	case opCancel:
		n.mu.Lock()
		cancel := n.cancels[c.Of]
		n.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		n.reply(reply{ID: c.ID})
	case opAbort:
		n.server.AbortStep(c.Step, status.Errorf(status.DataLoss, "%s", c.Name))
		n.reply(reply{ID: c.ID})
	case opEndStep:
		n.server.EndStep(c.Step)
		n.reply(reply{ID: c.ID})
	case opState:
		n.reply(reply{ID: c.ID, State: n.state()})
	case opPublish:
		_, err := n.server.Catalog().Publish(context.Background(), c.Name, c.Path)
		n.reply(errorReply(c.ID, err))
	case opPull:
		n.work.Go(func() { n.reply(errorReply(c.ID, n.pull(c))) })
	default:
		n.reply(errorReply(c.ID, status.Errorf(status.Unimplemented, "%s", c.Op)))
	}
}

// send sends a tensor, which is in registered memory if possible.
func (n *node) send(c command) error {
	var a tensor.Allocator = n.pool
	if v, ok := n.server.Verbs(); ok {
		a = v.SendAllocator()
	}
	shape, err := tensor.NewShape(c.Size)
	if err != nil {
		return err
	}
	t, err := tensor.Allocate(a, tensor.Uint8, shape)
	if err != nil {
		if t, err = tensor.Allocate(n.pool, tensor.Uint8, shape); err != nil {
			return err
		}
	}
	defer t.Release()
	fill(t.Bytes(), c.Seed)
	if c.Key != "" {
		key, err := rendezvous.ParseKey(c.Key)
		if err != nil {
			return err
		}
		return n.server.Rendezvous(c.Step).Send(key, rendezvous.Args{}, t, false)
	}
	return n.server.Send(c.Step, task(c.Peer).String(), c.Name, t, false)
}

// recv receives a tensor and checks every byte. It replies each time that its callback runs, so
// that the test detects a second run.
func (n *node) recv(c command) {
	ctx, cancel := context.WithCancel(context.Background())
	n.mu.Lock()
	n.cancels[c.ID] = cancel
	n.mu.Unlock()
	n.work.Add(1)
	var ended atomic.Int32
	done := func(v rendezvous.Value, err error) {
		if ended.Add(1) == 1 {
			defer n.work.Done()
		}
		defer cancel()
		if err == nil {
			defer v.Tensor.Release()
			switch {
			case c.Key != "":
			case v.Tensor.Size() != c.Size:
				err = status.Errorf(status.Internal, "received %d bytes, want %d", v.Tensor.Size(), c.Size)
			default:
				if wrong := check(v.Tensor.Bytes(), c.Seed); wrong != nil {
					err = status.Errorf(status.Internal, "%s: %w", c.Name, wrong)
				}
			}
		}
		n.reply(errorReply(c.ID, err))
	}
	if c.Key == "" {
		n.server.RecvAsync(ctx, c.Step, task(c.Peer).String(), c.Name, done)
		return
	}
	key, err := rendezvous.ParseKey(c.Key)
	if err != nil {
		done(rendezvous.Value{}, err)
		return
	}
	n.server.Rendezvous(c.Step).RecvAsync(ctx, key, rendezvous.Args{}, func(v rendezvous.Value, _ rendezvous.Args, err error) { done(v, err) })
}

func (n *node) pull(c command) error {
	var req checkpoint.PullRequest
	req.Publication = c.Name
	sum, err := n.client.Puller().Save(context.Background(), req, checkpoint.SaveOptions{Out: c.Path})
	if err == nil && !sum.Verified {
		err = status.New(status.Internal, "the pull was not verified")
	}
	return err
}

func (n *node) state() *state {
	s := &state{Connections: make(map[int]connection), Tensors: make(map[string]int), Bytes: make(map[string]int64)}
	var transfers []transport.Transfer
	if n.client != nil {
		transfers = n.client.Transfers()
	} else {
		transfers = n.server.Transfers()
		s.Kept = n.server.Kept().Kept
		if v := n.verbs; v != nil { // also while it has no device
			for _, l := range v.Connections() {
				k := connection{Verbs: l.Verbs, Handshake: l.State == verbstransport.StateHandshake, Generation: l.Generation, Breaks: l.Stats.Breaks, Lost: l.Stats.Lost, Elsewhere: l.Stats.Fallbacks(), Without: l.Stats.Without}
				if l.Reason != nil {
					k.Reason = l.Reason.Error()
				}
				s.Connections[l.Task.Index] = k
			}
			m := v.Memory()
			s.Sending, s.Receiving, s.Quarantined = m.Sending.InUse, m.Receiving.InUse, m.Quarantined
		}
	}
	for _, t := range transfers {
		if !checkpoint.ContinuesTensor(t.Tensor) {
			s.Tensors[t.Transport]++
		}
		s.Bytes[t.Transport] += t.Bytes
	}
	return s
}
