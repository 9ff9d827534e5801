package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// fixed checks the devices that are no RDMA.
func (e *examiner) fixed() {
	for _, d := range e.facts.Fixed {
		row := e.facts.row(d.Provider)
		switch {
		case d.Err == nil:
			e.ok(d.Provider, "%s works: %s%s", d.Device, row.Doctor.Device, e.dirText(row))
		case d.Named && e.facts.Required:
			text, do := hinted(d.Err, row.Doctor.Missed)
			e.report = append(e.report, Line{Fail, d.Provider, fmt.Sprintf("%s cannot be used, and the setting provider names it: %s", d.Provider, text), do})
		default:
			text, do := hinted(d.Err, row.Doctor.Missed)
			e.warn(d.Provider, do, "%s cannot be used: %s", d.Provider, text)
		}
	}
	if usable := e.usable(); len(usable) > 0 {
		with, otherwise := "", ""
		switch {
		case e.facts.Auto:
			otherwise = "; over gRPC if there is none"
		case !e.facts.Required:
			with = "tensors go over gRPC (the setting transport); with --transport verbs "
		}
		e.ok("routes", "%seach peer is reached over the first of these that it has, too, and that works: %s%s", with, e.inOrder(usable), otherwise)
	}
}

// shmDir is the key of the setting that names the directory of the sockets for shared memory.
const shmDir = "shm-dir"

// hasLocal reports whether shared memory was checked.
func (e *examiner) hasLocal() bool {
	return slices.ContainsFunc(e.facts.Fixed, func(d FixedDevice) bool { return e.facts.row(d.Provider).Local() })
}

// dirText says what the directory of the sockets is for, if one is set.
func (e *examiner) dirText(row providers.Row) string {
	for _, s := range e.facts.Settings {
		if row.Local() && s.Key == shmDir && s.Value != "" {
			return fmt.Sprintf("; from other network namespaces by the directory %s, which both sides have to share (shm-dir, %s)", s.Value, s.Source)
		}
	}
	return ""
}

// usable returns the providers of the devices of this process, the preferred one first.
func (e *examiner) usable() []string {
	fabric, _ := e.facts.uses()
	return e.sorted(fabric != "", func(provider string) bool {
		return slices.ContainsFunc(e.facts.Fixed, func(d FixedDevice) bool { return d.Provider == provider && d.Err == nil })
	})
}

// sorted returns the providers that a process may take, the preferred one first, as
// transport/verbs chooses them.
func (e *examiner) sorted(fabric bool, has func(provider string) bool) (all []string) {
	device, _ := e.facts.uses()
	for _, row := range providers.Preferred(e.facts.rows()) {
		if row.RDMA() && fabric && row.Name == device || !row.RDMA() && has(row.Name) {
			all = append(all, row.Name)
		}
	}
	return all
}

// inOrder lists providers. Whether RDMA in user space is taken, and before TCP, depends on the device of
// the peer.
func (e *examiner) inOrder(names []string) string {
	stream := providers.Row{}
	for _, row := range e.facts.rows() {
		if row.Link == verbs.LinkTCP && (stream.Name == "" || slices.Contains(names, row.Name)) {
			stream = row
		}
	}
	text := strings.Join(names, ", ")
	i := slices.IndexFunc(names, e.facts.inUserSpace) // a process has one RDMA device
	switch {
	case i < 0:
	case !e.facts.NamesUserSpace:
		text += fmt.Sprintf(" (%s: before %s to a peer with an RDMA device of its kernel, otherwise only if a provider names it)", names[i], stream.Name)
	case slices.Contains(names, stream.Name):
		text += fmt.Sprintf(" (%s: before %s to a peer with an RDMA device of its kernel)", names[i], stream.Name)
	}
	return text
}

// replaced reports whether another device than that of the kernel carries tensors. A process does not
// start without an RDMA device that its settings name.
func (f *Facts) replaced() bool {
	if provider, _ := f.uses(); f.inUserSpace(provider) {
		return true
	}
	if f.Want.Device != "" || f.Want.Port != 0 || f.Want.GIDIndex != nil {
		return false
	}
	for _, d := range f.Fixed {
		if d.Err == nil {
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
	for _, d := range p.Fixed {
		if d.Err == nil {
			n++
		}
	}
	return n
}

// withoutVerbs reports whether the peer does not serve verbs.
func (p *Peer) withoutVerbs() bool {
	lacks := func(r Reached) bool { return status.CodeOf(r.Err) == status.Unimplemented }
	return p.Verbs != nil && lacks(*p.Verbs) || slices.ContainsFunc(p.Fixed, func(d FixedReached) bool { return lacks(d.Reached) })
}

// fixedRoutes reports the routes to a peer over devices that are no RDMA. A route that does not reach
// the peer lacks nothing while another one does.
func (e *examiner) fixedRoutes(check string, p Peer) {
	for _, d := range p.Fixed {
		switch {
		case d.Err == nil:
			e.ok(check, "it answers over %s%s", d.Provider, reachedText(d.Reached))
			e.path(check, d.Provider, d.Reached)
		case p.reachedBy() > 0:
			e.ok(check, "not over %s: %v", d.Provider, d.Err)
		case d.WithoutDevice:
			e.withoutDevice(check, d.Err)
		default:
			do := e.facts.row(d.Provider).Doctor.Unreached
			if status.CodeOf(d.Err) == status.Unimplemented { // the peer has no verbs at all
				do = verbsDo(d.Err)
			}
			text, do := hinted(d.Err, do)
			e.unreached(check, do, "it cannot be reached over %s: %s", d.Provider, text)
		}
	}
}
