package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/server"
)

// otherWords describes the devices that are no RDMA.
var otherWords = map[string]struct{ device, do, missed string }{
	server.ProviderTCP: {
		"queue pairs over TCP, to the port that gRPC listens on",
		"name tcp in --provider there, or auto; if something between the hosts ends TLS or forwards HTTP/2 only, let TCP connections through",
		"do what the text asks for, or leave tcp out of --provider",
	},
	server.ProviderSHM: {
		"shared memory with processes of this host",
		"for processes of one host: name shm in --provider there, or auto; give processes in several network namespaces one --shm-dir; run both as one user, or use mutual TLS",
		"do what the text asks for, or set --shm off: processes of this host are then reached over tcp",
	},
}

// others checks the devices that are no RDMA.
func (e *examiner) others() {
	for _, o := range e.facts.Others {
		w := otherWords[o.Provider]
		switch {
		case o.Err == nil:
			e.ok(o.Provider, "%s works: %s%s", o.Device, w.device, e.dirText(o.Provider))
		case o.Named && e.facts.Required:
			text, do := hinted(o.Err, w.missed)
			e.report = append(e.report, Line{Fail, o.Provider, fmt.Sprintf("%s cannot be used, and the setting provider names it: %s", o.Provider, text), do})
		default:
			text, do := hinted(o.Err, w.missed)
			e.warn(o.Provider, do, "%s cannot be used: %s", o.Provider, text)
		}
	}
	if usable := e.usable(); len(usable) > 0 {
		with := ""
		if !e.facts.Required {
			with = "tensors go over gRPC (the setting transport); with --transport verbs "
		}
		e.ok("routes", "%seach peer is reached over the first of these that it has, too, and that works: %s", with, e.inOrder(usable))
	}
}

// shmDir is the key of the setting that names the directory of the sockets for shared memory.
const shmDir = "shm-dir"

// hasShm reports whether shared memory was checked.
func (e *examiner) hasShm() bool {
	return slices.ContainsFunc(e.facts.Others, func(o Other) bool { return o.Provider == server.ProviderSHM })
}

// dirText says what the directory of the sockets is for, if one is set.
func (e *examiner) dirText(provider string) string {
	for _, s := range e.facts.Settings {
		if provider == server.ProviderSHM && s.Key == shmDir && s.Value != "" {
			return fmt.Sprintf("; from other network namespaces by the directory %s, which both sides have to share (shm-dir, %s)", s.Value, s.Source)
		}
	}
	return ""
}

// usable returns the providers of the devices of this process, the preferred one first.
func (e *examiner) usable() []string {
	fabric, _ := e.facts.uses()
	return e.sorted(fabric != "", func(provider string) bool {
		return slices.ContainsFunc(e.facts.Others, func(o Other) bool { return o.Provider == provider && o.Err == nil })
	})
}

// sorted returns the providers that a process may take, the preferred one first, as
// transport/verbs chooses them.
func (e *examiner) sorted(fabric bool, has func(provider string) bool) (all []string) {
	device, _ := e.facts.uses()
	if has(server.ProviderSHM) {
		all = append(all, server.ProviderSHM)
	}
	if fabric && device == server.ProviderLibibverbs {
		all = append(all, device)
	}
	if has(server.ProviderTCP) {
		all = append(all, server.ProviderTCP)
	}
	if fabric && device != server.ProviderLibibverbs {
		all = append(all, server.ProviderRoCE)
	}
	return all
}

// inOrder lists providers. Whether roce is taken, and before tcp, depends on the device of the peer.
func (e *examiner) inOrder(providers []string) string {
	text := strings.Join(providers, ", ")
	tcp, roce := slices.Contains(providers, server.ProviderTCP), slices.Contains(providers, server.ProviderRoCE)
	switch {
	case roce && !e.facts.NamesRoCE:
		text += " (roce: before tcp to a peer with an RDMA device of its kernel, otherwise only if a provider names it)"
	case roce && tcp:
		text += " (roce: before tcp to a peer with an RDMA device of its kernel)"
	}
	return text
}

// replaced reports whether another device than that of the kernel carries tensors. A process does not
// start without an RDMA device that its settings name.
func (f *Facts) replaced() bool {
	if provider, _ := f.uses(); provider == server.ProviderRoCE {
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
			e.ok(check, "it answers over %s%s", o.Provider, reachedText(o.Reached))
			e.path(check, o.Provider, o.Reached)
		case p.reachedBy() > 0:
			e.ok(check, "not over %s: %v", o.Provider, o.Err)
		case o.WithoutDevice:
			e.withoutDevice(check, o.Err)
		default:
			text, do := hinted(o.Err, w.do)
			e.unreached(check, do, "it cannot be reached over %s: %s", o.Provider, text)
		}
	}
}
