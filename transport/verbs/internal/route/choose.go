package route

import (
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/verbs"
)

// Side is one process as both sides know it.
type Side struct {
	Task        cluster.Task
	Incarnation uint64
	Host        uint64 // equal for processes that share a network namespace; 0 for not known
	// Inventory is nil for a process of an older build, which has no device but Fabric, with a
	// reach that only the handshake finds out.
	*handshake.Inventory

	alias string // replaces the name of the task in reasons; empty for the name
}

// SideOf returns the side that an offer or an introduction shows.
func SideOf(o handshake.Offer) Side {
	return Side{Task: o.Task, Incarnation: o.Incarnation, Host: o.Host, Inventory: o.Inventory}
}

// name returns how a reason calls the process.
func (s *Side) name() string {
	if s.alias != "" {
		return s.alias
	}
	return s.Task.String()
}

// device returns the first device for a route; nil when there is none.
func (s *Side) device(k Route) *handshake.Device {
	if s.Inventory == nil {
		return nil
	}
	for i := range s.Devices {
		if Of(s.Devices[i].Link) == k {
			return &s.Devices[i]
		}
	}
	return nil
}

// Reason says why a route is not taken.
type Reason struct {
	Route Route
	Why   string
}

// Choose returns the route by which two processes reach each other best, and for each
// other route why it is not taken, in the order of preference. It does not matter which of the
// two is own: both sides get the same result.
//
// The order is shared memory, an RDMA device behind the kernel on either side, TCP, and RDMA in
// user space on both sides if one of the users has named it. A route that has failed is not taken
// while another one is possible. When all have failed, that is taken which is tried again first.
func Choose(own, peer Side) (Route, []Reason) {
	a, b := &own, &peer
	if b.Task.String() < a.Task.String() {
		a, b = b, a
	}
	if a.Inventory == nil || b.Inventory == nil {
		return chooseOlder(a, b)
	}
	order := preference(a, b)
	chosen, soonest := None, time.Duration(0)
	whys := make(map[Route]string, len(order))
	for _, k := range order {
		if whys[k] = Problem(*a, *b, k); whys[k] != "" {
			continue
		}
		wait, why := failure(a, b, k)
		if why != "" {
			whys[k] = why
		}
		if chosen == None || wait < soonest {
			chosen, soonest = k, wait
		}
	}
	var reasons []Reason
	for _, k := range order {
		switch {
		case k == chosen:
		case whys[k] != "":
			reasons = append(reasons, Reason{k, whys[k]})
		default:
			reasons = append(reasons, Reason{k, fmt.Sprintf("%v is the better route", chosen)})
		}
	}
	return chosen, reasons
}

// chooseOlder is Choose when one side is of an older build.
func chooseOlder(a, b *Side) (Route, []Reason) {
	old, other := a, b
	if a.Inventory != nil {
		old, other = b, a
	}
	why := fmt.Sprintf("%v is of an earlier release, which has no such device", old.name())
	reasons := []Reason{{Shared, why}, {TCP, why}}
	if other.Inventory != nil && other.device(Fabric) == nil {
		return None, []Reason{{Shared, why}, {Fabric, missing(other, Fabric)}, {TCP, why}}
	}
	return Fabric, reasons
}

// preference returns the routes, the best one first.
func preference(a, b *Side) []Route {
	if d, e := a.device(Fabric), b.device(Fabric); d != nil && e != nil && !d.InKernel() && !e.InKernel() {
		return []Route{Shared, TCP, Fabric}
	}
	return Routes[:]
}

// failure returns how long a route is not tried because it has failed, on the side
// where that takes longer.
func failure(a, b *Side, k Route) (time.Duration, string) {
	d := a.device(k)
	if e := b.device(k); e.FailedFor > d.FailedFor {
		d = e
	}
	if d.FailedFor == 0 {
		return 0, ""
	}
	return d.FailedFor, fmt.Sprintf("it has failed: %s; it is tried again in %v", d.FailedWhy, max(d.FailedFor.Round(time.Second), time.Second))
}

