package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/loss"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

func (e *examiner) peers() {
	for _, p := range e.facts.Peers {
		check := "peer " + p.Task
		if p.GRPC.Err != nil {
			e.report = append(e.report, Line{Fail, check, fmt.Sprintf("%s cannot be reached over gRPC: %v", p.Address, p.GRPC.Err),
				"check that it runs, that its address (--cluster, --from) is right, that no firewall blocks it, and that both sides or neither use TLS"})
		} else {
			e.ok(check, "%s answers over gRPC%s", p.Address, reachedText(p.GRPC))
			e.path(check, "gRPC", p.GRPC)
		}
		if e.facts.Auto && p.withoutVerbs() {
			e.ok(check, "it does not serve verbs, so its tensors come over gRPC; if it is Tryst, its setting transport is grpc")
			continue
		}
		switch {
		case p.Verbs == nil:
		case p.Verbs.WithoutDevice && p.reachedBy() == 0:
			e.withoutDevice(check, p.Verbs.Err)
		case p.Verbs.Err != nil && p.reachedBy() > 0 && !e.kernelReaches():
			e.ok(check, "not over rdma: %v", p.Verbs.Err)
		case p.Verbs.Err != nil && p.reachedBy() > 0:
			text, do := hinted(p.Verbs.Err, verbsDo(p.Verbs.Err))
			e.lacks(check, do, "it cannot be reached over rdma: %s", text)
		case p.Verbs.Err != nil:
			text, do := hinted(p.Verbs.Err, verbsDo(p.Verbs.Err))
			e.unreached(check, do, "it cannot be reached over rdma: %s", text)
		default:
			e.ok(check, "it answers over rdma%s", reachedText(*p.Verbs))
			e.path(check, "rdma", *p.Verbs)
		}
		e.fixedRoutes(check, p)
		if p.reachedBy() > 0 {
			e.ok(check, "its tensors come over the first of these that works: %s", e.inOrder(e.sorted(p.Verbs != nil && p.Verbs.Err == nil, p.answersOver)))
		}
	}
}

// unreached reports a route to a peer that no device of this process reaches. Other devices do not
// replace it, since they have been tried.
func (e *examiner) unreached(check, do, format string, args ...any) {
	level := Warn
	if e.facts.Required {
		level = Fail
	}
	e.report = append(e.report, Line{level, check, fmt.Sprintf(format, args...), do})
}

// answersOver reports whether the peer was reached with the given provider, TCP or shared memory.
func (p *Peer) answersOver(provider string) bool {
	return slices.ContainsFunc(p.Fixed, func(o FixedReached) bool { return o.Provider == provider && o.Err == nil })
}

// kernelReaches reports whether this process has an RDMA device of the kernel, over which a peer
// should be reached in preference to TCP.
func (e *examiner) kernelReaches() bool {
	provider, _ := e.facts.uses()
	return e.facts.row(provider).Kernel
}

// withoutDevice reports a peer that serves verbs and has no device for now. Its tensors go over gRPC,
// which is a FAIL only where the settings forbid that.
func (e *examiner) withoutDevice(check string, err error) {
	const do = "run tryst doctor --transport verbs on its host: its interface may be down or have no address; it takes verbs again by itself when it has a device"
	if e.facts.NoFallback {
		e.lacks(check, do, "it has no verbs for now, and --fallback none allows nothing else: %v", err)
		return
	}
	e.warn(check, do, "it has no verbs for now, so its tensors go over gRPC: %v", err)
}

// What a path has to lose for a FAIL, or what it carries then, in bytes a second: transfers run into
// the time limits of queue pairs.
const (
	failLoss   = 0.1
	failExpect = 1e6
)

