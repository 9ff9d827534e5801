package doctor

import (
	"fmt"

	"github.com/tryst-rdma/tryst/internal/config"
)

// otherWords describes the devices that are no RDMA.
var otherWords = map[string]struct{ device, route, do, missed string }{
	config.ProviderTCP: {
		"queue pairs over TCP, to the port that gRPC listens on", "TCP",
		"name tcp in --provider there, or auto; if something between the hosts ends TLS or forwards HTTP/2 only, let TCP connections through",
		"look for what the text names, or leave tcp out of --provider",
	},
	config.ProviderShm: {
		"shared memory with processes of this host", "shared memory",
		"for processes of one host: name shm in --provider there, or auto; give processes in several network namespaces one --shm-dir; run both as one user, or use mutual TLS",
		"look for what the text names, or set --shm off",
	},
}

// others checks the devices that are no RDMA.
func (e *examiner) others() {
	for _, o := range e.facts.Others {
		w := otherWords[o.Provider]
		switch {
		case o.Err == nil:
			e.ok(o.Provider, "%s works: %s", o.Device, w.device)
		case o.Named && e.facts.Required:
			text, do := hinted(o.Err, w.missed)
			e.report = append(e.report, Line{Fail, o.Provider, fmt.Sprintf("%s cannot be used, and the setting provider names it: %s", w.route, text), do})
		default:
			text, do := hinted(o.Err, w.missed)
			e.warn(o.Provider, do, "%s cannot be used: %s", w.route, text)
		}
	}
}

// replaced reports whether another device than that of the kernel carries tensors. A process does not
// start without an RDMA device that its settings name.
func (f *Facts) replaced() bool {
	if provider, _ := f.uses(); provider == config.ProviderRoCE {
		return true
	}
	if f.Want.Device != "" || f.Want.Port != 0 || f.Want.GIDIndex != nil {
		return false
	}
	for _, o := range f.Others {
		if o.Err == nil {
			return true
		}
	}
	return false
}

// reachedBy returns the devices by which a peer is reached.
func (p *Peer) reachedBy() (n int) {
	if p.Verbs != nil && p.Verbs.Err == nil {
		n++
	}
	for _, o := range p.Others {
		if o.Err == nil {
			n++
		}
	}
	return n
}

// otherRoutes reports the routes to a peer over devices that are no RDMA. A route that does not reach
// the peer lacks nothing while another one does.
func (e *examiner) otherRoutes(check string, p Peer) {
	for _, o := range p.Others {
		w := otherWords[o.Provider]
		switch {
		case o.Err == nil:
			e.ok(check, "it answers over %s%s", w.route, reachedText(o.Reached))
			e.path(check, w.route, o.Reached)
		case p.reachedBy() > 0:
			e.ok(check, "not over %s: %v", w.route, o.Err)
		case o.WithoutDevice:
			e.withoutDevice(check, o.Err)
		default:
			text, do := hinted(o.Err, w.do)
			e.lacks(check, do, "it cannot be reached over %s: %s", w.route, text)
		}
	}
}
