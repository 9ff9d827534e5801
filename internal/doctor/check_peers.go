package doctor

import (
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

func (e *examiner) peers() {
	for _, p := range e.facts.Peers {
		check := "peer " + p.Task
		if p.GRPC.Err != nil {
			e.report = append(e.report, Line{Fail, check, fmt.Sprintf("%s cannot be reached over gRPC: %v", p.Address, p.GRPC.Err),
				"check that it runs, that its address in --cluster is right, that no firewall blocks it, and that both sides or neither use TLS"})
		} else {
			e.ok(check, "%s answers over gRPC%s", p.Address, reachedText(p.GRPC))
		}
		switch {
		case p.Verbs == nil:
		case p.Verbs.Err != nil:
			text, do := hinted(p.Verbs.Err, verbsDo(p.Verbs.Err))
			e.lacks(check, do, "it cannot be reached by RDMA: %s", text)
		default:
			e.ok(check, "it answers by RDMA%s", reachedText(*p.Verbs))
		}
	}
}

// verbsDo returns what to do about a peer that RDMA does not reach, where the error itself names no
// flag.
func verbsDo(err error) string {
	switch status.CodeOf(err) {
	case status.Unimplemented:
		return "start it with --transport verbs"
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
