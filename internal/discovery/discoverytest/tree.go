// Package discoverytest has hosts to discover: trees of sysfs as the kernel
// makes them for several kinds of devices, with what netlink says beside them.
//
// A tree is a text file under trees/, a line for each thing:
//
//	# words
//	dir PATH                     an empty directory
//	PATH = TEXT                  a file, with a line feed behind the text
//	PATH -> TARGET               a symbolic link
//	PATH ! EINVAL                a file that can be opened and gives this error when read
//	table PORT N                 a GID table of N empty entries, PORT being .../ports/1
//	gid PORT INDEX GID TYPE NETDEV    an entry of it; a NETDEV of - is none
//	addr NETDEV PREFIX           an address of a netdev
//	link NAME INDEX DRIVER       a device as netlink has it, with the number of its driver
//	port NAME NUMBER NETDEV      a port as netlink has it; a NETDEV of - is none
package discoverytest

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

//go:embed trees/*.txt
var trees embed.FS

// Names lists the trees.
func Names() []string {
	files, err := fs.Glob(trees, "trees/*.txt")
	if err != nil {
		return nil
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".txt"))
	}
	return names
}

// Text is a tree's text.
func Text(t testing.TB, name string) string {
	t.Helper()
	b, err := trees.ReadFile("trees/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Load is the host of a tree.
func Load(t testing.TB, name string) *Host {
	t.Helper()
	h, err := Parse(Text(t, name))
	if err != nil {
		t.Fatalf("tree %s: %v", name, err)
	}
	return h
}

// Read is the inventory of a tree's host.
func Read(t testing.TB, name string) discovery.Inventory {
	t.Helper()
	inv, err := Load(t, name).System().Read()
	if err != nil {
		t.Fatalf("tree %s: %v", name, err)
	}
	return inv
}

// Host is a host that is not there. Its parts may be changed before System.
type Host struct {
	Files   fstest.MapFS
	Fails   map[string]error // files that cannot be read
	Addrs   map[string][]netip.Prefix
	Netlink Netlink
	// Nodes are the errors of opening nodes under /dev/infiniband; those that
	// are not here can be opened.
	Nodes map[string]error
}

// System is the host as discovery sees it.
func (h *Host) System() discovery.System {
	return discovery.System{
		Sys:      tree{h.Files, h.Fails},
		Netlink:  &h.Netlink,
		Addrs:    func() (map[string][]netip.Prefix, error) { return h.Addrs, nil },
		OpenNode: func(path string) error { return h.Nodes[path] },
	}
}

// Set makes a file say something else.
func (h *Host) Set(name, text string) {
	h.Files[name] = &fstest.MapFile{Data: []byte(text + "\n"), Mode: 0o444}
	delete(h.Fails, name)
}

// Fail makes a file give an error when it is read.
func (h *Host) Fail(name string, err error) {
	h.Set(name, "")
	h.Fails[name] = err
}

// Remove takes away a file or a directory with all that is in it.
func (h *Host) Remove(name string) {
	maps.DeleteFunc(h.Files, func(p string, _ *fstest.MapFile) bool { return p == name || strings.HasPrefix(p, name+"/") })
}

// tree is a file system with files that cannot be read, as sysfs has them.
type tree struct {
	fstest.MapFS
	fails map[string]error
}

func (t tree) Open(name string) (fs.File, error) {
	f, err := t.MapFS.Open(name)
	if fail := t.fails[name]; err == nil && fail != nil {
		return broken{f, &fs.PathError{Op: "read", Path: name, Err: fail}}, nil
	}
	return f, err
}

func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	if fail := t.fails[name]; fail != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fail}
	}
	return t.MapFS.ReadDir(name)
}

type broken struct {
	fs.File
	err error
}

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// Netlink is a discovery.Netlink from memory.
type Netlink struct {
	DeviceList []discovery.NetlinkDevice
	PortList   map[uint32][]discovery.NetlinkPort
	Drivers    map[uint32]discovery.NetlinkDriver
	Counts     map[uint32]map[string]uint64
	OneNetns   bool
	// PFCs are by netdev; those that are not here do not tell.
	PFCs map[string]discovery.PFC
	// Err is what every request ends with, if not nil.
	Err error
}

// Devices implements discovery.Netlink.
func (n *Netlink) Devices() ([]discovery.NetlinkDevice, error) { return n.DeviceList, n.Err }

// Ports implements discovery.Netlink.
func (n *Netlink) Ports(index uint32) ([]discovery.NetlinkPort, error) {
	return n.PortList[index], n.Err
}

