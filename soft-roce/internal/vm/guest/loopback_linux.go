package guest

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// loopback sets lo up, which also gives it its addresses.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set network interface lo up: %w", err)
	}
	return nil
}
