package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// Read looks what there is. The error says why nothing can be told; without RDMA
// in the kernel, or without devices, the inventory is without devices and the
// error nil. What cannot be read of one device is its Problem, and hides neither
// the rest of it nor the other devices.
func (s System) Read() (Inventory, error) {
	names, err := s.devices().Devices()
	if err != nil {
		return Inventory{}, &verbs.Error{Op: "list RDMA devices", Err: err}
	}
	r := reader{sysfs: s.sysfs()}
	r.readNetdevs(s.Addrs)
	links := r.readNetlink(s.Netlink)
	for _, name := range names {
		r.inv.Devices = append(r.inv.Devices, r.device(name, s.Netlink, links))
	}
	slices.SortFunc(r.inv.Devices, func(a, b Device) int { return natural(a.Name, b.Name) })
	return r.inv, nil
}

// reader is a Read under way.
type reader struct {
	sysfs sysfs
	inv   Inventory
}

func (r *reader) problem(format string, args ...any) {
	r.inv.Problems = append(r.inv.Problems, fmt.Errorf(format, args...))
}

func (r *reader) readNetdevs(addrs func() (map[string][]netip.Prefix, error)) {
	names, err := r.sysfs.names(classNet)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.problem("list network devices: %w", err)
	}
	for _, name := range names {
		if r.sysfs.has(classNet, name, "mtu") { // bonding_masters lies beside them
			r.inv.Netdevs = append(r.inv.Netdevs, r.netdev(name))
		}
	}
	if addrs == nil {
		return
	}
	all, err := addrs()
	if err != nil {
		r.problem("addresses of network devices: %w", err)
	}
	for i := range r.inv.Netdevs {
		r.inv.Netdevs[i].Addrs = all[r.inv.Netdevs[i].Name]
	}
}

func (r *reader) netdev(name string) Netdev {
	n := Netdev{Name: name, Bond: r.sysfs.has(classNet, name, "bonding")}
	var err error
	if n.MTU, err = read(r.sysfs, strconv.Atoi, classNet, name, "mtu"); err != nil {
		r.problem("network device %s: %w", name, err)
	}
	if n.State, err = r.sysfs.text(classNet, name, "operstate"); err != nil && !absent(err) {
		r.problem("network device %s: %w", name, err)
	}
	n.Up = n.State == "up" || n.State == "unknown" // lo and dummies do not know
	if n.Master, err = r.sysfs.link(classNet, name, "master"); err != nil && !absent(err) {
		r.problem("network device %s: %w", name, err)
	}
	// Some kinds (tun) have no address, or one in another form: only IPoIB's counts.
	n.hardware, _ = read(r.sysfs, parseHardware, classNet, name, "address")
	return n
}

// readNetlink returns what netlink has of each device; without it sysfs alone has to do.
func (r *reader) readNetlink(kernel Netlink) map[string]NetlinkDevice {
	if kernel == nil {
		return nil
	}
	links, err := kernel.Devices()
	if err != nil {
		if !errors.Is(err, verbs.ErrUnavailable) { // then there are no devices, as sysfs says as well
			r.problem("what netlink knows of RDMA devices is missing: %w", err)
		}
		return nil
	}
	byName := make(map[string]NetlinkDevice, len(links))
	for _, l := range links {
		byName[l.Name] = l
	}
	return byName
}

// deviceReader reads one device.
type deviceReader struct {
	*reader
	dir string // in sysfs
	dev *Device
}

func (r *deviceReader) problem(err error) {
	r.dev.Problems = append(r.dev.Problems, fmt.Errorf("%s: %w", r.dev.Name, err))
}

// attr reads an attribute that every device has.
func attr[T any](r *deviceReader, parse func(string) (T, error), elem ...string) T {
	v, err := read(r.sysfs, parse, append([]string{r.dir}, elem...)...)
	if err != nil {
		r.problem(err)
	}
	return v
}

// optional reads an attribute that only some have: without it, the fallback.
func optional[T any](r *deviceReader, parse func(string) (T, error), fallback T, elem ...string) T {
	v, err := read(r.sysfs, parse, append([]string{r.dir}, elem...)...)
	if err == nil {
		return v
	}
	if !absent(err) {
		r.problem(err)
	}
	return fallback
}

func verbatim(s string) (string, error) { return s, nil }

func (r *reader) device(name string, kernel Netlink, links map[string]NetlinkDevice) Device {
	d := Device{Name: name, NUMA: -1}
	dr := &deviceReader{r, path.Join(classRDMA, name), &d}
	d.NodeGUID = attr(dr, parseGUID, "node_guid")
	d.NodeType = attr(dr, parseNodeType, "node_type")
	d.Model = optional(dr, verbatim, "", "hca_type")
	d.Firmware = optional(dr, verbatim, "", "fw_ver")
	d.NUMA = optional(dr, strconv.Atoi, -1, "device", "numa_node")
	d.Virtual = r.sysfs.has(dr.dir, "device", "physfn")
	if pci, err := r.sysfs.link(dr.dir, "device"); err == nil && strings.Count(pci, ":") == 2 {
		d.PCI = pci
	}
	if driver, err := r.sysfs.link(dr.dir, "device", "driver"); err == nil {
		d.Driver = driver
	}
	parent := optional(dr, verbatim, "", "parent") // Soft-RoCE's netdev
	if parent != "" {
		d.Driver = driverRxe
	}
	d.Uverbs = dr.node()

	var ports []NetlinkPort
	if link, ok := links[name]; ok {
		ports = dr.link(kernel, link)
	} else if links != nil {
		dr.problem(errors.New("sysfs has it, and netlink has not: it came or went just now"))
	}
	if d.Software() { // what is in its "device" is its netdev's
		d.PCI, d.Virtual = "", false
	}

	numbers, err := r.sysfs.names(dr.dir, "ports")
	if err != nil {
		dr.problem(err)
	}
	for _, text := range numbers {
		n, ok := parseIndex(text, 8)
		if !ok || n == 0 {
			dr.problem(fmt.Errorf("%s/ports has %q, and that is no port", dr.dir, text))
			continue
		}
		p := dr.port(n)
		dr.netdevOf(&p, ports, parent)
		if p.Link == verbs.LinkEthernet {
			if n := r.inv.Netdev(p.Netdev); n != nil {
				p.ActiveMTU = RoCEMTU(n.MTU, d.Headers())
			}
		}
		d.Ports = append(d.Ports, p)
	}
	return d
}

