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
				"see that it runs, that the address in --cluster is right, that no firewall is between, and that both sides have TLS or neither"})
		} else {
			e.ok(check, "%s answers over gRPC%s", p.Address, tookText(p.GRPC))
		}
		switch {
		case p.Verbs == nil:
		case p.Verbs.Err != nil:
			text, do := hinted(p.Verbs.Err, verbsDo(p.Verbs.Err))
			e.lacks(check, do, "it cannot be reached by RDMA: %s", text)
		default:
			e.ok(check, "it answers by RDMA%s", tookText(*p.Verbs))
		}
	}
}

// verbsDo is what to do about a peer that RDMA does not reach. The errors of
// bootstraps and channels say the flag that mends them; this is where to look.
func verbsDo(err error) string {
	switch status.CodeOf(err) {
	case status.Unimplemented:
		return "start it with --transport verbs"
	case status.FailedPrecondition, status.InvalidArgument:
		return "compare the lines \"chosen\" of tryst doctor --transport verbs on both sides"
	case status.PermissionDenied, status.Unauthenticated:
		return "give this side a certificate with its name (--tls-cert, --tls-key)"
	}
	return "run tryst doctor --transport verbs there, with this task in --cluster; look for a firewall on UDP port 4791 (devices in software have others, too) and for address translation, and whether each side can ping the other's address"
}

func tookText(r Reached) string {
	s := ""
	if r.Took > 0 {
		s = " in " + r.Took.Round(10*time.Microsecond).String()
	}
	if r.Said != "" {
		s += ": " + r.Said
	}
	return s
}
