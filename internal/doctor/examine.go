package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// Examine judges facts. The same facts give the same report.
func Examine(f Facts) Report {
	e := examiner{facts: &f}
	e.settings()
	if f.Provider != config.ProviderRoCE {
		e.kernel()
		e.library()
		e.devices()
		e.choice()
		e.mtu()
		e.memlock()
		e.hugePages()
		e.congestion()
	}
	e.provider()
	e.software()
	e.peers()
	return e.report
}

// What is to be done where something could not be looked at.
const (
	doRead      = "let this user read /sys and /proc and open netlink sockets, or run it as one who may; what it could not see may be well"
	doElsewhere = "RDMA needs Linux with /sys and netlink; tensors go over gRPC (--transport grpc)"
)

// examiner is an Examine under way.
type examiner struct {
	facts  *Facts
	report Report
}

func (e *examiner) ok(check, format string, args ...any) {
	e.report = append(e.report, Line{OK, check, fmt.Sprintf(format, args...), ""})
}

func (e *examiner) warn(check, do, format string, args ...any) {
	e.report = append(e.report, Line{Warn, check, fmt.Sprintf(format, args...), do})
}

// lacks is what keeps RDMA from working: a FAIL when RDMA was asked for, unless the
// device in software takes its place.
func (e *examiner) lacks(check, do, format string, args ...any) {
	level := Warn
	if provider, _ := e.facts.uses(); e.facts.Required && provider != config.ProviderRoCE {
		level = Fail
	}
	e.report = append(e.report, Line{level, check, fmt.Sprintf(format, args...), do})
}

// lacksFor is what keeps a device from working: of one that was not chosen it is
// no more than a WARN.
func (e *examiner) lacksFor(device, check, do, format string, args ...any) {
	if e.facts.NoChoice == nil && device != e.facts.Choice.Device {
		e.warn(check, do, format, args...)
		return
	}
	e.lacks(check, do, format, args...)
}

func (e *examiner) settings() {
	for _, s := range e.facts.Settings {
		e.ok("setting", "%s is %q (%s)", s.Key, s.Value, s.Source)
	}
}

const (
	loadSoftRoCE = "load the driver of the NIC, or make a Soft-RoCE device: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
	loadUverbs   = "modprobe ib_uverbs"
)