func parseNodeType(s string) (NodeType, error) {
	n, _, err := parseNumbered(s)
	return NodeType(n), err
}

// node finds the device's node of ib_uverbs.
func (r *deviceReader) node() string {
	nodes, err := treeMap{r.sysfs}.Nodes(r.dev.Name)
	if err != nil {
		r.problem(err)
	}
	if len(nodes) == 0 {
		return ""
	}
	return path.Base(nodes[0])
}

// link adds what netlink knows, and returns its view of the ports.
func (r *deviceReader) link(kernel Netlink, link NetlinkDevice) []NetlinkPort {
	if r.dev.Firmware == "" {
		r.dev.Firmware = link.Firmware
	}
	if driver, err := kernel.Driver(link.Index); err == nil { // kernels before 5.2 cannot tell, nor without ib_uverbs
		switch driver.ID {
		case driverIDRxe:
			r.dev.Driver = driverRxe
		case driverIDSiw:
			r.dev.Driver = driverSiw
		}
	}
	ports, err := kernel.Ports(link.Index)
	if err != nil {
		r.problem(err)
	}
	return ports
}

func (r *deviceReader) port(number int) Port {
	dir := path.Join("ports", strconv.Itoa(number))
	p := Port{Number: uint8(number)}
	p.State = attr(r, parsePortState, dir, "state")
	p.Physical = optional(r, parseName, "", dir, "phys_state")
	p.Link = attr(r, parseLink, dir, "link_layer")
	p.LID = optional(r, parseLID, 0, dir, "lid")
	p.Rate = optional(r, parseRate, Rate{}, dir, "rate")

	entries, err := r.sysfs.names(r.dir, dir, "gids")
	if err != nil {
		r.problem(err)
	}
	for _, text := range entries {
		index, ok := parseIndex(text, 31)
		if !ok {
			r.problem(fmt.Errorf("%s/%s/gids has %q, and that is no index", r.dir, dir, text))
			continue
		}
		p.TableSize = max(p.TableSize, index+1)
		if g, ok := r.gid(dir, text, index, p.Link); ok {
			p.GIDs = append(p.GIDs, g)
		}
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return cmp.Compare(a.Index, b.Index) })
	return p
}

func parseName(s string) (string, error) {
	_, name, err := parseNumbered(s)
	return name, err
}

// gid reads an entry of the table; false when it is empty.
func (r *deviceReader) gid(port, entry string, index int, link verbs.LinkLayer) (GID, bool) {
	at := func(elem ...string) []string { return append([]string{r.dir, port}, elem...) }
	gid, err := read(r.sysfs, parseGID, at("gids", entry)...)
	if err != nil {
		if !emptyEntry(err) {
			r.problem(err)
		}
		return GID{}, false
	}
	if gid.IsZero() {
		return GID{}, false
	}
	g := GID{GIDEntry: verbs.GIDEntry{Index: index, GID: gid}}
	g.Type, err = read(r.sysfs, func(s string) (verbs.GIDType, error) { return parseGIDType(s, link) }, at("gid_attrs", "types", entry)...)
	if err != nil {
		if emptyEntry(err) { // it went between the two reads
			return GID{}, false
		}
		r.problem(err)
	}
	g.Netdev, err = r.sysfs.text(at("gid_attrs", "ndevs", entry)...)
	if err != nil && !emptyEntry(err) && !absent(err) { // InfiniBand has none
		r.problem(err)
	}
	return g, true
}

// netdevOf finds the port's own netdev: netlink knows it; else Soft-RoCE names
// its parent, IPoIB's address ends in the port's GUID, and the first entries of
// a RoCE table are of the port's own netdev (or of the bond that it is in).
func (r *deviceReader) netdevOf(p *Port, links []NetlinkPort, parent string) {
	for _, l := range links {
		if l.Number == uint32(p.Number) && l.Netdev != "" {
			p.Netdev = l.Netdev
			return
		}
	}
	switch {
	case parent != "":
		p.Netdev = parent
	case len(p.GIDs) == 0:
	case p.Link == verbs.LinkInfiniBand:
		for _, n := range r.inv.Netdevs {
			if len(n.hardware) == ipoibAddress && string(n.hardware[12:]) == string(p.GIDs[0].GID[8:]) {
				p.Netdev = n.Name
				return
			}
		}
	default:
		p.Netdev = p.GIDs[0].Netdev
	}
}
