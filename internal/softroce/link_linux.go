package softroce

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
)

// linkType is the driver's name in RDMA_NLDEV_ATTR_LINK_TYPE (drivers/infiniband/sw/rxe/rxe.c).
const linkType = "rxe"

// Device is an RDMA device of the driver rdma_rxe.
type Device struct {
	Name   string // of the RDMA device, as in libibverbs
	Netdev string // the network interface under it
}

// AddDevice adds the RDMA device name on the network interface netdev; rdma-link(8), "rdma link
// add". The device exists when AddDevice returns. Its port becomes active when the interface is
// up, see [WaitActive].
func AddDevice(name, netdev string) error {
	if err := checkName("RDMA device", name, nameMax); err != nil {
		return err
	}
	if err := checkName("network interface", netdev, netdevMax); err != nil {
		return err
	}
	return addError(name, netdev, netlink.RdmaLinkAdd(name, linkType, netdev))
}

// RemoveDevice removes the RDMA device name; rdma-link(8), "rdma link delete". It refuses a device
// of another driver. It blocks until all processes have closed the device, so the caller must
// not have it open.
func RemoveDevice(name string) error {
	links, err := Devices()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(links, func(l Device) bool { return l.Name == name }) {
		return status.Errorf(status.NotFound, "remove RDMA link %s: no Soft-RoCE device has that name; existing devices: %s", name, list(links))
	}
	return removeError(name, netlink.RdmaLinkDel(name))
}

// Devices returns the Soft-RoCE devices of this machine, sorted by name. It returns none, without
// an error, if the kernel has no RDMA.
func Devices() ([]Device, error) { return linksIn("/sys/class/infiniband") }

// linksIn reads the devices from sysfs. Only rdma_rxe has the file parent, with the name of the
// interface (rxe_verbs.c, parent_show).
func linksIn(class string) ([]Device, error) {
	entries, err := os.ReadDir(class)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, status.Errorf(status.Internal, "list Soft-RoCE devices: %w", err)
	}
	var links []Device
	for _, e := range entries {
		parent, err := os.ReadFile(filepath.Join(class, e.Name(), "parent"))
		if err != nil {
			continue // a device of another driver, or just removed
		}
		links = append(links, Device{Name: e.Name(), Netdev: strings.TrimSpace(string(parent))})
	}
	return links, nil
}

// WaitActive waits until port 1 of the device is active and its GID table has an IPv4 address of
// the interface. The kernel adds that shortly after the interface is up and has the address. If
// ctx ends first, the error has what is missing.
func WaitActive(ctx context.Context, name string) error {
	return waitActiveIn(ctx, "/sys/class/infiniband", name)
}

func waitActiveIn(ctx context.Context, class, name string) error {
	tick := time.NewTicker(activePeriod)
	defer tick.Stop()
	for {
		missing := missingIn(filepath.Join(class, name, "ports", "1"))
		if missing == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return status.Errorf(status.DeadlineExceeded, "RDMA device %s is not active: %s: %w", name, missing, context.Cause(ctx))
		}
	}
}

// missingIn returns what the port lacks for use; "" if nothing.
func missingIn(port string) string {
	state, err := os.ReadFile(filepath.Join(port, "state")) // "4: ACTIVE"
	if err != nil {
		return "its state cannot be read (" + err.Error() + ")"
	}
	if s := strings.TrimSpace(string(state)); !strings.HasSuffix(s, " ACTIVE") {
		return "its port is in state " + s + "; is the interface up?"
	}
	gids, err := os.ReadDir(filepath.Join(port, "gids"))
	if err != nil {
		return "its GID table cannot be read (" + err.Error() + ")"
	}
	for _, g := range gids {
		gid, err := os.ReadFile(filepath.Join(port, "gids", g.Name()))
		// The GID of an IPv4 address is the mapped address: 0000:0000:0000:0000:0000:ffff:c000:0201.
		if err == nil && strings.HasPrefix(string(gid), "0000:0000:0000:0000:0000:ffff:") {
			return ""
		}
	}
	return "its GID table has no IPv4 address; does the interface have one?"
}

// checkName refuses names that the kernel would truncate or read as a path.
func checkName(what, name string, most int) error {
	if name == "" || len(name) > most || strings.ContainsAny(name, "/ \t\n\x00") {
		return status.Errorf(status.InvalidArgument, "%s %q: the name must have 1 to %d bytes, without slashes and spaces", what, name, most)
	}
	return nil
}

// noDriver is the advice for a kernel without rdma_rxe.
const noDriver = "this kernel has no Soft-RoCE loaded: modprobe rdma_rxe, or where the kernel is built without it, use the VM (make rxe-vm)"

// addError explains the kernel's error for RDMA_NLDEV_CMD_NEWLINK (nldev.c nldev_newlink, rxe.c
// rxe_newlink).
func addError(name, netdev string, err error) error {
	code, advice := status.Internal, ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		// No netlink family without ib_core; no link type of that name without rdma_rxe.
		code, advice = status.FailedPrecondition, noDriver
	case errors.Is(err, unix.ENODEV):
		code, advice = status.NotFound, "there is no network interface "+netdev+": ip link shows those that there are"
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENFILE):
		code, advice = status.AlreadyExists, "the name is taken, or the interface has a Soft-RoCE device already: rdma link shows them"
	case errors.Is(err, unix.ENOENT):
		code, advice = status.FailedPrecondition, "the kernel lacks the checksum that Soft-RoCE needs: modprobe crc32_generic"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		code, advice = status.PermissionDenied, "the right to change the network is needed: run as root, or with CAP_NET_ADMIN"
	default:
		advice = "the kernel refused"
	}
	return status.Errorf(code, "add RDMA link %s on %s: %s: %w", name, netdev, advice, err)
}

// removeError explains the kernel's error for RDMA_NLDEV_CMD_DELLINK.
func removeError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return status.Errorf(status.PermissionDenied, "remove RDMA link %s: the right to change the network is needed: run as root, or with CAP_NET_ADMIN: %w", name, err)
	default:
		return status.Errorf(status.Internal, "remove RDMA link %s: the kernel refused: %w", name, err)
	}
}

// list returns the names of the links, for an error.
func list(links []Device) string {
	if len(links) == 0 {
		return "none"
	}
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return strings.Join(names, ", ")
}