func (e *examiner) kernel() {
	f := e.facts
	if f.NoDiscovery != nil {
		e.lacks("kernel", doElsewhere, "RDMA devices cannot be looked for: %v", f.NoDiscovery)
		return
	}
	k := f.Kernel
	switch {
	case !k.Core:
		e.lacks("kernel", loadSoftRoCE, "it has no RDMA: ib_core is not loaded")
		return
	case !k.Uverbs:
		e.lacks("kernel", loadUverbs, "processes cannot reach its RDMA devices: ib_uverbs is not loaded")
	default:
		e.ok("kernel", "ib_core and ib_uverbs are loaded; drivers: %s", orNone(strings.Join(k.Drivers, ", ")))
	}
	if k.ModeKnown && k.Exclusive {
		e.warn("kernel", "rdma system set netns shared, or move the device: rdma dev set DEVICE netns NAME",
			"each RDMA device belongs to one network namespace: a container sees only those that were moved into it")
	}
	for _, n := range k.Nodes {
		check := "node of " + n.Device
		switch {
		case n.Err == nil:
			e.ok(check, "%s can be opened", n.Path)
		case n.Path == "":
			e.lacksFor(n.Device, check, loadUverbs, "the kernel has made no node for it under /dev/infiniband")
		case errors.Is(n.Err, fs.ErrPermission):
			e.lacksFor(n.Device, check, "give this user read and write permission ("+n.Path+"; usually the group rdma), and in a container pass the device in: --device "+n.Path,
				"it may not be opened: %v", n.Err)
		case errors.Is(n.Err, fs.ErrNotExist):
			e.lacksFor(n.Device, check, "in a container pass the device in: --device "+n.Path+"; elsewhere see that udev runs", "%s is not there", n.Path)
		case errors.Is(n.Err, errors.ErrUnsupported): // it was not tried
		default:
			e.lacksFor(n.Device, check, "see what the kernel says of it (dmesg), and load the driver again or plug the device in anew", "%s cannot be opened: %v", n.Path, n.Err)
		}
	}
	for _, err := range k.Problems {
		e.warn("kernel", doRead, "not all could be read: %v", err)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (e *examiner) library() {
	f := e.facts
	switch l := f.Library; {
	case !l.Asked:
	case l.Err != nil:
		text, do := hinted(l.Err, "install it with its drivers: libibverbs1 and ibverbs-providers (Debian, Ubuntu), or rdma-core and libibverbs (Fedora, RHEL)")
		e.lacks("libibverbs", do, "%s", text)
	default:
		known := make(map[string]bool)
		var names []string
		for _, d := range l.Devices {
			known[d.Name] = true
			names = append(names, d.Name)
		}
		e.ok("libibverbs", "it knows %s", orNone(strings.Join(names, ", ")))
		for _, d := range f.Inventory.Devices {
			if !known[d.Name] {
				e.lacksFor(d.Name, "libibverbs", "install the drivers of libibverbs (ibverbs-providers, or rdma-core), of the same release as the library",
					"it does not know %s, which the kernel has", d.Name)
			}
		}
	}
}

// hinted parts an error from what it says to do, if it says that.
func hinted(err error, otherwise string) (text, do string) {
	v, ok := errors.AsType[*verbs.Error](err)
	if !ok || v.Hint == "" {
		return err.Error(), otherwise
	}
	plain := *v
	plain.Hint = ""
	return strings.Replace(err.Error(), v.Error(), plain.Error(), 1), v.Hint
}

func (e *examiner) devices() {
	f := e.facts
	if f.NoDiscovery != nil {
		return
	}
	if len(f.Inventory.Devices) == 0 && f.Kernel.Core {
		e.lacks("devices", loadSoftRoCE, "the kernel has no RDMA device")
	}
	for _, d := range f.Inventory.Devices {
		for _, p := range d.Ports {
			check := fmt.Sprintf("%s port %d", d.Name, p.Number)
			rate := p.Rate.Text
			if rate == "" {
				rate = "rate unknown"
			}
			text := fmt.Sprintf("%s, %s, %s, GIDs: %d", p.State, p.Link, rate, len(p.GIDs))
			if p.Netdev != "" {
				text += ", on " + p.Netdev
			}
			if d.Driver != "" {
				text += ", driver " + d.Driver
			}
			if d.NUMA >= 0 {
				text += fmt.Sprintf(", NUMA node %d", d.NUMA)
			}
			if p.State == verbs.PortActive || p.State == verbs.PortActiveDefer {
				e.ok(check, "%s", text)
				continue
			}
			do := "connect the cable, and look at the switch's port"
			switch {
			case p.Link == verbs.LinkInfiniBand && p.State != verbs.PortDown:
				do = "start a subnet manager on this fabric (opensm), or look why its sweep passes this port"
			case p.Netdev != "":
				do = "ip link set " + p.Netdev + " up; then the cable and the switch's port"
			}
			e.warn(check, do, "%s", text)
		}
		for _, err := range d.Problems {
			e.warn(d.Name, doRead, "not all could be read: %v", err)
		}
	}
	for _, err := range f.Inventory.Problems {
		e.warn("devices", doRead, "not all could be read: %v", err)
	}
}

func (e *examiner) choice() {
	f := e.facts
	if f.NoDiscovery != nil || !f.Kernel.Core {
		return
	}
	const check = "chosen"
	if f.NoChoice != nil {
		if len(f.Inventory.Devices) > 0 || f.Want != (discovery.Want{}) {
			e.lacks(check, "mend what is told of the port that you want, or ask for another (--rdma-device, --rdma-port, --rdma-gid-index)", "%v", f.NoChoice)
		}
		return
	}
	e.chosenIs(check, f.Choice)
}

// chosenIs tells a choice and what speaks for and against it.
func (e *examiner) chosenIs(check string, c discovery.Choice) {
	e.ok(check, "%s: %s", c, c.Reason)
	if c.Understood != "" {
		e.ok(check, "%s", c.Understood)
	}
	for _, w := range c.Warnings {
		if c.Type == verbs.GIDTypeRoCEv1 && strings.Contains(w, c.Type.String()+":") {
			continue // a check of its own, below
		}
		e.warn(check, "name another with --rdma-device, --rdma-port or --rdma-gid-index, unless it is meant so", "%s", w)
	}
	for _, r := range c.Against {
		e.ok(check, "not %s: %s", r.What, r.Why)
	}
	if c.Type == verbs.GIDTypeRoCEv1 {
		e.warn("RoCE version", "choose a GID of RoCE v2 with --rdma-gid-index; without one, set the NIC to RoCE v2",
			"RoCE v1: peers with RoCE v2 get gRPC, and no router is crossed")
	} else if c.Link == verbs.LinkEthernet {
		e.ok("RoCE version", "%s", c.Type)
	}
}

// chosen is the device of the choice, or nil.
func (e *examiner) chosen() *discovery.Device {
	if e.facts.NoChoice != nil || e.facts.NoDiscovery != nil {
		return nil
	}
	return e.facts.Inventory.Device(e.facts.Choice.Device)
}

func (e *examiner) mtu() {
	d := e.chosen()
	if d == nil {
		return
	}
	f, c := e.facts, e.facts.Choice
	const check = "MTU"
	active := verbs.MTU(0)
	if p := d.Port(c.Port); p != nil {
		active = p.ActiveMTU
	}
	if l := f.Library; l.Asked && l.Err == nil {
		if l.OpenErr != nil {
			text, do := hinted(l.OpenErr, "see the lines on its node and on libibverbs above")
			e.lacks("device", do, "%s cannot be opened: %s", c.Device, text)
		} else {
			if active != 0 && l.Port.ActiveMTU != active {
				e.warn(check, "if the network device's MTU was just changed, set its link down and up", "the open port says %d, and %s with MTU %d should make %d",
					int(l.Port.ActiveMTU), c.Netdev, c.NetdevMTU, int(active))
			}
			active = l.Port.ActiveMTU
		}
	}
	if _, err := discovery.PathMTU(f.Want.MTU, active); err != nil {
		e.lacks(check, "lower --rdma-mtu, or raise the MTU of the network device", "%v", err)
		return
	}
	if c.Link == verbs.LinkEthernet {
		if p := d.Port(c.Port); p != nil {
			netdev, mtu := p.Netdev, c.NetdevMTU
			if n := f.Inventory.Netdev(netdev); n != nil {
				mtu = n.MTU
			}
			if mtu > 0 && discovery.MTUHint(netdev, mtu, d.Headers()) != "" {
				e.mtuOfNetdev(netdev, mtu, d.Headers())
				return
			}
		}
	}
	if active != 0 {
		e.ok(check, "the port's path MTU is %d", int(active))
	}
}

// mtuOfNetdev says what the MTU of a network device costs.
func (e *examiner) mtuOfNetdev(netdev string, mtu, headers int) {
	const check = "MTU"
	hint := discovery.MTUHint(netdev, mtu, headers)
	if hint == "" {
		e.ok(check, "the port's path MTU is %d", int(discovery.RoCEMTU(mtu, headers)))
		return
	}
	text, do, _ := strings.Cut(strings.TrimSuffix(hint, ")"), " (")
	e.warn(check, do, "%s", text)
}

// registers reports whether memory will be registered with a device at all.
func (e *examiner) registers() bool {
	provider, _ := e.facts.uses()
	return e.facts.NoDiscovery == nil && len(e.facts.Inventory.Devices) > 0 && provider != config.ProviderRoCE
}

func (e *examiner) memlock() {
	f := e.facts
	if !e.registers() {
		return
	}
	const check = "locked memory"
	m, least, most := f.Memlock, f.RegisterLeast+f.Messages, f.RegisterMost+f.Messages
	switch {
	case f.NoMemlock != nil:
		e.warn(check, doRead, "the limit could not be read: %v", f.NoMemlock)
	case m.Limit == mem.NoMemlock:
		e.ok(check, "no limit")
	case m.Exempt:
		e.ok(check, "the limit of %s does not count: the process has CAP_IPC_LOCK", bytesText(m.Limit))
	case !m.Enough(least):
		e.lacks(check, m.Raise(most), "at most %s may be locked, and the first arenas take %s (--arena) and the messages of channels %s (--rdma-queue-depth): devices will refuse them",
			bytesText(m.Limit), bytesText(f.RegisterLeast), bytesText(f.Messages))
	case !m.Enough(most):
		e.warn(check, m.Raise(most), "at most %s may be locked, and registered memory may grow to %s (--arena-limit) beside %s for the messages of channels (--rdma-queue-depth): what does not fit goes over gRPC",
			bytesText(m.Limit), bytesText(f.RegisterMost), bytesText(f.Messages))
	default:
		e.ok(check, "at most %s may be locked, which is enough for %s", bytesText(m.Limit), bytesText(most))
	}
}

func (e *examiner) hugePages() {
	f := e.facts
	if !e.registers() {
		return
	}
	const check = "huge pages"
	h := f.HugePages
	if h.Err != nil {
		e.warn(check, doRead, "not all could be read: %v", h.Err)
	}
	var free uint64
	var pools []string
	for _, p := range h.Pools {
		if p.Total > 0 {
			free += p.Free * p.Size
			pools = append(pools, fmt.Sprintf("%d of %d of %s free", p.Free, p.Total, bytesText(p.Size)))
		}
	}
	transparent := h.Transparent == "always" || h.Transparent == "madvise"
	switch {
	case free > 0 && free >= f.RegisterLeast:
		e.ok(check, "%s", strings.Join(pools, "; "))
	case transparent:
		e.ok(check, "%stransparent ones are on (%s)", reserved(pools), h.Transparent)
	case h.Err == nil:
		e.warn(check, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or reserve some: sysctl vm.nr_hugepages=1024",
			"%stransparent ones are off: registering memory takes longer, and NICs miss more in their tables", reserved(pools))
	}
}

func reserved(pools []string) string {
	if len(pools) == 0 {
		return "none are reserved; "
	}
	return strings.Join(pools, "; ") + ", too few for the first arenas; "
}

// losses are counters that rise when packets are lost or come out of order, by
// the names of several drivers (mlx5, irdma, bnxt_re, rxe), with what each means.
var losses = map[string]string{
	"out_of_sequence":                "packets came out of order",
	"packet_seq_err":                 "peers said that packets are missing",
	"local_ack_timeout_err":          "acknowledgements did not come in time",
	"rcvd_seq_err":                   "peers said that packets are missing",
	"out_of_seq_request":             "packets came out of order",
	"retry_exceeded_err":             "connections were given up after all retries",
	"oos_drop_count":                 "packets came out of order and were dropped",
	"max_retry_exceeded":             "connections were given up after all retries",
	"req_transport_retries_exceeded": "connections were given up after all retries",
}

func (e *examiner) congestion() {
	d := e.chosen()
	if d == nil {
		return
	}
	f, c := e.facts, e.facts.Choice
	const check = "congestion"
	if f.NoCounters != nil && !errors.Is(f.NoCounters, verbs.ErrUnavailable) {
		e.warn(check, doRead, "not all counters could be read: %v", f.NoCounters)
	}
	if c.Link != verbs.LinkEthernet {
		return
	}
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(losses)) {
		if n := f.Counters[name]; n > 0 {
			lost = append(lost, fmt.Sprintf("%s %d (%s)", name, n, losses[name]))
		}
	}
	if len(lost) > 0 {
		do := "make the network lossless for RoCE: PFC on one priority on NICs and every switch between, or ECN (DCQCN); see that --rdma-traffic-class is of that priority"
		if d.Software() {
			do = "look where packets are lost: ip -s link, tc -s qdisc"
		}
		e.warn(check, do, "since the counters began: %s", strings.Join(lost, ", "))
	} else if len(f.Counters) > 0 {
		e.ok(check, "the counters tell of no lost packets")
	}
	if d.Software() {
		return
	}
	e.pfc()
	if len(f.ECN) > 0 {
		var on []string
		for _, prio := range slices.Sorted(maps.Keys(f.ECN)) {
			if f.ECN[prio] {
				on = append(on, fmt.Sprint(prio))
			}
		}
		if len(on) == 0 {
			e.warn("ECN", "echo 1 > /sys/class/net/"+c.Netdev+"/ecn/roce_np/enable/3, and roce_rp likewise, for the priority of RoCE",
				"%s answers packets that switches marked in no priority", c.Netdev)
		} else {
			e.ok("ECN", "%s answers packets that switches marked in priority %s", c.Netdev, strings.Join(on, ", "))
		}
	}
	if sent, handled := f.Counters["np_cnp_sent"], f.Counters["rp_cnp_handled"]; sent+handled > 0 {
		e.ok("ECN", "it works: %d notifications of congestion were sent and %d were obeyed", sent, handled)
	}
}

// pfc judges the pauses of the chosen netdev. Where NICs and switches go by the
// DSCP, its upper three bits are the priority unless somebody has set another
// table.
func (e *examiner) pfc() {
	f := e.facts
	if f.PFC == nil {
		return
	}
	const check = "PFC"
	on := f.PFC.Priorities()
	ours := int(f.TrafficClass >> 5)
	var words []string
	for _, p := range on {
		words = append(words, fmt.Sprintf("%d (%d pauses sent, %d received)", p, f.PFC.Sent[p], f.PFC.Received[p]))
	}
	notified := slices.Contains(slices.Collect(maps.Values(f.ECN)), true)
	switch {
	case len(on) == 0 && notified:
		e.ok(check, "%s pauses no priority, and ECN is on", f.Choice.Netdev)
	case len(on) == 0:
		e.warn(check, "pause the priority of RoCE on NICs and every switch between (dcb pfc set dev "+f.Choice.Netdev+" prio-pfc 3:on), or use ECN",
			"%s pauses no priority: packets are lost where a queue is full", f.Choice.Netdev)
	case !slices.Contains(on, ours):
		e.warn(check, fmt.Sprintf("--rdma-traffic-class %d, or whatever this network maps to priority %d", on[0]<<5, on[0]),
			"%s pauses priority %s; packets with --rdma-traffic-class %d are of priority %d where the DSCP decides", f.Choice.Netdev, strings.Join(words, ", "), f.TrafficClass, ours)
	default:
		e.ok(check, "%s pauses priority %s, and packets are of %d", f.Choice.Netdev, strings.Join(words, ", "), ours)
	}
}

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

// bytesText tells bytes in powers of 1024, as limits and pages are told.
func bytesText(n uint64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v /= 1024
		u++
	}
	if v == float64(uint64(v)) {
		return fmt.Sprintf("%d %s", uint64(v), units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
