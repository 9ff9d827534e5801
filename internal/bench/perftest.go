package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// The programs of perftest, the baseline of RDMA (package perftest of the
// distributions).
const (
	WriteBandwidth = "ib_write_bw"
	SendLatency    = "ib_send_lat"
	GoLoop         = "go-loop" // sends to and fro in Go, through the same provider
)

// perftest is one of its programs as a side of a contest: each run is a server on
// the one device and a client on the other.
type perftest struct {
	program string
	ends    endpoints
	size    int64
	event   bool // waits for events of the completion queue
	pairs   int  // queue pairs that write at once; 0 for 1
	pin     *pin // where the client runs; nil for anywhere
	// rate is how many operations a second the last run did.
	rate float64
}

func (p *perftest) String() string {
	switch {
	case p.event:
		return p.program + " -e"
	case p.pairs > 1:
		return fmt.Sprintf("%s -q %d", p.program, p.pairs)
	}
	return p.program
}

// missing says what to install, or nil.
func (p *perftest) missing() error {
	if _, err := exec.LookPath(p.program); err != nil {
		return fmt.Errorf("%s is not installed (package perftest)", p.program)
	}
	return nil
}

const (
	// minIterations is the least that perftest takes.
	minIterations = 5
	// minTrips is the least that has a median, and minWritten the bytes that a
	// bandwidth of at least some hundredths of a MiB/s needs.
	minTrips   = 100
	minWritten = 4 << 20
	// uncalibrated is what perftest says when it could not find out how fast its
	// clock ticks, since the machine was busy: then all its times are 0.
	uncalibrated    = "Correlation coefficient"
	maxUncalibrated = 20
	// maxIterations bounds the memory for the latencies.
	maxIterations = 100_000
	// perftestWait bounds one run, above the time that it should take.
	perftestWait = time.Minute
	// connectWait is how long a server may take until it listens, and
	// connectEvery how often that is tried.
	connectWait  = 20 * time.Second
	connectEvery = 50 * time.Millisecond
)

// run implements side. The score is in operations a second: messages of the size
// written, or round trips.
func (p *perftest) run(ctx context.Context, d time.Duration) (r run, err error) {
	pairs := max(p.pairs, 1)
	n := max(min(max(int(p.rate*d.Seconds()), p.fewest()), maxIterations)/pairs, minIterations) // of each queue pair
	out, err := p.execute(ctx, d, n)
	for range maxUncalibrated {
		if err != nil || !bytes.Contains(out, []byte(uncalibrated)) {
			break
		}
		out, err = p.execute(ctx, d, n)
	}
	if err != nil {
		return r, err
	}
	switch p.program {
	case WriteBandwidth:
		if r.score, err = p.written(out); err != nil {
			return r, err
		}
	default:
		half, err := perftestColumn(out, "t_typical[usec]", 4)
		if err != nil {
			return r, err
		}
		trip := time.Duration(2 * half * float64(time.Microsecond))
		r.latencies.add(trip, int64(n))
		r.score = 1 / trip.Seconds()
	}
	p.rate = r.score
	r.count = int64(n * pairs)
	r.time = time.Duration(float64(r.count) / r.score * float64(time.Second))
	return r, nil
}

// fewest is how many operations a run has at least: below, perftest refuses, has no
// median, or measures less than its digits show.
func (p *perftest) fewest() int {
	if p.program == SendLatency {
		return minTrips
	}
	return max(minIterations, min(minTrips, int(minWritten/p.size)))
}

// written reads the messages in a second. Of large ones the bandwidth has the more
// digits, of small ones the rate.
func (p *perftest) written(out []byte) (float64, error) {
	if p.size >= minWritten/minTrips {
		mib, err := perftestColumn(out, "BW average[MB/sec]", 3)
		return mib * (1 << 20) / float64(p.size), err // its MB are MiB
	}
	million, err := perftestColumn(out, "MsgRate[Mpps]", 4)
	return million * 1e6, err
}

// perftestColumn reads a number from the table that perftest prints: one line
// behind its headings, of which one has to be heading.
func perftestColumn(out []byte, heading string, column int) (float64, error) {
	lines := strings.Split(string(out), "\n")
	for i, line := range lines[:len(lines)-1] {
		if !strings.Contains(line, heading) {
			continue
		}
		if fields := strings.Fields(lines[i+1]); column < len(fields) {
			if v, err := strconv.ParseFloat(fields[column], 64); err == nil && v > 0 {
				return v, nil
			}
		}
	}
	return 0, status.Errorf(status.Internal, "perftest printed no %q:\n%s", heading, out)
}

// execute runs both programs and returns what the client printed. The server is
// where tensors arrive.
func (p *perftest) execute(ctx context.Context, d time.Duration, n int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, perftestWait+10*d)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args := func(device string, number uint8, gid int, more ...string) []string {
		a := []string{
			"-F", "-d", device, "-i", strconv.Itoa(int(number)), "-x", strconv.Itoa(gid), "-p", strconv.Itoa(port),
			"-s", strconv.FormatInt(p.size, 10), "-n", strconv.Itoa(n),
		}
		if p.event {
			a = append(a, "-e")
		}
		if p.pairs > 1 {
			a = append(a, "-q", strconv.Itoa(p.pairs))
		}
		return append(a, more...)
	}
	here, there := p.ends.here, p.ends.there
	var said bytes.Buffer
	server := exec.CommandContext(ctx, p.program, args(here.Device, here.Port, here.GIDIndex)...) //nolint:gosec // one of ours
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: %w", p, err)
	}
	ended := &ending{c: make(chan struct{})}
	go func() {
		defer close(ended.c)
		ended.err = server.Wait()
	}()
	out, err := p.client(ctx, args(there.Device, there.Port, there.GIDIndex, "127.0.0.1"), ended)
	if err != nil {
		_ = server.Process.Kill() // it may have ended
		<-ended.c
		return nil, status.Errorf(status.Unavailable, "%s from %s to %s, %s: %w\n%s", p, there.Device, here.Device, config.FormatSize(p.size), err, said.Bytes())
	}
	<-ended.c
	if ended.err != nil {
		return nil, status.Errorf(status.Unavailable, "the server of %s: %w\n%s", p, ended.err, said.Bytes())
	}
	return out, nil
}

// ending is how a process ended, once c is closed.
type ending struct {
	c   chan struct{}
	err error
}

// once runs the client.
func (p *perftest) once(ctx context.Context, args []string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, p.program, args...) //nolint:gosec // one of ours
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if err != nil {
		return nil, err
	}
	if p.pin != nil {
		err = pinChild(cmd.Process, p.pin.CPU)
	}
	err = errors.Join(err, cmd.Wait())
	return out.Bytes(), err
}

// client runs the client, again and again until the server listens.
func (p *perftest) client(ctx context.Context, args []string, server *ending) ([]byte, error) {
	late := time.NewTimer(connectWait)
	defer late.Stop()
	for {
		out, err := p.once(ctx, args)
		if err == nil {
			return out, nil
		}
		err = fmt.Errorf("the client: %w\n%s", err, out)
		if !bytes.Contains(out, []byte("Couldn't connect")) {
			return nil, err
		}
		select {
		case <-server.c:
			return nil, errors.Join(err, server.err)
		case <-late.C:
			return nil, err
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(connectEvery):
		}
	}
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", loopback)
	if err != nil {
		return 0, status.Errorf(status.Unavailable, "a port for perftest: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}
