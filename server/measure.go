package server

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/loss"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/verbs"
)

// How much a measurement sends. The full messages make some 4,000 packets of an MTU of 1024, of
// which loss.Rate are two.
const (
	smallEchoes = 100
	fullEchoes  = 40
	fullEcho    = 96 << 10 // bytes
	// echoTime bounds each of the two parts, for a path with a long round trip.
	echoTime = 1500 * time.Millisecond
	// leastEchoes are made in any case.
	leastEchoes = 10
)

// Measured is the result of sending messages to a peer and waiting for each.
type Measured struct {
	// Device and Provider carried the messages; empty for gRPC.
	Device, Provider string
	// Echoes is the number of small messages. The times are those from a message to its
	// confirmation, with the work of both processes.
	Echoes           int
	Min, Median, P99 time.Duration
	// Bytes is not 0 if the times are those of receives of a tensor of so many bytes.
	Bytes int64
	// Sent and Lost count the packets that this side sent, and the losses that it noticed;
	// of all processes, if the device is one of the kernel. Sent is 0 if they are not counted.
	Sent, Lost uint64
	// MTU is the content of a packet in bytes.
	MTU int
	// Expect estimates the bytes a second that the peer receives; 0 without an estimate.
	Expect float64
	// Do is what to do about Lost.
	Do string
}

// Loss is the share of lost packets, 0 to 1.
func (m Measured) Loss() float64 {
	if m.Sent == 0 {
		return 0
	}
	return min(1, float64(m.Lost)/float64(m.Sent))
}

// echoes calls echo for messages of size bytes, and returns how long each took, the shortest first.
func echoes(count, size int, echo func(size int) (time.Duration, error)) (took []time.Duration, err error) {
	for begin := time.Now(); len(took) < count && (len(took) < leastEchoes || time.Since(begin) < echoTime); {
		d, err := echo(size)
		if err != nil {
			return took, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took, nil
}

// SetTimes sets the times from those of messages or receives, at least one. They are sorted, the shortest first.
func (m *Measured) SetTimes(took []time.Duration) {
	m.Echoes = len(took)
	m.Min, m.Median, m.P99 = took[0], took[len(took)/2], took[(len(took)*99)/100]
}

// measure measures a path.
func (m *Measured) measure(echo func(size int) (time.Duration, error)) error {
	took, err := echoes(smallEchoes, 8, echo)
	if err != nil {
		return err
	}
	m.SetTimes(took)
	_, err = echoes(fullEchoes, fullEcho, echo)
	return err
}

// Measure measures the path over the first device of the client to the server, whose task is given, after Probe.
func (c *Client) Measure(ctx context.Context, task cluster.Task) (Measured, error) {
	s, ok := c.Verbs()
	if !ok {
		return Measured{}, status.New(status.FailedPrecondition, "this process has no usable RDMA device at present")
	}
	m := Measured{Device: s.Choice.Device, Provider: s.Name(), MTU: int(s.Choice.MTU)}
	if s.Choice.Link == verbs.LinkTCP || s.Choice.Link == verbs.LinkShared {
		err := c.measureFixed(ctx, task, s.Choice.Link, &m)
		return m, err
	}
	var to netip.AddrPort
	before := c.loss.Read()
	err := m.measure(func(size int) (took time.Duration, err error) {
		took, to, err = c.rdma.Transport.Echo(ctx, task, size)
		return took, err
	})
	if err != nil {
		return m, err
	}
	after := c.loss.Read()
	var l discovery.Losses
	if before.Counters != nil { // otherwise they could not be read
		l = discovery.LossesBetween(before.Counters, after.Counters)
	}
	m.Sent, m.Lost = l.Sent, l.By[discovery.LostSent]
	m.Do = discovery.LossDo(discovery.LostSent, after.Software, s.Choice.Link == verbs.LinkInfiniBand)
	for _, p := range after.Paths {
		if !loss.SamePeer(p.Peer, to) {
			continue
		}
		m.Sent, m.Lost, m.Min = p.Sent, p.Lost, min(m.Min, cmp.Or(p.Shortest, m.Min))
		for _, b := range before.Paths {
			if b.Peer == p.Peer {
				m.Sent, m.Lost = p.Sent-b.Sent, p.Lost-b.Lost
			}
		}
	}
	// A device has no part in the time that the processes take, so the shortest round trip is
	// closest to that of the path.
	if p, _ := providers.Of(m.Provider); p.Throughput != nil {
		m.Expect = p.Throughput(s.Choice.MTU, m.Min, m.Loss())
	} else if m.Lost > 0 {
		m.Expect = loss.GoBackN(s.Choice.MTU, m.Min, m.Loss(), math.Inf(1))
	}
	return m, nil
}

// measureFixed measures the path over TCP or shared memory, which loses nothing.
func (c *Client) measureFixed(ctx context.Context, task cluster.Task, link verbs.LinkLayer, m *Measured) error {
	sent, resent := c.loss.TCP.Totals()
	err := m.measure(func(size int) (time.Duration, error) {
		took, _, err := c.rdma.Transport.Echo(ctx, task, size)
		return took, err
	})
	if err == nil && link == verbs.LinkTCP {
		c.segments(m, sent, resent)
	}
	return err
}

// segments adds what TCP has sent since it had sent and resent as many segments.
func (c *Client) segments(m *Measured, sent, resent uint64) {
	nowSent, nowResent := c.loss.TCP.Totals()
	m.Sent, m.Lost = nowSent-sent, nowResent-resent
	m.Do, m.MTU = loss.TCPAdvice, 0
	for _, t := range c.loss.TCP.Read() {
		m.MTU = max(m.MTU, t.MSS)
	}
	if m.Lost > 0 && m.MTU > 0 {
		m.Expect = loss.TCPThroughput(m.MTU, m.Min, m.Loss())
	}
}

// MeasureGRPC measures the TCP connection to the server. The server need not have a health service:
// its refusal is an answer, too.
func (c *Client) MeasureGRPC(ctx context.Context) (Measured, error) {
	health := healthpb.NewHealthClient(c.conn)
	var m Measured
	sent, resent := c.loss.TCP.Totals()
	err := m.measure(func(size int) (time.Duration, error) {
		begin := time.Now()
		_, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: strings.Repeat("-", size)})
		switch s := grpcstatus.Convert(err); s.Code() {
		case codes.OK, codes.NotFound, codes.Unimplemented:
		default:
			return 0, status.New(status.Code(s.Code()), status.Truncate(transport.PlainText(s.Message())))
		}
		return time.Since(begin), nil
	})
	if err != nil {
		return m, err
	}
	c.segments(&m, sent, resent)
	return m, nil
}
