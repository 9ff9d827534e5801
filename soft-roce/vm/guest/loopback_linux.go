package guest

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// loopback switches lo on, which gives it its addresses.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("switch lo on: %w", err)
	}
	return nil
}
