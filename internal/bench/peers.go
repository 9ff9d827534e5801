package bench

import (
	"context"
	_ "embed" // the program of NIXL's two processes
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Programs that others wrote for the same: what make bench-peers measures beside ours. They
// come from Python packages in Options.Peers, a virtual environment.
const (
	UCXTag   = "ucx"  // ucx_perftest: tag_bw, and tag_lat there and back
	NIXLRead = "nixl" // reads by NIXL, by peers/nixl.py
	Gloo     = "gloo" // all-reduces by torch.distributed, by peers/gloo.py
)

// peersFile is where the rows of these benchmarks are saved. The names of those that cannot run
// without Options.Peers begin with peerPrefix.
const (
	peersFile  = "peers"
	peerPrefix = "peer-"
)

//go:embed peers/nixl.py
var nixlProgram string

// foreign is such a program, ready to run over one kind of transport of UCX.
type foreign interface {
	// how says which version it is and how it is run.
	how() string
	// side runs it once: so many operations at once, or with a count of 1 one after the
	// other, whose median counts.
	side(size int64, inflight int, median bool) side
	close()
}

// ofPeers lists the benchmarks beside programs of others.
func ofPeers() (all []benchmark) {
	for _, program := range []string{UCXTag, NIXLRead} {
		for _, r := range []*route{overShm, overTCP} {
			all = append(all, benchmark{
				name: peerPrefix + program + "-" + r.name, transport: verbstransport.Name, group: peersFile, route: r,
				takes: func(s *suite) time.Duration { return perReceive(1)(s) + contests(1)(s) },
				run:   func(s *suite, ctx context.Context) error { return s.besideForeign(ctx, program) },
			})
		}
	}
	for _, r := range []*route{overShm, overTCP} {
		all = append(all, benchmark{
			name: "allreduce-" + r.name, transport: verbstransport.Name, group: peersFile, route: r,
			takes: func(s *suite) time.Duration { return membersTime + contests(len(s.Sizes))(s) },
			run:   (*suite).besideGloo,
		})
	}
	return all
}

// startForeign starts a program of Options.Peers over the current route.
func (s *suite) startForeign(ctx context.Context, program string, sizes []int64) (foreign, context.Context, error) {
	if program == UCXTag {
		u, err := findUCX(s.Peers, s.now.route.name)
		return u, ctx, err
	}
	return s.startNIXL(ctx, sizes)
}

// besideForeign sets receives against the program. It is left out, with the reason, where it
// does not run.
func (s *suite) besideForeign(ctx context.Context, program string) error {
	sizes := append([]int64{smallSize}, s.Sizes...)
	return s.withRoute(ctx, sizes, func(ctx context.Context, p *session, targets []target) error {
		f, foreignCtx, err := s.startForeign(ctx, program, sizes)
		if err != nil {
			return s.withoutForeign(ctx, err)
		}
		defer f.close()
		if _, err := f.side(smallSize, 1, true)(foreignCtx, time.Millisecond); err != nil {
			return s.withoutForeign(ctx, err)
		}
		s.say("%s", f.how())
		return s.eachBesideForeign(foreignCtx, p, targets, f, program)
	})
}

func (s *suite) withoutForeign(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.say("left out: %s", status.From(err).Message())
	return nil
}

func (s *suite) eachBesideForeign(ctx context.Context, p *session, targets []target, f foreign, program string) error {
	for _, t := range targets {
		if t.size != smallSize {
			continue
		}
		s.say("%s, beside %s", config.FormatSize(t.size), program)
		o, own, err := s.contest().compare(ctx, p.ours.callback(t), f.side(t.size, 1, true))
		if err != nil {
			return err
		}
		s.addSmall(&o, &own, program, 0)
	}
	for _, t := range targets {
		if t.size == smallSize {
			continue
		}
		for _, inflight := range s.Inflight {
			s.say("%s, %d in flight, beside %s", config.FormatSize(t.size), inflight, program)
			o, own, err := s.contest().compare(ctx, load(inflight, 1, p.ours.receive(t, inflight)), f.side(t.size, inflight, false))
			if err != nil {
				return err
			}
			s.addPair(&o, &own, program, Higher, 0, func(r *Row) {
				r.Inflight = inflight
				r.moved(t.size)
				s.over(r)
			})
		}
	}
	return nil
}

// nixl is a pair of processes of NIXL, which speak as those of the bare baselines.
type nixl struct {
	*bare
	version, transport string
}

func (s *suite) startNIXL(ctx context.Context, sizes []int64) (foreign, context.Context, error) {
	n := &nixl{transport: s.now.route.name}
	python := filepath.Join(s.Peers, "bin", "python")
	command := func(ctx context.Context) *exec.Cmd {
		c := exec.CommandContext(ctx, python, "-c", nixlProgram) //nolint:gosec // one of ours
		c.Env = append(c.Environ(), "UCX_TLS="+n.transport, "NIXL_LOG_LEVEL=ERROR")
		return c
	}
	var err error
	if n.bare, ctx, err = startBareBy(ctx, sizes, command); err != nil {
		return nil, nil, err
	}
	n.version = n.server.Bare.Version
	return n, ctx, n.signal(syscall.SIGSTOP)
}

func (n *nixl) how() string {
	return n.version + ": reads of a registered buffer, UCX_TLS=" + n.transport
}

// side lets the processes run for one run only: their threads poll busily also when nothing
// moves.
func (n *nixl) side(size int64, inflight int, median bool) side {
	return stopped(n.bare.side(bareRun{Baseline: NIXLRead, Inflight: inflight, Size: size, Median: median}), n.signal)
}

func (n *nixl) signal(s syscall.Signal) error { return signalTo(NIXLRead, s, n.server, n.receiver) }

func (n *nixl) close() {
	_ = n.signal(syscall.SIGCONT) // a stopped process does not see the end of its input
	n.bare.close()
}

// stopped returns do with its processes stopped between the runs, so that they take no processors
// from the other side. signal sends them a signal.
func stopped(do side, signal func(syscall.Signal) error) side {
	return func(ctx context.Context, d time.Duration) (r run, err error) {
		if err := signal(syscall.SIGCONT); err != nil {
			return r, err
		}
		if r, err = do(ctx, d); err != nil {
			return r, err // close ends them
		}
		return r, signal(syscall.SIGSTOP)
	}
}

// signalTo sends a signal to the processes of a program.
func signalTo(program string, s syscall.Signal, processes ...*child) (err error) {
	for _, c := range processes {
		if e := c.cmd.Process.Signal(s); e != nil && !errors.Is(e, os.ErrProcessDone) { // ended says why it has ended
			err = errors.Join(err, status.Errorf(status.Unavailable, "%s: %v: %w", program, s, e))
		}
	}
	return err
}
