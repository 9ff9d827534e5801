package bench

import (
	"context"
	"errors"
	"runtime"
)

// pin keeps a second process on a processor of its own (Options.Pin).
type pin struct {
	CPU   int `json:"cpu"`
	Procs int `json:"procs"` // what its GOMAXPROCS is, in place of one
}

// pinned runs what compares two processes with two others, each on a processor of its
// own if that was asked for.
func (s *suite) pinned(ctx context.Context, run func(*suite, context.Context) error) (err error) {
	if !s.Pin {
		return run(s, ctx)
	}
	cpus, err := twoProcessors()
	if err != nil {
		return err
	}
	procs := runtime.GOMAXPROCS(0)
	release, err := pinProcess(cpus[0])
	if err != nil {
		return err
	}
	s.second = &pin{CPU: cpus[1], Procs: procs}
	defer func() {
		s.second = nil
		err = errors.Join(err, release())
	}()
	return run(s, ctx)
}

// apply is done by the second process, before anything looks at GOMAXPROCS.
func (p *pin) apply() error {
	if p == nil {
		return nil
	}
	keepProcs(p.Procs)
	_, err := pinProcess(p.CPU) // until its end
	return err
}