// Objects implements discovery.Netlink.
func (n *Netlink) Objects(index uint32) (map[string]uint64, error) { return n.Counts[index], n.Err }

// Driver implements discovery.Netlink.
func (n *Netlink) Driver(index uint32) (discovery.NetlinkDriver, error) {
	return n.Drivers[index], n.Err
}

// Exclusive implements discovery.Netlink.
func (n *Netlink) Exclusive() (bool, error) { return n.OneNetns, n.Err }

// PFC implements discovery.Netlink.
func (n *Netlink) PFC(netdev string) (discovery.PFC, error) {
	p, ok := n.PFCs[netdev]
	if !ok {
		return p, verbs.Errorf("ask for PFC of", netdev, errors.ErrUnsupported, "its driver does not tell")
	}
	return p, nil
}

// Parse makes a host from the text of a tree.
func Parse(text string) (*Host, error) {
	h := &Host{
		Files: fstest.MapFS{}, Fails: map[string]error{}, Addrs: map[string][]netip.Prefix{}, Nodes: map[string]error{},
		Netlink: Netlink{
			PortList: map[uint32][]discovery.NetlinkPort{}, Drivers: map[uint32]discovery.NetlinkDriver{},
			Counts: map[uint32]map[string]uint64{},
		},
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := h.line(line); err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", number, line, err)
		}
	}
	return h, nil
}

func (h *Host) line(line string) error {
	if name, text, ok := strings.Cut(line, " = "); ok {
		h.Set(name, text)
		return nil
	}
	if name, ok := strings.CutSuffix(line, " ="); ok {
		h.Set(name, "")
		return nil
	}
	if name, target, ok := strings.Cut(line, " -> "); ok {
		h.Files[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
		return nil
	}
	if name, errno, ok := strings.Cut(line, " ! "); ok {
		errs := map[string]error{"EINVAL": syscall.EINVAL, "EACCES": syscall.EACCES, "EIO": syscall.EIO, "EOPNOTSUPP": syscall.EOPNOTSUPP}
		if errs[errno] == nil {
			return errors.New("an error that is not known here")
		}
		h.Fail(name, errs[errno])
		return nil
	}
	words := strings.Fields(line)
	switch {
	case words[0] == "dir" && len(words) == 2:
		h.Files[words[1]] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		return nil
	case words[0] == "table" && len(words) == 3:
		n, err := strconv.Atoi(words[2])
		for i := range n {
			at := strconv.Itoa(i)
			h.Set(path.Join(words[1], "gids", at), "0000:0000:0000:0000:0000:0000:0000:0000")
			h.Fail(path.Join(words[1], "gid_attrs/types", at), syscall.EINVAL)
			h.Fail(path.Join(words[1], "gid_attrs/ndevs", at), syscall.EINVAL)
		}
		return err
	case words[0] == "gid" && len(words) >= 6:
		h.Set(path.Join(words[1], "gids", words[2]), words[3])
		h.Set(path.Join(words[1], "gid_attrs/types", words[2]), strings.Join(words[4:len(words)-1], " "))
		if dev := words[len(words)-1]; dev != "-" {
			h.Set(path.Join(words[1], "gid_attrs/ndevs", words[2]), dev)
		}
		return nil
	case words[0] == "addr" && len(words) == 3:
		p, err := netip.ParsePrefix(words[2])
		h.Addrs[words[1]] = append(h.Addrs[words[1]], p)
		return err
	case words[0] == "link" && len(words) == 4:
		index, err := strconv.ParseUint(words[2], 10, 32)
		driver, err2 := strconv.ParseUint(words[3], 10, 32)
		h.Netlink.DeviceList = append(h.Netlink.DeviceList, discovery.NetlinkDevice{Index: uint32(index), Name: words[1]})
		h.Netlink.Drivers[uint32(index)] = discovery.NetlinkDriver{ID: driver}
		return errors.Join(err, err2)
	case words[0] == "port" && len(words) == 4:
		i := slices.IndexFunc(h.Netlink.DeviceList, func(l discovery.NetlinkDevice) bool { return l.Name == words[1] })
		number, err := strconv.ParseUint(words[2], 10, 32)
		if i < 0 || err != nil {
			return errors.New("a port of no link")
		}
		l := &h.Netlink.DeviceList[i]
		l.Ports++
		p := discovery.NetlinkPort{Number: uint32(number), State: verbs.PortActive}
		if words[3] != "-" {
			p.Netdev = words[3]
		}
		h.Netlink.PortList[l.Index] = append(h.Netlink.PortList[l.Index], p)
		return nil
	}
	return errors.New("a line that is not known here")
}