// Problem describes why a route cannot reach from one process to the other; empty when
// it may. Failures do not matter.
func Problem(own, peer Side, k Route) string {
	a, b := &own, &peer
	if b.Task.String() < a.Task.String() {
		a, b = b, a
	}
	if a.Inventory == nil || b.Inventory == nil {
		_, reasons := chooseOlder(a, b)
		for _, r := range reasons {
			if r.Route == k {
				return r.Why
			}
		}
		return ""
	}
	d, e := a.device(k), b.device(k)
	switch {
	case d == nil && e == nil:
		return neitherHas
	case d == nil:
		return missing(a, k)
	case e == nil:
		return missing(b, k)
	}
	switch k {
	case Shared:
		return sharedProblem(a, b, d, e)
	case Fabric:
		return fabricProblem(a, b, d, e)
	case TCP:
		return tcpProblem(a, b, d, e)
	case None:
	}
	return "there is no such device"
}

// neitherHas is the reason against a route that no setting of one side alone could bring.
const neitherHas = "neither side has it"

// missing names the setting by which a side has no device for a route; auto has none that does not
// work there.
func missing(s *Side, k Route) string {
	return fmt.Sprintf("%s has no %v device (see its setting provider)", s.name(), k)
}

// sharedProblem: each process has to reach the other's socket, and to be allowed to read its
// memory. The provider checks both again when it connects; what a peer shows is not trusted.
func sharedProblem(a, b *Side, d, e *handshake.Device) string {
	sameUser := a.User != 0 && a.User == b.User
	switch {
	case a.Host != 0 && a.Host == b.Host, d.Directory != 0 && d.Directory == e.Directory:
	case sameUser:
		return fmt.Sprintf("%v and %v run in two network namespaces of a host; give both the same directory (the setting shm-dir)", a.name(), b.name())
	default:
		return fmt.Sprintf("%v and %v run on two hosts, or in two network namespaces without a common directory (the setting shm-dir)", a.name(), b.name())
	}
	if !sameUser && (a.TLS != handshake.MutualTLS || b.TLS != handshake.MutualTLS) {
		return fmt.Sprintf("%v and %v run as two users, and no mutual TLS proves their names", a.name(), b.name())
	}
	return ""
}

// fabricProblem: the two ports need a path, from any of their addresses to any.
func fabricProblem(a, b *Side, d, e *handshake.Device) string {
	if !d.InKernel() && !e.InKernel() && !d.Asked && !e.Asked {
		return "both devices are roce, and neither side has been told to use it (name roce in the setting provider)"
	}
	if len(d.GIDs) == 0 || len(e.GIDs) == 0 {
		none := a
		if len(d.GIDs) > 0 {
			none = b
		}
		return fmt.Sprintf("the device of %v has no address", none.name())
	}
	first := ""
	for _, g := range d.GIDs {
		for _, h := range e.GIDs {
			why := handshake.Mismatch(a.offer(d, g), b.offer(e, h))
			if why == "" {
				return ""
			}
			if first == "" {
				first = why
			}
		}
	}
	return first
}

// tcpProblem: both use TLS or none does, and one side dials.
func tcpProblem(a, b *Side, d, e *handshake.Device) string {
	if (a.TLS == handshake.NoTLS) != (b.TLS == handshake.NoTLS) {
		return fmt.Sprintf("%v uses %v and %v uses %v", a.name(), a.TLS, b.name(), b.TLS)
	}
	if len(d.Addresses) == 0 && len(e.Addresses) == 0 {
		return "neither side takes connections"
	}
	return ""
}

// offer returns an offer of one queue pair at an address of a device, as far as a path depends on
// it.
func (s *Side) offer(d *handshake.Device, gid verbs.GID) handshake.Offer {
	r := handshake.Rail{}
	r.GID, r.UDP.Port = gid, d.UDPPort
	return handshake.Offer{Task: s.Task, Host: s.Host, Link: d.Link, GIDType: d.GIDType, Rails: []handshake.Rail{r}}
}
