package bootstrap

import (
	"fmt"
	"math"
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/verbs"
)

// toDevices adds an inventory to a message. Without one the message is like that of an older build.
func toDevices(to *tfpb.GetRemoteAddressResponse, v *handshake.Inventory) {
	if v == nil {
		return
	}
	to.User, to.Tls, to.Serial = v.User, uint32(v.TLS), v.Serial
	for i := range v.Devices {
		d := &v.Devices[i]
		m := &tfpb.TrystDevice{
			LinkLayer: uint32(d.Link), GidType: uint32(d.GIDType), UdpPort: uint32(d.UDPPort), Asked: d.Asked, Addresses: d.Addresses,
			Directory: d.Directory, FailedFor: toMillis(d.FailedFor), FailedWhy: d.FailedWhy,
		}
		for _, g := range d.GIDs {
			m.Gids = append(m.Gids, g[:])
		}
		to.Devices = append(to.Devices, m)
	}
}

// toMillis rounds up, so that a route that has failed stays one.
func toMillis(d time.Duration) uint32 {
	n := max(d, 0) / time.Millisecond
	if d > n*time.Millisecond {
		n++
	}
	return uint32(min(n, math.MaxUint32)) //nolint:gosec // limited
}

// fromDevices decodes the inventory of a message, nil for one of an older build. It ignores
// devices with a link layer that this build does not know. why says what cannot be used.
func fromDevices(m message) (v *handshake.Inventory, why string) {
	if m.GetTls() == 0 {
		return nil, ""
	}
	if n := len(m.GetDevices()); n > handshake.MaxDevices {
		return nil, fmt.Sprintf("it has %d devices; at most %d are allowed", n, handshake.MaxDevices)
	}
	v = &handshake.Inventory{User: m.GetUser(), Serial: m.GetSerial(), TLS: handshake.TLS(min(m.GetTls(), uint32(handshake.MutualTLS)))} //nolint:gosec // limited
	if m.GetTls() > uint32(handshake.MutualTLS) {
		v.TLS = handshake.ServerTLS // a later kind, of which this build knows only that it is encrypted
	}
	for i, d := range m.GetDevices() {
		link := verbs.LinkLayer(toEnum(d.GetLinkLayer()))
		if link < verbs.LinkInfiniBand || link > verbs.LinkShared {
			continue
		}
		device, why := fromDevice(link, d)
		if why != "" {
			return nil, fmt.Sprintf("device %d: %s", i, why)
		}
		v.Devices = append(v.Devices, device)
	}
	return v, handshake.InventoryProblem(v)
}

func fromDevice(link verbs.LinkLayer, m *tfpb.TrystDevice) (handshake.Device, string) {
	d := handshake.Device{
		Link: link, GIDType: verbs.GIDType(toEnum(m.GetGidType())), Asked: m.GetAsked(), Addresses: m.GetAddresses(), Directory: m.GetDirectory(),
		FailedFor: min(time.Duration(m.GetFailedFor())*time.Millisecond, handshake.MaxFailedFor), FailedWhy: m.GetFailedWhy(),
	}
	switch {
	case m.GetUdpPort() > math.MaxUint16:
		return d, fmt.Sprintf("its UDP port %d has more than 16 bits", m.GetUdpPort())
	case len(m.GetGids()) > handshake.MaxReach:
		return d, fmt.Sprintf("it has %d GIDs; at most %d are allowed", len(m.GetGids()), handshake.MaxReach)
	}
	d.UDPPort = uint16(m.GetUdpPort()) //nolint:gosec // checked above
	for _, g := range m.GetGids() {
		var gid verbs.GID
		if copy(gid[:], g) != len(g) || len(g) != len(gid) {
			return d, fmt.Sprintf("a GID has %d bytes; it must have %d", len(g), len(gid))
		}
		d.GIDs = append(d.GIDs, gid)
	}
	return d, ""
}
