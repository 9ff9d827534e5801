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

// Link is an RDMA device of the driver rdma_rxe.
type Link struct {
	Name   string // of the RDMA device, as libibverbs says it
	Netdev string // the network interface under it
}

// AddLink makes the RDMA device name on the network interface netdev; rdma-link(8), "rdma link add". It is there when AddLink
// returns; its port is active once the interface is up, see [WaitActive].
func AddLink(name, netdev string) error {
	if err := checkName("RDMA device", name, nameMax); err != nil {
		return err
	}
	if err := checkName("network interface", netdev, netdevMax); err != nil {
		return err
	}
	return addError(name, netdev, netlink.RdmaLinkAdd(name, linkType, netdev))
}

// RemoveLink removes the RDMA device name; rdma-link(8), "rdma link delete". It refuses a device of another driver. The kernel answers
// only when all processes have closed the device: the caller must not have it open.
func RemoveLink(name string) error {
	links, err := Links()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(links, func(l Link) bool { return l.Name == name }) {
		return status.Errorf(status.NotFound, "remove RDMA link %s: there is no Soft-RoCE device of that name; there are: %s", name, list(links))
	}
	return removeError(name, netlink.RdmaLinkDel(name))
}

// Links lists the Soft-RoCE devices of this machine by name. None is no error, even where the kernel knows no RDMA.
func Links() ([]Link, error) { return linksIn("/sys/class/infiniband") }

// linksIn reads the devices from sysfs: the file parent, with the interface's name, is rdma_rxe's own (rxe_verbs.c, parent_show).
func linksIn(class string) ([]Link, error) {
	entries, err := os.ReadDir(class)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, status.Errorf(status.Internal, "list Soft-RoCE devices: %w", err)
	}
	var links []Link
	for _, e := range entries {
		parent, err := os.ReadFile(filepath.Join(class, e.Name(), "parent"))
		if err != nil {
			continue // Another driver's, or removed in this moment.
		}
		links = append(links, Link{Name: e.Name(), Netdev: strings.TrimSpace(string(parent))})
	}
	return links, nil
}

// WaitActive waits until port 1 of the device is active and its GID table has an IPv4 address of the interface, which comes a moment after
// the interface is up and has one. The error, when the context ends first, says what was missing.
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

// missingIn says what the port lacks for use, or "".
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
		// An IPv4 address is mapped: 0000:0000:0000:0000:0000:ffff:c000:0201.
		if err == nil && strings.HasPrefix(string(gid), "0000:0000:0000:0000:0000:ffff:") {
			return ""
		}
	}
	return "its GID table has no IPv4 address; has the interface one?"
}

// checkName refuses what the kernel would cut off or read as a path.
func checkName(what, name string, most int) error {
	if name == "" || len(name) > most || strings.ContainsAny(name, "/ \t\n\x00") {
		return status.Errorf(status.InvalidArgument, "%s %q: a name of 1 to %d bytes without slashes and spaces is needed", what, name, most)
	}
	return nil
}

// noDriver is what to do when the kernel has no rdma_rxe.
const noDriver = "this kernel has no Soft-RoCE loaded: modprobe rdma_rxe, or where the kernel is built without it, use the VM (make rxe-vm)"

// addError puts the kernel's answer to RDMA_NLDEV_CMD_NEWLINK into words (nldev.c nldev_newlink, rxe.c rxe_newlink).
func addError(name, netdev string, err error) error {
	code, words := status.Internal, ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		// No netlink family without ib_core; no link type of that name without rdma_rxe.
		code, words = status.FailedPrecondition, noDriver
	case errors.Is(err, unix.ENODEV):
		code, words = status.NotFound, "there is no network interface "+netdev+": ip link shows those that there are"
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENFILE):
		code, words = status.AlreadyExists, "the name is taken, or the interface has a Soft-RoCE device already: rdma link shows them"
	case errors.Is(err, unix.ENOENT):
		code, words = status.FailedPrecondition, "the kernel lacks the checksum that Soft-RoCE needs: modprobe crc32_generic"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		code, words = status.PermissionDenied, "the right to change the network is needed: run as root, or with CAP_NET_ADMIN"
	default:
		words = "the kernel refuses"
	}
	return status.Errorf(code, "add RDMA link %s on %s: %s: %w", name, netdev, words, err)
}

// removeError puts the kernel's answer to RDMA_NLDEV_CMD_DELLINK into words.
func removeError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return status.Errorf(status.PermissionDenied, "remove RDMA link %s: the right to change the network is needed: run as root, or with CAP_NET_ADMIN: %w", name, err)
	default:
		return status.Errorf(status.Internal, "remove RDMA link %s: the kernel refuses: %w", name, err)
	}
}

// list names the links for an error.
func list(links []Link) string {
	if len(links) == 0 {
		return "none"
	}
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return strings.Join(names, ", ")
}
