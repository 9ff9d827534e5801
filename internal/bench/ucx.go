package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// ucx is ucx_perftest of the Python package libucx-cu12. Each run is a server and a client of it.
type ucx struct {
	program, libraries, version string
	transport                   string // UCX_TLS
}

// findUCX finds the program in a virtual environment.
func findUCX(dir, transport string) (*ucx, error) {
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python*", "site-packages", "libucx", "bin", "ucx_perftest"))
	if err != nil || len(found) == 0 {
		return nil, status.Errorf(status.NotFound, "there is no ucx_perftest in %s: make bench-peers installs it", dir)
	}
	top := filepath.Dir(filepath.Dir(found[0]))
	version, err := os.ReadFile(filepath.Join(top, "UCX_WHEEL_VERSION.txt"))
	if err != nil {
		return nil, status.Errorf(status.NotFound, "the version of UCX: %w", err)
	}
	return &ucx{program: found[0], libraries: filepath.Join(top, "lib"), version: strings.TrimSpace(string(version)), transport: transport}, nil
}

func (u *ucx) how() string {
	return fmt.Sprintf("UCX %s: ucx_perftest -t tag_bw -O IN_FLIGHT, and -t tag_lat times two, UCX_TLS=%s", u.version, u.transport)
}

func (u *ucx) close() {}

// The numbers of one run. Its warm-up includes the rendezvous of each buffer.
const (
	minUCX     = 20
	maxUCX     = 1_000_000
	warmUpPart = 10 // of the operations
)

// side implements foreign. The number of operations follows from the rate of the run before.
func (u *ucx) side(size int64, inflight int, median bool) side {
	var rate float64
	test := []string{"-t", "tag_bw", "-O", strconv.Itoa(inflight)}
	if median {
		test = []string{"-t", "tag_lat"}
	}
	return func(ctx context.Context, d time.Duration) (r run, err error) {
		n := min(max(int(rate*d.Seconds()), minUCX), maxUCX)
		args := append([]string{
			"-s", strconv.FormatInt(size, 10), "-n", strconv.Itoa(n), "-w", strconv.Itoa(max(n/warmUpPart, 1)), "-f", "-v",
		}, test...)
		out, err := u.execute(ctx, d, args)
		if err != nil {
			return r, status.Errorf(status.Unavailable, "ucx_perftest over %s, %s: %w", u.transport, config.FormatSize(size), err)
		}
		heading := "overall_lat"
		if median {
			heading = "50.0_percentile_lat"
		}
		us, err := ucxColumn(out, heading)
		if err != nil {
			return r, err
		}
		each := us / 1e6
		if median {
			each *= 2 // it prints half of the time there and back
			r.latencies.add(time.Duration(each*float64(time.Second)), int64(n))
		}
		r.count, r.score, r.counted = int64(n), 1/each, true
		r.time = time.Duration(float64(n) * each * float64(time.Second))
		rate = r.score
		return r, nil
	}
}

// ucxColumn reads a number from the two lines that ucx_perftest -f -v prints.
func ucxColumn(out []byte, heading string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, line := range lines[:len(lines)-1] {
		names, values := strings.Split(line, ","), strings.Split(lines[i+1], ",")
		for j, name := range names {
			if name != heading || j >= len(values) {
				continue
			}
			if v, err := strconv.ParseFloat(values[j], 64); err == nil && v > 0 {
				return v, nil
			}
		}
	}
	return 0, status.Errorf(status.Internal, "ucx_perftest printed no %s:\n%s", heading, out)
}

// portTries is how often a free port is looked for: another process may take it first.
const portTries = 5

// execute runs a server and a client, and returns what the client printed. A port that was free may be in use when the server
// takes it: the connections of the run before get theirs from the same range.
func (u *ucx) execute(ctx context.Context, d time.Duration, args []string) (out []byte, err error) {
	for range portTries {
		if out, err = u.executeOnce(ctx, d, args); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			break
		}
	}
	return out, err
}

func (u *ucx) executeOnce(ctx context.Context, d time.Duration, args []string) (_ []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, perftestWait+10*d)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	command := func(more ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, u.program, append(more, "-p", strconv.Itoa(port))...) //nolint:gosec // of the packages
		c.Env = append(c.Environ(), "UCX_TLS="+u.transport, "LD_LIBRARY_PATH="+u.libraries)
		return c
	}
	var said bytes.Buffer
	server := command("-f")
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return nil, err
	}
	over := &ending{c: make(chan struct{})}
	go func() {
		defer close(over.c)
		over.err = server.Wait()
	}()
	out, err := u.client(ctx, func() *exec.Cmd { return command(append([]string{"127.0.0.1"}, args...)...) }, over)
	if err != nil {
		_ = server.Process.Kill() // it may have ended
	}
	<-over.c
	if err = errors.Join(err, over.err); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said.Bytes())
	}
	return out, nil
}

// client runs the client, again and again until the server listens.
func (u *ucx) client(ctx context.Context, command func() *exec.Cmd, server *ending) ([]byte, error) {
	late := time.NewTimer(connectWait)
	defer late.Stop()
	for {
		out, err := command().CombinedOutput()
		if err == nil {
			return out, nil
		}
		err = fmt.Errorf("the client: %w: %s", err, bytes.TrimSpace(out))
		if !bytes.Contains(out, []byte("Connection refused")) {
			return nil, err
		}
		select {
		case <-server.c:
			return nil, err
		case <-late.C:
			return nil, err
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(connectEvery):
		}
	}
}
