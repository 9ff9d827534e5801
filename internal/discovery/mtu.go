package discovery

import (
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
)

// Headers is what a packet of the device takes of its netdev's MTU, in bytes.
func (d *Device) Headers() int {
	if d.Driver == driverRxe || d.Driver == driverRoCE {
		return rxeHeaders
	}
	return nicHeaders
}

var mtus = [...]verbs.MTU{verbs.MTU4096, verbs.MTU2048, verbs.MTU1024, verbs.MTU512, verbs.MTU256}

// RoCEMTU is the path MTU of a port whose netdev has that MTU, both in bytes: the
// largest that fits beside the headers. 0 when none does: then the port cannot
// be used.
func RoCEMTU(netdev, headers int) verbs.MTU {
	for _, m := range mtus {
		if int(m) <= netdev-headers {
			return m
		}
	}
	return 0
}

// MTUHint says what a netdev's MTU costs in path MTU and what would mend it; ""
// when the path MTU is the largest there is.
func MTUHint(netdev string, mtu, headers int) string {
	got := RoCEMTU(mtu, headers)
	switch got {
	case verbs.MTU4096:
		return ""
	case 0:
		return fmt.Sprintf("%s has MTU %d, too small for any packet of RoCE: it needs %d at least (ip link set %s mtu %d)",
			netdev, mtu, int(verbs.MTU256)+headers, netdev, int(verbs.MTU256)+headers)
	}
	want := int(verbs.MTU4096) + headers
	return fmt.Sprintf("%s has MTU %d, which makes a path MTU of %d; %d or more make 4096, if every switch between takes it too (ip link set %s mtu 9000)",
		netdev, mtu, int(got), want, netdev)
}

// PathMTU is the path MTU to use: what was asked for, at most the port's active
// MTU; with asked 0, the active MTU. The two may be equal. The error is
// verbs.ErrInvalid. With active 0 it is not known yet, and whatever is valid
// passes: it is checked again when the device is open.
func PathMTU(asked, active verbs.MTU) (verbs.MTU, error) {
	switch {
	case asked == 0:
		return active, nil
	case !asked.Valid():
		return 0, verbs.Errorf("choose path MTU", fmt.Sprint(int(asked)), verbs.ErrInvalid, "there are 256, 512, 1024, 2048 and 4096")
	case active != 0 && asked > active:
		return 0, verbs.Errorf("choose path MTU", fmt.Sprint(int(asked)), verbs.ErrInvalid,
			"the port's active MTU is %d, and packets cannot be larger; ask for %d or less, or raise the MTU of the network", int(active), int(active))
	}
	return asked, nil
}
