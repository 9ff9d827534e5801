package bench

import (
	"cmp"
	"context"
	_ "embed" // the program of gloo's processes
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

//go:embed peers/gloo.py
var glooProgram string

// besideGloo sets all-reduces over the route against those of torch.distributed over gloo. Where no
// Python has torch, ours are measured alone.
func (s *suite) besideGloo(ctx context.Context) error {
	if why := s.missingRoute(); why != "" {
		s.say("left out: %s", why)
		return nil
	}
	ours, ctx, err := s.startReducers(ctx)
	if err != nil {
		return err
	}
	defer ours.close()
	if _, err := ours.side(reduceBytes(0))(ctx, time.Millisecond); err != nil { // they connect
		return err
	}
	g, glooCtx, err := s.startGloo(ctx)
	if err != nil {
		return s.withoutGloo(ctx, ours, err)
	}
	defer g.close()
	if _, err := g.side(reduceBytes(0))(glooCtx, time.Millisecond); err != nil {
		g.close() // its processes may be running
		return s.withoutGloo(ctx, ours, err)
	}
	s.say("%s", g.how())
	for _, size := range s.Sizes {
		size = reduceBytes(size)
		s.say("%s at each of %d members, beside %s", config.FormatSize(size), reducers, Gloo)
		c := s.contest()
		c.lower = true
		o, own, err := c.compare(glooCtx, ours.side(size), g.side(size))
		if err != nil {
			return err
		}
		s.addPair(&o, &own, Gloo, Lower, 0, func(r *Row) { s.reduced(r, size) })
	}
	return nil
}

// reduceBytes is how many bytes of float32 stand for a size.
func reduceBytes(size int64) int64 { return max(size/4, 1) * 4 }

// withoutGloo measures ours alone, and says why.
func (s *suite) withoutGloo(ctx context.Context, ours members, why error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	pip := filepath.Join(cmp.Or(s.Peers, "build/peers"), "bin", "pip")
	s.say("%s is left out: %s; it needs a Python that has torch: %s install torch, or --torch-python PATH", Gloo, status.From(why).Message(), pip)
	for _, size := range s.Sizes {
		size = reduceBytes(size)
		s.say("%s at each of %d members", config.FormatSize(size), reducers)
		o, err := s.contest().measure(ctx, ours.side(size))
		if err != nil {
			return err
		}
		r := rowOf(s.now.name, &o)
		r.Transport = s.now.transport
		s.reduced(&r, size)
		s.add(r)
	}
	return nil
}

// reduced says what a row of all-reduces is about. It has no bandwidth: its figure is the median of
// a round.
func (s *suite) reduced(r *Row, size int64) {
	r.Inflight, r.Size = 1, size
	s.over(r)
}

// gloo is the members of an all-reduce of torch.distributed.
type gloo struct {
	members
	dir string // of the file by which they find each other
}

func (s *suite) startGloo(ctx context.Context) (_ *gloo, _ context.Context, err error) {
	python := s.TorchPython
	if python == "" && s.Peers == "" {
		return nil, nil, status.New(status.NotFound, "no Python is named")
	}
	python = cmp.Or(python, filepath.Join(s.Peers, "bin", "python"))
	g := new(gloo)
	if g.dir, err = os.MkdirTemp("", "tryst-bench-"); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	command := func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, python, "-c", glooProgram) //nolint:gosec // one of ours
	}
	of := func(rank int) setup {
		return setup{Reduce: &memberSetup{Rank: rank, Members: reducers, Store: filepath.Join(g.dir, "store")}}
	}
	if g.members, ctx, err = startMembers(ctx, command, reducers, of); err != nil {
		return nil, nil, status.From(err).WithPrefix(python)
	}
	if g.members[0].Bare == nil {
		return nil, nil, status.Errorf(status.Internal, "%s does not say which version it has", python)
	}
	return g, ctx, g.signal(syscall.SIGSTOP)
}

func (g *gloo) how() string {
	return g.members[0].Bare.Version + ": torch.distributed.all_reduce in place, of float32, over the loopback interface"
}

// side lets the processes run for one run only.
func (g *gloo) side(size int64) side { return stopped(g.members.side(size), g.signal) }

func (g *gloo) signal(s syscall.Signal) error { return signalTo(Gloo, s, g.members...) }

func (g *gloo) close() {
	_ = g.signal(syscall.SIGCONT) // a stopped process does not see the end of its input
	g.members.close()
	_ = os.RemoveAll(g.dir)
}
