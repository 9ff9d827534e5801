package bench

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// routeFlags are the flags with which tryst serve and tryst pull use a route, and no other.
func routeFlags(route string) []string {
	if route == grpctransport.Name {
		return []string{"--transport", grpctransport.Name}
	}
	return []string{"--transport", verbstransport.Name, "--provider", route, "--fallback", "none"}
}

// service is a process that serves the checkpoint.
type service struct {
	cmd     *exec.Cmd
	address string // HOST:PORT
	stderr  *tail
	ended   chan struct{} // closed when its output has ended
}

// startServe starts tryst serve, and returns when it has published the checkpoint.
func (j *job) startServe(ctx context.Context, route string) (*service, error) {
	file := filepath.Join(j.Dir, "address")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Errorf(status.Unavailable, "cannot remove an old file: %w", err)
	}
	args := append([]string{"serve", "--publish", j.Model + "=" + j.model, "--listen", "127.0.0.1:0", "--address-file", file, "--log-level", "warn"}, routeFlags(route)...)
	s, out, err := start(ctx, j.Tryst, args...)
	if err != nil {
		return nil, err
	}
	go s.drain(out)
	tick := time.NewTicker(serveTick)
	defer tick.Stop()
	for {
		select {
		case <-s.ended:
			s.stop()
			return nil, status.Errorf(status.Unavailable, "tryst serve ended: %s", s.stderr)
		case <-ctx.Done():
			s.stop()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
		if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
			s.address = strings.TrimSpace(string(b))
			return s, nil
		}
	}
}

// webAddress is where Python's http.server says that it listens.
var webAddress = regexp.MustCompile(`port (\d+)`)

// startWeb starts Python's http.server on the directory.
func (j *job) startWeb(ctx context.Context) (*service, error) {
	s, out, err := start(ctx, "python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", j.Dir)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	port := webAddress.FindStringSubmatch(first)
	go s.drain(lines)
	if port == nil {
		s.stop()
		return nil, status.Errorf(status.Unavailable, "Python's http.server says %q (%v): %s", first, err, s.stderr)
	}
	s.address = net.JoinHostPort("127.0.0.1", port[1])
	return s, nil
}

// start starts a process whose output the caller drains.
func start(ctx context.Context, name string, args ...string) (*service, io.Reader, error) {
	s := &service{cmd: exec.CommandContext(context.WithoutCancel(ctx), name, args...), stderr: new(tail), ended: make(chan struct{})}
	s.cmd.Stderr = s.stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, nil, status.Errorf(status.Unavailable, "cannot start %s: %w", name, err)
	}
	return s, out, nil
}

// drain reads the output to its end.
func (s *service) drain(out io.Reader) {
	_, _ = io.Copy(io.Discard, out)
	close(s.ended)
}

// stop ends the process, by force after stopWait.
func (s *service) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(stopWait, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	<-s.ended
	_ = s.cmd.Wait() // http.server ends by the signal
}

// pull pulls the checkpoint into a file.
func (j *job) pull(ctx context.Context, s *service, route string) (sample, error) {
	return j.copied(ctx, s, func(out string) (string, []string) {
		return j.Tryst, append([]string{"pull", "--from", s.address, "--out", out, "--force"}, routeFlags(route)...)
	})
}

// curl gets the checkpoint from a web server into a file.
func (j *job) curl(ctx context.Context, web *service) (sample, error) {
	return j.copied(ctx, web, func(out string) (string, []string) {
		return "curl", []string{"--silent", "--fail", "--output", out, "http://" + web.address + "/" + filepath.Base(j.model)}
	})
}

// copied runs a command that copies the checkpoint from a service to a file.
func (j *job) copied(ctx context.Context, s *service, command func(out string) (string, []string)) (sample, error) {
	var own time.Duration
	got, err := j.timed(s, func(out string) (err error) {
		name, args := command(out)
		own, err = j.command(ctx, name, args...)
		return err
	})
	if got.cpu > 0 {
		got.cpu += own
	}
	return got, err
}

// timed measures a copy to a file, and the processor time of a service meanwhile, if there is one and
// the system says it. It checks the size of the copy and removes it, so that no run writes to the disk
// what an earlier one has left in the cache.
func (j *job) timed(s *service, do func(out string) error) (got sample, err error) {
	out := filepath.Join(j.Dir, "copy.safetensors")
	defer func() { _ = os.Remove(out) }() // one that is left is replaced by the next run
	var before time.Duration
	if s != nil {
		before, _ = processTime(s.cmd.Process.Pid)
	}
	begin := time.Now()
	if err := do(out); err != nil {
		return sample{}, err
	}
	got.time = time.Since(begin)
	if s != nil {
		if after, known := processTime(s.cmd.Process.Pid); known {
			got.cpu = after - before
		}
	}
	switch info, err := os.Stat(out); {
	case err != nil:
		return sample{}, status.Errorf(status.Internal, "there is no copy: %w", err)
	case info.Size() != j.size:
		return sample{}, status.Errorf(status.Internal, "the copy has %d bytes, the checkpoint %d", info.Size(), j.size)
	}
	return got, nil
}

// command runs a command to its end and returns its processor time.
func (j *job) command(ctx context.Context, name string, args ...string) (time.Duration, error) {
	c := exec.CommandContext(ctx, name, args...)
	var said tail
	c.Stderr = &said
	if err := c.Run(); err != nil {
		return 0, status.Errorf(status.Unavailable, "%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, &said)
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
}