// path reports the round trip and loss of a path, and what to expect of it.
func (e *examiner) path(check, transport string, r Reached) {
	switch {
	case r.Rate > 0:
		e.ok(check, "bandwidth over %s: %s of a pull of at most %s", transport, rateText(r.Rate), bytesText(rateBytes))
	case r.NoRate != nil:
		e.warn(check, "publish something there (tryst serve FILE), or leave --measure out", "the bandwidth over %s could not be measured: %v", transport, r.NoRate)
	}
	if r.Unmeasured != nil {
		e.warn(check, "run the command again; if it stays, look for the reason in the log of the peer", "its path over %s could not be measured: %v", transport, r.Unmeasured)
	}
	m := r.Path
	if m == nil {
		return
	}
	text := fmt.Sprintf("round trip over %s: median %v, min %v, p99 %v of %d messages", transport, short(m.Median), short(m.Min), short(m.P99), m.Echoes)
	if m.Bytes > 0 {
		text = fmt.Sprintf("round trip over %s: median %v, min %v, p99 %v of %d receives of %s", transport, short(m.Median), short(m.Min), short(m.P99), m.Echoes, bytesText(uint64(m.Bytes)))
	}
	if m.Device != "" {
		text += ", by " + m.Device
	}
	rate, few := loss.Rate, m.Lost < leastLost
	row := e.facts.row(m.Provider)
	if m.Device == "" || row.Link == verbs.LinkTCP {
		rate, few = loss.TCPRate, m.Lost < leastLostTCP || m.Expect >= loss.TCPEnough
	}
	switch {
	case row.Local(): // it has no packets
		e.ok(check, "%s", text)
		return
	case m.Sent == 0:
		e.ok(check, "%s; the packets are not counted", text)
		return
	case m.Lost == 0:
		text += fmt.Sprintf("; none of %d packets to it was lost", m.Sent)
	default:
		text += fmt.Sprintf("; %.2f %% of packets to it were lost (%d of %d)", 100*m.Loss(), m.Lost, m.Sent)
	}
	if m.Expect > 0 && (row.Throughput != nil || !few) {
		text += ": expect " + loss.ThroughputText(m.Expect, m.Min)
		if row.Throughput == nil {
			text += " at most"
		}
	}
	do := m.Do + "; run the command on its host for the other direction, in which a pull sends"
	switch {
	case few || m.Loss() < rate:
		e.ok(check, "%s", text)
	case m.Loss() >= failLoss || m.Expect > 0 && m.Expect < failExpect:
		e.report = append(e.report, Line{Fail, check, text, do})
	default:
		e.warn(check, do, "%s", text)
	}
}

// rateText formats bytes a second, in the unit of all rates of the report.
func rateText(rate float64) string { return fmt.Sprintf("%.0f MB/s", rate/1e6) }

// leastLost is the least number of losses that is reported. One in 2,000 packets is luck, or an
// acknowledgement that a busy host sent late.
const leastLost = 3

// leastLostTCP is that of TCP. It also counts the segments that it sends to probe a peer whose
// acknowledgement is late.
const leastLostTCP = 10

// short rounds a round trip for the reader.
func short(d time.Duration) time.Duration {
	if d > time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// verbsDo returns what to do about a peer that RDMA does not reach, where the error itself names no
// flag.
func verbsDo(err error) string {
	switch status.CodeOf(err) {
	case status.Unimplemented:
		return "start it with --transport auto or verbs"
	case status.FailedPrecondition, status.InvalidArgument:
		return "compare the lines \"chosen\" of tryst doctor --transport verbs on both hosts"
	case status.PermissionDenied, status.Unauthenticated:
		return "give this process a certificate with its name (--tls-cert, --tls-key)"
	}
	return "run tryst doctor --transport verbs there, with this task in --cluster; check that no firewall blocks UDP port 4791 (devices in user space use other ports, too), that there is no address translation, and that each host can ping the address of the other"
}

func reachedText(r Reached) string {
	s := ""
	if r.Took > 0 {
		s = " in " + r.Took.Round(10*time.Microsecond).String()
	}
	if r.Text != "" {
		s += ": " + r.Text
	}
	return s
}
