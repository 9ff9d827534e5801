package bootstrap

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/protocoltest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/verbs"
)

// inventory is that of the example in PROTOCOL.md.
func inventory() *handshake.Inventory {
	return &handshake.Inventory{
		User: 0xbeef_0000_0000_0002, TLS: handshake.MutualTLS, Serial: 5,
		Devices: []handshake.Device{
			{Link: verbs.LinkEthernet, GIDType: verbs.GIDTypeRoCEv2, GIDs: []verbs.GID{{10: 0xff, 11: 0xff, 12: 10, 15: 1}}, UDPPort: 4791, Asked: true},
			{Link: verbs.LinkTCP, Addresses: []string{"10.0.0.1:2222"}},
			{Link: verbs.LinkShared, Directory: 0xd1, FailedFor: 1500 * time.Millisecond, FailedWhy: "cut"},
		},
	}
}

// offerOfProcess is an offer of a device that connects by data.
func offerOfProcess() handshake.Offer {
	o := offer(zero, 0x1122334455667788)
	o.Generation, o.Link, o.GIDType = 2, verbs.LinkTCP, verbs.GIDTypeProcess
	o.Rails[0].GID, o.Rails[0].MTU, o.Rails[0].Data = verbs.GID{0: 0xaa, 15: 0xbb}, verbs.MTU4096, []byte{1, 2, 3}
	o.Inventory = inventory()
	return o
}

// TestInventoryIsAsProtocolWritesIt compares an encoded offer of TCP and its inventory with the
// bytes of PROTOCOL.md section 9, and the decoded bytes with them.
func TestInventoryIsAsProtocolWritesIt(t *testing.T) {
	own := offerOfProcess()
	want := protocoltest.Example(t, "bootstrap-devices")
	got, err := proto.MarshalOptions{Deterministic: true}.Marshal(toResponse(own))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("written:\n%x\nPROTOCOL.md section 9:\n%x", got, want)
	}
	var m tfpb.GetRemoteAddressResponse
	if err := proto.Unmarshal(want, &m); err != nil {
		t.Fatal(err)
	}
	if o, err := fromMessage(&m); err != nil || !o.Equal(own) || !reflect.DeepEqual(o.Inventory, own.Inventory) {
		t.Errorf("PROTOCOL.md section 9 shows %+v with %+v, %v", o, o.Inventory, err)
	}
}

// TestMessagesOfAnEarlierReleaseHaveNoInventory: the bytes of PROTOCOL.md's first example are those
// that earlier releases sent.
func TestMessagesOfAnEarlierReleaseHaveNoInventory(t *testing.T) {
	var m tfpb.GetRemoteAddressRequest
	if err := proto.Unmarshal(protocoltest.Example(t, "bootstrap-request"), &m); err != nil {
		t.Fatal(err)
	}
	o, err := fromMessage(&m)
	if err != nil || o.Inventory != nil {
		t.Errorf("%+v, %v", o.Inventory, err)
	}
	// And what a process without an inventory sends is what they sent.
	o.Inventory = nil
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(toRequest(one, o))
	if err != nil || !bytes.Equal(again, protocoltest.Example(t, "bootstrap-request")) {
		t.Errorf("%x, %v", again, err)
	}
}

// TestAnInventoryWithoutDevicesIsOne: it is told from that of an earlier release.
func TestAnInventoryWithoutDevicesIsOne(t *testing.T) {
	o := handshake.Introduction(offer(zero, 9))
	o.Inventory = &handshake.Inventory{TLS: handshake.NoTLS}
	got, err := fromMessage(toRequest(one, o))
	if err != nil || !reflect.DeepEqual(got.Inventory, o.Inventory) {
		t.Errorf("%+v, %v", got.Inventory, err)
	}
}

// TestUnknownDevicesAreIgnored: a later build may have other devices, and another kind of TLS.
func TestUnknownDevicesAreIgnored(t *testing.T) {
	m := toResponse(offerOfProcess())
	m.Tls = 9
	m.Devices = append([]*tfpb.TrystDevice{{LinkLayer: 77, Gids: [][]byte{{1}}, Addresses: []string{strings.Repeat("x", 300)}}, {LinkLayer: 256 + 3}, {}}, m.Devices...)
	want := inventory()
	want.TLS = handshake.ServerTLS
	if got, err := fromMessage(m); err != nil || !reflect.DeepEqual(got.Inventory, want) {
		t.Errorf("%+v, %v", got.Inventory, err)
	}
}

// TestHowLongARouteHasFailedIsBounded: a peer cannot end a route for ever by one message.
func TestHowLongARouteHasFailedIsBounded(t *testing.T) {
	m := toResponse(offerOfProcess())
	m.Devices[2].FailedFor = math.MaxUint32
	got, err := fromMessage(m)
	if err != nil || got.Inventory.Devices[2].FailedFor != handshake.MaxFailedFor {
		t.Errorf("%+v, %v", got.Inventory, err)
	}
	for d, want := range map[time.Duration]uint32{-1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, math.MaxInt64: math.MaxUint32} {
		if got := toMillis(d); got != want {
			t.Errorf("%v takes %d ms", d, got)
		}
	}
}

// TestARequestWithoutQueuePairsAsks: the answer is an introduction, and nothing changes.
func TestARequestWithoutQueuePairsAsks(t *testing.T) {
	w := newFakeCluster(t)
	a, b := w.start(zero), w.start(one)
	own := handshake.Introduction(a.self)
	own.Inventory = inventory()
	o, err := a.ex.Exchange(t.Context(), one, own)
	if err != nil || !o.IsIntroduction() || o.Incarnation != b.self.Incarnation || o.Generation != 0 {
		t.Errorf("%v, %v", o, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.side(zero).m; m.Generation() != 0 || m.Accepted() != 0 {
		t.Errorf("it has accepted process %x, and has generation %d", m.Accepted(), m.Generation())
	}
}

// TestAnEarlierReleaseHasNoInventory: its refusal of a request without queue pairs is recognised.
func TestAnEarlierReleaseHasNoInventory(t *testing.T) {
	// What release 0.30 answers: the code, the text, and the trailer that marks it as its own.
	refusal := grpcstatus.Error(codes.FailedPrecondition, "the request of "+zero.String()+" shows no queue pairs")
	err := fromGRPC(one, refusal, map[string][]string{answeredKey: {"1"}})
	if !handshake.HasNoInventory(one, err) {
		t.Errorf("%v is not recognised", err)
	}
	for name, other := range map[string]error{
		"another task's":     fromGRPC(zero, refusal, map[string][]string{answeredKey: {"1"}}),
		"the connection's":   fromGRPC(one, refusal, nil),
		"another code":       fromGRPC(one, grpcstatus.Error(codes.Unavailable, "it shows no queue pairs"), map[string][]string{answeredKey: {"1"}}),
		"another sentence":   fromGRPC(one, grpcstatus.Error(codes.FailedPrecondition, "go away"), map[string][]string{answeredKey: {"1"}}),
		"no error of a peer": nil,
	} {
		if handshake.HasNoInventory(one, other) {
			t.Errorf("%s: %v counts as the refusal of an earlier release", name, other)
		}
	}
}
