// Package bootstraptest has invalid bootstrap requests, for tests of the service in one
// process and of real servers.
package bootstraptest

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// Spoiled turns a valid request into one that is refused, with the code and a part of the
// error text.
type Spoiled struct {
	Name  string
	Spoil func(*tfpb.GetRemoteAddressRequest)
	Code  codes.Code
	Words string
}

// one is the called task.
const one = "/job:worker/replica:0/task:1"

// All returns changes to a request from /job:worker/task:0 to /job:worker/task:1, whose
// process has the given incarnation.
func All(incarnation uint64) []Spoiled {
	return []Spoiled{
		{"our own name", func(m *tfpb.GetRemoteAddressRequest) { m.HostName = one }, codes.InvalidArgument, "the name of this process"},
		{"our own name, TensorFlow's", func(m *tfpb.GetRemoteAddressRequest) { proto.Reset(m); m.HostName = one }, codes.InvalidArgument, "the name of this process"},
		{"nothing", func(m *tfpb.GetRemoteAddressRequest) { proto.Reset(m) }, codes.FailedPrecondition, "no protocol version"},
		{"TensorFlow's fields", func(m *tfpb.GetRemoteAddressRequest) { m.Version = 0 }, codes.FailedPrecondition, "no protocol version"},
		{"an older version", func(m *tfpb.GetRemoteAddressRequest) { m.Version = 3 }, codes.FailedPrecondition, "speaks protocol version 3, and this process needs version 4 at least; run the same release of Tryst"},
		{"an older version that has other fields", func(m *tfpb.GetRemoteAddressRequest) { m.Version, m.Rails[0].Gid = 1, nil }, codes.FailedPrecondition, "speaks protocol version 1"},
		{"no name", func(m *tfpb.GetRemoteAddressRequest) { m.HostName = "" }, codes.FailedPrecondition, "not a task name"},
		{"garbage for a name", func(m *tfpb.GetRemoteAddressRequest) { m.HostName = strings.Repeat("\x00", 100_000) }, codes.FailedPrecondition, "not a task name"},
		{"a name nobody has", func(m *tfpb.GetRemoteAddressRequest) { m.HostName = "/job:ps/task:0" }, codes.FailedPrecondition, "the cluster has no task /job:ps"},
		{"for another", func(m *tfpb.GetRemoteAddressRequest) { m.PeerName = "/job:worker/task:2" }, codes.FailedPrecondition, "this is /job:worker/replica:0/task:1"},
		{"for nobody", func(m *tfpb.GetRemoteAddressRequest) { m.PeerName = "" }, codes.FailedPrecondition, "this is"},
		{"our incarnation", func(m *tfpb.GetRemoteAddressRequest) { m.Incarnation = incarnation }, codes.FailedPrecondition, "incarnation of this process"},
		{"no queue pairs", func(m *tfpb.GetRemoteAddressRequest) { m.Rails = nil }, codes.FailedPrecondition, "has 0 rails"},
		{"too many queue pairs", func(m *tfpb.GetRemoteAddressRequest) { m.Rails = make([]*tfpb.TrystRail, 100_000) }, codes.FailedPrecondition, "100000 rails"},
		{"an empty rail", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0] = &tfpb.TrystRail{} }, codes.FailedPrecondition, "GID has 0 bytes"},
		{"a long GID", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].Gid = make([]byte, 17) }, codes.FailedPrecondition, "GID has 17 bytes"},
		{"a large queue pair number", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].Qpn = 1 << 24 }, codes.FailedPrecondition, "0x1000000"},
		{"a large LID", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].Lid = 1 << 16 }, codes.FailedPrecondition, "LID 65536"},
		{"a large UDP port", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].UdpPort = 1 << 16 }, codes.FailedPrecondition, "UDP port 65536"},
		{"no UDP source", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].UdpSources = []uint32{0} }, codes.FailedPrecondition, "no UDP port 0"},
		{"many UDP sources", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].UdpSources = make([]uint32, 1e6) }, codes.FailedPrecondition, "1000000 UDP"},
		{"an MTU of a link", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].Mtu = 1500 }, codes.FailedPrecondition, "no MTU of 1500"},
		{"much data", func(m *tfpb.GetRemoteAddressRequest) { m.Rails[0].Data = make([]byte, 1025) }, codes.FailedPrecondition, "data has 1025 bytes"},
		{"many devices", devices(make([]*tfpb.TrystDevice, 100_000)...), codes.FailedPrecondition, "100000 devices"},
		{"a device with many GIDs", devices(&tfpb.TrystDevice{LinkLayer: 2, Gids: make([][]byte, 100_000)}), codes.FailedPrecondition, "device 0: it has 100000 GIDs"},
		{"a device with a long GID", devices(&tfpb.TrystDevice{LinkLayer: 2, Gids: [][]byte{make([]byte, 17)}}), codes.FailedPrecondition, "device 0: a GID has 17 bytes"},
		{"a device with a large UDP port", devices(&tfpb.TrystDevice{LinkLayer: 2, UdpPort: 1 << 16}), codes.FailedPrecondition, "device 0: its UDP port 65536"},
		{"a device with many addresses", devices(&tfpb.TrystDevice{LinkLayer: 3, Addresses: make([]string, 17)}), codes.FailedPrecondition, "17 addresses"},
		{"a device with a long address", devices(&tfpb.TrystDevice{LinkLayer: 3, Addresses: []string{strings.Repeat("a", 257)}}), codes.FailedPrecondition, "a string of device 0 has more than 256 bytes"},
		{"a device with a long reason", devices(&tfpb.TrystDevice{LinkLayer: 4}, &tfpb.TrystDevice{LinkLayer: 3, FailedWhy: strings.Repeat("a", 257)}), codes.FailedPrecondition, "a string of device 1"},
		{"TCP with a GID of RoCE v2", func(m *tfpb.GetRemoteAddressRequest) { m.LinkLayer = 3 }, codes.FailedPrecondition, "GID type on TCP is RoCE v2"},
		{"shared memory with an empty GID", func(m *tfpb.GetRemoteAddressRequest) { m.LinkLayer, m.GidType, m.Rails[0].Gid = 4, 4, make([]byte, 16) }, codes.FailedPrecondition, "GID is empty"},
		{"a link of 2 to the 8 and 2", func(m *tfpb.GetRemoteAddressRequest) { m.LinkLayer = 258 }, codes.FailedPrecondition, "link layer"},
		{"InfiniBand", func(m *tfpb.GetRemoteAddressRequest) { m.LinkLayer, m.GidType, m.Rails[0].Lid = 1, 1, 3 }, codes.FailedPrecondition, "InfiniBand"},
		{"RoCE v1", func(m *tfpb.GetRemoteAddressRequest) { m.GidType = 2 }, codes.FailedPrecondition, "RoCE v1"},
		{"a last generation", func(m *tfpb.GetRemoteAddressRequest) { m.Generation = 1<<64 - 1 }, codes.FailedPrecondition, "generation is 1844"},
	}
}

// devices returns a change that adds an inventory.
func devices(all ...*tfpb.TrystDevice) func(*tfpb.GetRemoteAddressRequest) {
	return func(m *tfpb.GetRemoteAddressRequest) { m.Tls, m.Devices = 1, all }
}
