package devices

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// rnrRetries is how often a device sends a message again to a peer without a posted
// receive. The credits of a channel prevent that, so it shows a fault and must end;
// 7 would mean forever.
const rnrRetries = 6

// timeoutOf returns the setting rdma.timeout, or the default of the provider.
func timeoutOf(set time.Duration, p providers.Row) time.Duration {
	return cmp.Or(set, p.Timeout, providers.NICTimeout)
}

// queuePairsOf returns the setting rdma.queue-pairs, or the default of the provider.
func queuePairsOf(set int, p providers.Row) int {
	return cmp.Or(set, p.QueuePairs, providers.NICQueuePairs)
}

// portOptions are a device, with its port and address, as the transport takes them.
func portOptions(s Selection, c RDMA) verbstransport.PortOptions {
	return verbstransport.PortOptions{
		Device:  s.Device,
		Address: verbs.GIDEntry{Index: s.Choice.GIDIndex, GID: s.Choice.GID, Type: s.Choice.Type},
		Again:   replacementAddress(c), Path: path(s, c), Rails: queuePairsOf(c.QueuePairs, s.row),
	}
}

// path returns the attributes with which queue pairs send.
func path(on Selection, s RDMA) verbs.Path {
	p := verbs.Path{
		Port: on.Choice.Port, MTU: on.Choice.MTU, PKeyIndex: uint16(s.PKeyIndex), TrafficClass: uint8(s.TrafficClass), ServiceLevel: uint8(s.ServiceLevel), //nolint:gosec // limits of the settings
		Timeout: verbs.TimeoutCode(timeoutOf(s.Timeout, on.row)), RNRRetry: rnrRetries,
	}
	if s.Retry != nil {
		p.Retry = uint8(*s.Retry) //nolint:gosec // likewise
	}
	return p
}

// namesDevice reports whether the settings name a device, port or address. Then its absence is
// an error and no reason for the fallback.
func namesDevice(c RDMA) bool { return c.Device != "" || c.Port != 0 || c.GIDIndex != nil }

// replacementAddress returns the function that finds another address of the device when the chosen
// one is permanently gone, for example because DHCP assigned another one. It returns nil if the
// settings name the address.
func replacementAddress(c RDMA) func([]verbs.GIDEntry, verbs.GIDEntry) (verbs.GIDEntry, bool, error) {
	if _, err := netip.ParseAddr(c.Device); err == nil || c.GIDIndex != nil {
		return nil
	}
	return discovery.Again
}
