//go:build linux

package storm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// member is a process, seen from the test.
type member struct {
	task, life int
	cmd        *exec.Cmd
	in         io.WriteCloser
	up         chan struct{} // closed when it has said that it is up
	exited     chan struct{} // closed when it has exited
	closed     chan answer   // its answer to opClose
	idle       chan answer   // its answer to opIdle, opStill or opSettle

	// guarded by the storm's mutex
	view   map[int]string // the last cluster that it was told
	isUp   bool
	leaves bool // it was killed or asked to stop
}

// upTime bounds the start of a process on a busy machine.
const upTime = time.Minute

// start starts the next process of a task. The caller waits for up.
func (s *storm) start(task int) (*member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives[task]++
	m := &member{task: task, life: s.lives[task], up: make(chan struct{}), exited: make(chan struct{}), closed: make(chan answer, 1), idle: make(chan answer, 1)}
	if task < tasks {
		m.view = s.viewLocked(task)
	}
	set := settings{
		Seed: s.seed, Task: task, Life: m.life, Dir: s.dir, Provider: s.world.provider(s.seed, task, m.life, s.faults), Fallback: s.fallback,
		Cluster: s.cluster, View: m.view, Model: s.model, Storm: s.faults, Churn: s.churn, Plant: s.plant,
	}
	if s.fallback == "grpc" && !s.world.same && m.life > firstLife && mix(s.seed, uint64(task), uint64(m.life))%7 == 0 { //nolint:gosec // only hashed
		set.Provider = "" // a life without verbs among others
	}
	text, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m.cmd = exec.Command(self)
	m.cmd.Env = append(os.Environ(), asNode+"="+string(text), "GOMAXPROCS=2", "GOMEMLIMIT=300MiB")
	// A group of its own: the terminal's Ctrl-C reaches the test alone, and when that goes away the
	// kernel wakes and ends a stopped process of an orphaned group.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	errors, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%s-%02d-%04d.log", logOf(task), task, m.life)))
	if err != nil {
		return nil, err
	}
	defer errors.Close()
	m.cmd.Stderr = errors
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	s.members[task] = m
	s.work.Go(func() { s.listen(m, out) })
	return m, nil
}

// listen reads the answers of a process until it has exited.
func (s *storm) listen(m *member, out io.Reader) {
	in := json.NewDecoder(out)
	for {
		var a answer
		if err := in.Decode(&a); err != nil {
			break
		}
		switch a.Op {
		case opUp:
			s.isUp(m, a.Address)
		case opStep:
			s.isDone(m, a.Step)
		case opIdle, opStill, opSettle:
			m.idle <- a
		case opClose:
			m.closed <- a
			m.in.Close() // it exits now
		}
	}
	err := m.cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	m.isUp = false
	if m.task < tasks {
		s.targets[m.task] = "" // the port may soon be another process's
		s.targetLocked(m.task)
	}
	s.log.write(record{Kind: kindGone, Task: m.task, Life: m.life})
	if !m.leaves {
		s.failLocked("task %d life %d has exited by itself: %v; its log ends with\n%s", m.task, m.life, err, s.tail(m))
	}
	close(m.exited)
}

// tail returns the end of what a process has written to stderr.
func (s *storm) tail(m *member) string {
	b, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("%s-%02d-%04d.log", logOf(m.task), m.task, m.life)))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// tellLocked sends a command. A process has few commands before it that it has not read, since
// few steps are open, so the pipe is never full, not even when it is stopped.
func (s *storm) tellLocked(m *member, c command) {
	if b, err := json.Marshal(c); err == nil {
		_, _ = m.in.Write(append(b, '\n')) // an error if it has exited
	}
}

// leaveLocked notes that a process will be killed or asked to stop.
func (s *storm) leaveLocked(m *member) {
	m.leaves, m.isUp = true, false
	s.log.write(record{Kind: kindDown, Task: m.task, Life: m.life})
	s.dead(m.task)
}

// kill kills the process of a task and waits until it has exited.
func (s *storm) kill(task int) {
	s.mu.Lock()
	m := s.members[task]
	s.leaveLocked(m)
	if task < tasks {
		s.targets[task] = ""
		s.targetLocked(task)
	}
	_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
	s.mu.Unlock()
	<-m.exited
}

// stop asks the process of a task to stop and waits until it has exited. final means that there
// are no faults any more.
func (s *storm) stop(task int, final bool) {
	s.mu.Lock()
	m := s.members[task]
	s.leaveLocked(m)
	s.tellLocked(m, command{Op: opClose})
	s.mu.Unlock()
	select {
	case <-m.exited:
	case <-time.After(closeTime + upTime):
		s.fail("task %d life %d did not stop within %v; its log ends with\n%s", task, m.life, closeTime+upTime, s.tail(m))
		_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
		<-m.exited
		return
	}
	select {
	case a := <-m.closed:
		if strings.Contains(a.Error, leftBehind) {
			s.log.write(record{Kind: kindMem, Task: m.task, Life: m.life, Text: a.Error})
		}
		if a.Error != "" && (final || strings.Contains(a.Error, leftBehind)) {
			s.fail("task %d life %d: stop: %s", task, m.life, a.Error)
		}
	default:
		s.fail("task %d life %d has exited without an answer: %v; its log ends with\n%s", task, m.life, m.cmd.ProcessState, s.tail(m))
	}
}

// restart starts the process of a task and waits until it is up.
func (s *storm) restart(task int) {
	m, err := s.start(task)
	if err != nil {
		s.fail("start task %d: %v", task, err)
		return
	}
	select {
	case <-m.up:
	case <-m.exited: // a failure is noted
	case <-time.After(upTime):
		s.fail("task %d life %d was not up within %v", task, m.life, upTime)
	}
}

// untilIdle waits until no task holds anything for its peers.
func (s *storm) untilIdle() { s.ask(command{Op: opIdle}, s.tasksUp()) }
