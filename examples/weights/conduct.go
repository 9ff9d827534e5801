package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	// killAfter is how many versions the rollout that is killed has had by then; fewer if it has the last one.
	killAfter = 3
	// slowness is for how many versions of the trainer the slow rollout works with one.
	slowness = 3
	// killed is the name of the rollout that is killed.
	killed = "killed"
)

// show is one run of all processes.
type show struct {
	options
	out     io.Writer
	lines   chan line // of all processes
	all     []*process
	trainer *process
	victim  *process // the rollout that is killed
	back    bool     // it was started again, and has a version
	table   *table
}

// conduct starts the trainer and the rollouts, kills one of them and starts it again, and ends all when
// each has the last version.
func conduct(ctx context.Context, out io.Writer, o options) (err error) {
	if o.updates < killAfter {
		return fmt.Errorf("%d updates: at least %d are needed", o.updates, killAfter)
	}
	s := &show{options: o, out: out, lines: make(chan line), table: newTable("fast", "slow", killed)}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, s.end())
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	for !s.back || !s.table.all(uint64(o.updates)) {
		select {
		case l := <-s.lines:
			if err := s.take(ctx, l); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
	fmt.Fprintln(out)
	return s.table.write(out)
}

// start starts the trainer, and the rollouts when it listens.
func (s *show) start(ctx context.Context) (err error) {
	s.trainer, err = s.run(ctx, "trainer", "--updates", fmt.Sprint(s.updates), "--every", s.every.String())
	if err != nil {
		return err
	}
	first := <-s.lines
	if first.err != nil {
		return first.err
	}
	s.address = strings.TrimSpace(first.text)
	if _, err := s.rollout(ctx, "fast", 0); err != nil {
		return err
	}
	if _, err := s.rollout(ctx, "slow", slowness*s.every); err != nil {
		return err
	}
	s.victim, err = s.rollout(ctx, killed, 0)
	return err
}

func (s *show) rollout(ctx context.Context, name string, work time.Duration) (*process, error) {
	return s.run(ctx, "rollout", "--from", s.address, "--name", name, "--work", work.String())
}

// run starts one process.
func (s *show) run(ctx context.Context, role string, args ...string) (*process, error) {
	p, err := startProcess(ctx, s.lines, append([]string{role, "--route", s.route}, args...)...)
	if err == nil {
		s.all = append(s.all, p)
	}
	return p, err
}

// end ends the processes, the trainer last.
func (s *show) end() (err error) {
	for _, p := range slices.Backward(s.all) {
		if failed := p.end(); failed != nil && !p.killed {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// take takes a line of a process, or its end.
func (s *show) take(ctx context.Context, l line) (err error) {
	switch {
	case l.err != nil && l.from.killed:
		fmt.Fprintln(s.out, "killed    is started again")
		_, err = s.rollout(ctx, killed, 0)
		return err
	case l.err != nil:
		return l.err
	case l.from == s.trainer:
		fmt.Fprint(s.out, "trainer   ", l.text)
		return nil
	}
	var v seen
	if err := json.Unmarshal([]byte(l.text), &v); err != nil {
		return fmt.Errorf("a rollout wrote %q: %w", l.text, err)
	}
	fmt.Fprintf(s.out, "%-8s  version %d after %s: %s over %s\n", v.Rollout, v.Number, milliseconds(v.Lag), megabytes(v.Bytes), v.Route)
	s.table.add(v)
	switch {
	case l.from != s.victim:
		s.back = s.back || v.Rollout == killed
	case s.victim.killed: // it wrote this before
	case s.table.versions(killed) >= killAfter || v.Number == uint64(s.updates):
		return s.victim.kill()
	}
	return nil
}
