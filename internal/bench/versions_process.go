package bench

import (
	"context"
	"os/exec"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
)

// A benchmark of versions has a publisher, which is a trainer with two sets of memory, and watchers, each
// a process of its own:
//
//	bench ── setup{versions: {bytes, tensors}} ──► publisher
//	bench ── setup{versions: {from}} ────────────► watchers
//	bench ── command{versions: {update}} ────────► publisher ── a version ──► watchers
//	bench ── command{versions: {await: number}} ─► watchers: when and how it came
//
// Times are those of the system's clock, which the processes of a host share.

// versionsName is the publication that watchers follow, and onceName the one that is published and pulled for
// the comparison with it.
const (
	versionsName = "policy"
	onceName     = "once"
)

// versionsSetup is how a process takes part.
type versionsSetup struct {
	Route string `json:"route"`
	// Whole switches deltas off.
	Whole bool `json:"whole,omitempty"`
	// Bytes and Tensors are the model of a publisher.
	Bytes   int64 `json:"bytes,omitempty"`
	Tensors int   `json:"tensors,omitempty"`
	// From makes the process a watcher of the publisher at this address.
	From string `json:"from,omitempty"`
}

// config returns the settings of the process.
func (s *versionsSetup) config() tryst.Config {
	c := tryst.Config{}
	c.RDMA.ArenaLimit = versionsArena
	for _, r := range []*route{routeShm, routeTCP, routeRoCE} {
		if r.name == s.Route {
			r.apply(&c, r.provider)
			return c
		}
	}
	routeGRPC.apply(&c, "")
	return c
}

// versionsCommand is one thing to do.
type versionsCommand struct {
	// Of a publisher. Change makes the next version, and Update publishes it. Publish publishes the same memory under
	// another name, and Unpublish ends that. Withdraw
	// ends the publication of the versions, and waits for its memory. Compress tells what compressors make of the XOR.
	Change    *change `json:"change,omitempty"`
	Update    bool    `json:"update,omitempty"`
	Publish   bool    `json:"publish,omitempty"`
	Unpublish bool    `json:"unpublish,omitempty"`
	Withdraw  bool    `json:"withdraw,omitempty"`
	Compress  bool    `json:"compress,omitempty"`
	// Of a watcher. Await waits for a version, Pull pulls what Publish has published, and Hold begins a pull of the current
	// version, and is over when its first tensor has come.
	Await uint64 `json:"await,omitempty"`
	Pull  bool   `json:"pull,omitempty"`
	Hold  bool   `json:"hold,omitempty"`
	// Of both. Watch follows the memory of the process from now on, and Peak tells the most of it.
	Watch bool `json:"watch,omitempty"`
	Peak  bool `json:"peak,omitempty"`
}

// versionsState is what came of it.
type versionsState struct {
	Number uint64 `json:"number,omitempty"` // of the version
	// Begin is when Update or Publish was called, and End when that or a pull was over, in ns since 1970.
	Begin int64 `json:"begin,omitempty"`
	End   int64 `json:"end,omitempty"`
	Bytes int64 `json:"bytes,omitempty"` // that were carried
	// Waited is how long a Change or a Withdraw has waited for memory.
	Waited time.Duration `json:"waited,omitempty"`
	// Compressed is the length of the XOR of both versions by compressor.
	Compressed map[string]int64 `json:"compressed,omitempty"`
	Peak       int64            `json:"peak,omitempty"` // of the memory of the process, in bytes
}

// versionsSecond is a publisher or a watcher in its process.
type versionsSecond interface {
	do(ctx context.Context, c versionsCommand) (versionsState, error)
	address() string // of a publisher
	close() error
}

// versionsProcess is one of the two with what both have.
type versionsProcess struct {
	versionsSecond
	memory *memoryWatch // nil while it is not followed
}

func startVersions(ctx context.Context, s versionsSetup) (*versionsProcess, error) {
	var (
		p   versionsSecond
		err error
	)
	if s.From == "" {
		p, err = startPublisher(ctx, s)
	} else {
		p, err = startWatcher(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	return &versionsProcess{versionsSecond: p}, nil
}

func (p *versionsProcess) hello() hello { return hello{Server: p.address()} }

func (p *versionsProcess) obey(c command) state {
	if c.Versions == nil {
		return state{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	got, err := p.take(ctx, *c.Versions)
	s := state{Versions: &got}
	if err != nil {
		s.Error = status.From(err).Message()
	}
	return s
}

func (p *versionsProcess) take(ctx context.Context, c versionsCommand) (versionsState, error) {
	switch {
	case c.Watch:
		_, _ = p.stopMemory() // of the watch before
		p.memory = watchMemory()
		return versionsState{}, nil
	case c.Peak:
		peak, err := p.stopMemory()
		return versionsState{Peak: peak}, err
	}
	return p.do(ctx, c)
}

func (p *versionsProcess) stopMemory() (peak int64, err error) {
	if p.memory == nil {
		return 0, nil
	}
	peak, err = p.memory.stop()
	p.memory = nil
	return peak, err
}

func (p *versionsProcess) close() error {
	_, _ = p.stopMemory()
	return p.versionsSecond.close()
}

// versionsChild is the first process's handle of one of them.
type versionsChild struct{ *child }

func startVersionsChild(ctx context.Context, command func(context.Context) *exec.Cmd, s versionsSetup) (versionsChild, context.Context, error) {
	c, ctx, err := startChild(ctx, command, setup{Versions: &s})
	return versionsChild{c}, ctx, err
}

// tell sends the process one command, and waits for its answer.
func (c versionsChild) tell(ctx context.Context, v versionsCommand) (versionsState, error) {
	s, err := c.obey(ctx, command{Versions: &v})
	if err != nil {
		return versionsState{}, err
	}
	if s.Versions == nil {
		return versionsState{}, status.New(status.Internal, "the second process has not answered what it was asked")
	}
	return *s.Versions, nil
}

// signal stops the process, or lets it go on.
func (c versionsChild) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil {
		return status.Errorf(status.Unavailable, "cannot send %v to the second process: %w", s, err)
	}
	return nil
}

// kill ends a process that may be stopped.
func (c versionsChild) kill() {
	_ = c.cmd.Process.Kill()
	c.close()
}
