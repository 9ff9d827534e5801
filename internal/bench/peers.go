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

// foreign is such a program, ready to run over one transport of UCX.
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
		for _, r := range []*route{routeShm, routeTCP} {
			all = append(all, benchmark{
				name: peerPrefix + program + "-" + r.name, transport: verbstransport.Name, group: peersFile, route: r,
				takes: func(s *suite) time.Duration {
					return time.Duration(len(s.pollsOf(benchmark{route: r}))) * (perReceive(1)(s) + contests(2)(s))
				},
				run: func(s *suite, ctx context.Context) error { return s.besideForeign(ctx, program) },
			})
		}
	}
	for _, r := range []*route{routeShm, routeTCP} {
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

// besideForeign sets the calls of a program against those of another one. It is left out, with the
// reason, where it does not run.
func (s *suite) besideForeign(ctx context.Context, program string) error {
	if why := s.missingRoute(); why != "" {
		s.say("left out: %s", why)
		return nil
	}
	f, ctx, err := s.foreignOf(ctx, program)
	if f == nil {
		return err
	}
	defer f.close()
	s.say("%s", f.how())
	for _, poll := range s.pollsOf(s.now) {
		err := s.withSteps(ctx, poll, func(ctx context.Context, ours func(stepRun) side) error {
			return s.eachBesideForeign(ctx, poll, ours, f, program)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// foreignOf starts the program and lets it run once. It is nil where it does not run.
func (s *suite) foreignOf(ctx context.Context, program string) (foreign, context.Context, error) {
	f, within, err := s.startForeign(ctx, program, append([]int64{smallSize}, s.Sizes...))
	if err != nil {
		return nil, nil, s.withoutForeign(ctx, err)
	}
	if _, err := f.side(smallSize, 1, true)(within, time.Millisecond); err != nil {
		f.close()
		return nil, nil, s.withoutForeign(ctx, err)
	}
	return f, within, nil
}

func (s *suite) withoutForeign(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.say("left out: %s", status.From(err).Message())
	return nil
}

// eachBesideForeign compares receives and requests of a small value with its way there and back, and
// receives of each size with as many of its transfers at once.
func (s *suite) eachBesideForeign(ctx context.Context, poll string, ours func(stepRun) side, f foreign, program string) error {
	for _, call := range []struct{ name, suffix string }{{callRecvInto, ""}, {callReply, "-reply"}} {
		r := stepRun{Call: call.name, Size: smallSize, Inflight: 1, Median: true}
		if err := s.compareStep(ctx, stepName(s.now.name+call.suffix, poll, 0), r, ours(r), f.side(r.Size, 1, true), program, Lower); err != nil {
			return err
		}
	}
	for _, size := range s.Sizes {
		for _, inflight := range s.Inflight {
			r := stepRun{Call: callRecvInto, Size: size, Inflight: inflight}
			if size == smallSize {
				continue
			}
			if err := s.compareStep(ctx, stepName(s.now.name, poll, 0), r, ours(r), f.side(size, inflight, false), program, Higher); err != nil {
				return err
			}
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
