package bootstrap

import (
	"fmt"
	"math"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// toRequest returns the request that shows own to peer.
func toRequest(peer cluster.Task, own handshake.Offer) *tfpb.GetRemoteAddressRequest {
	r := toResponse(own)
	return &tfpb.GetRemoteAddressRequest{
		HostName: r.HostName, Channel: r.Channel, Version: r.Version, Incarnation: r.Incarnation, Generation: r.Generation, Rails: r.Rails,
		LinkLayer: r.LinkLayer, GidType: r.GidType, Window: r.Window, ReceiveSize: r.ReceiveSize, EagerLimit: r.EagerLimit, MaxMessage: r.MaxMessage,
		PeerName: peer.String(), PeerIncarnation: own.For, Host: r.Host,
		Devices: r.Devices, User: r.User, Tls: r.Tls, Serial: r.Serial,
	}
}

// toResponse returns the response that shows own to the caller.
func toResponse(own handshake.Offer) *tfpb.GetRemoteAddressResponse {
	m := &tfpb.GetRemoteAddressResponse{
		HostName: own.Task.String(), Version: own.Version, Incarnation: own.Incarnation, Generation: own.Generation,
		LinkLayer: uint32(own.Link), GidType: uint32(own.GIDType), Window: own.Window, ReceiveSize: own.ReceiveSize,
		EagerLimit: own.EagerLimit, MaxMessage: own.MaxMessage, Host: own.Host,
	}
	toDevices(m, own.Inventory)
	for i, r := range own.Rails {
		rail := &tfpb.TrystRail{
			Qpn: uint32(r.QPN), Psn: uint32(r.PSN), Gid: r.GID[:], Lid: uint32(r.LID), Mtu: uint32(max(r.MTU, 0)), //nolint:gosec // an MTU has 13 bits
			UdpPort: uint32(r.UDP.Port), UdpBuffer: r.UDP.Buffer, Data: r.Data,
		}
		for _, p := range r.UDP.Sources {
			rail.UdpSources = append(rail.UdpSources, uint32(p))
		}
		m.Rails = append(m.Rails, rail)
		if i == 0 {
			prefix, id := r.GID.Words()
			m.Channel = &tfpb.Channel{Lid: int32(r.LID), Qpn: int32(r.QPN), Psn: int32(r.PSN), Snp: prefix, Iid: id} //nolint:gosec // 24 bits
		}
	}
	return m
}

// message is the fields that request and response have in common.
type message interface {
	GetHostName() string
	GetVersion() uint32
	GetIncarnation() uint64
	GetGeneration() uint64
	GetRails() []*tfpb.TrystRail
	GetLinkLayer() uint32
	GetGidType() uint32
	GetWindow() uint32
	GetReceiveSize() uint32
	GetEagerLimit() uint32
	GetMaxMessage() uint32
	GetHost() uint64
	GetDevices() []*tfpb.TrystDevice
	GetUser() uint64
	GetTls() uint32
	GetSerial() uint64
}

// fromMessage decodes and validates the offer of a message. Its errors are
// FailedPrecondition, which makes the peer use gRPC.
func fromMessage(m message) (handshake.Offer, error) {
	bad := func(format string, args ...any) (handshake.Offer, error) {
		return handshake.Offer{}, status.Errorf(status.FailedPrecondition,
			"the offer of %.200q for a verbs channel cannot be used: %s", m.GetHostName(), fmt.Sprintf(format, args...))
	}
	if why := handshake.VersionProblem(m.GetVersion()); why != "" {
		return bad("%s", why)
	}
	task, err := cluster.ParseTask(m.GetHostName())
	if err != nil {
		return bad("host_name is not a task name: %.300s", status.From(err).Message())
	}
	if n := len(m.GetRails()); n > handshake.MaxRails {
		return bad("it has %d rails; at most %d are allowed", n, handshake.MaxRails)
	}
	o := handshake.Offer{
		Task: task, Version: m.GetVersion(), Incarnation: m.GetIncarnation(), Generation: m.GetGeneration(),
		Link: verbs.LinkLayer(toEnum(m.GetLinkLayer())), GIDType: verbs.GIDType(toEnum(m.GetGidType())),
		Window: m.GetWindow(), ReceiveSize: m.GetReceiveSize(), EagerLimit: m.GetEagerLimit(), MaxMessage: m.GetMaxMessage(),
		Host: m.GetHost(),
	}
	var why string
	if o.Inventory, why = fromDevices(m); why != "" {
		return bad("%s", why)
	}
	for i, r := range m.GetRails() {
		rail, why := fromRail(r)
		if why != "" {
			return bad("rail %d: %s", i, why)
		}
		o.Rails = append(o.Rails, rail)
	}
	if err := handshake.Validate(o); err != nil {
		return handshake.Offer{}, err
	}
	return o, nil
}

// toEnum converts the number of an enumeration. One above 255 becomes 255, which no
// enumeration of verbs uses.
func toEnum(n uint32) uint8 { return uint8(min(n, math.MaxUint8)) }

func fromRail(r *tfpb.TrystRail) (handshake.Rail, string) {
	rail := handshake.Rail{MTU: verbs.MTU(min(r.GetMtu(), math.MaxUint16))}
	rail.QPN, rail.PSN = verbs.QPN(r.GetQpn()), verbs.PSN(r.GetPsn())
	rail.UDP.Buffer = r.GetUdpBuffer()
	rail.Data = r.GetData()
	switch n := len(r.GetUdpSources()); {
	case len(r.GetGid()) != len(rail.GID):
		return rail, fmt.Sprintf("its GID has %d bytes; it must have %d", len(r.GetGid()), len(rail.GID))
	case r.GetLid() > math.MaxUint16:
		return rail, fmt.Sprintf("its LID %d has more than 16 bits", r.GetLid())
	case r.GetUdpPort() > math.MaxUint16:
		return rail, fmt.Sprintf("its UDP port %d has more than 16 bits", r.GetUdpPort())
	case len(r.GetData()) > verbs.MaxEndpointData:
		return rail, fmt.Sprintf("its data has %d bytes; at most %d are allowed", len(r.GetData()), verbs.MaxEndpointData)
	case n > handshake.MaxUDPSources:
		return rail, fmt.Sprintf("it has %d UDP source ports; at most %d are allowed", n, handshake.MaxUDPSources)
	}
	copy(rail.GID[:], r.GetGid())
	rail.LID, rail.UDP.Port = verbs.LID(r.GetLid()), uint16(r.GetUdpPort()) //nolint:gosec // checked above
	for _, p := range r.GetUdpSources() {
		if p == 0 || p > math.MaxUint16 {
			return rail, fmt.Sprintf("there is no UDP port %d", p)
		}
		rail.UDP.Sources = append(rail.UDP.Sources, uint16(p))
	}
	return rail, ""
}
