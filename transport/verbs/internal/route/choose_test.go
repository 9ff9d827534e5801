package route

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/verbs"
)

var names = [2]cluster.Task{{Job: "a"}, {Job: "b"}}

const (
	nameA = "/job:a/replica:0/task:0"
	nameB = "/job:b/replica:0/task:0"
)

func gid(s string) verbs.GID { return verbs.GIDFromAddr(netip.MustParseAddr(s)) }

// The devices of the tests.
var (
	shared = handshake.Device{Link: verbs.LinkShared}
	tcp    = handshake.Device{Link: verbs.LinkTCP, Addresses: []string{"10.0.0.1:2222"}}
	nic    = handshake.Device{Link: verbs.LinkEthernet, GIDType: verbs.GIDTypeRoCEv2, GIDs: []verbs.GID{gid("10.0.0.1")}}
	roce   = handshake.Device{Link: verbs.LinkEthernet, GIDType: verbs.GIDTypeRoCEv2, GIDs: []verbs.GID{gid("10.0.0.2")}, UDPPort: 4791}
	ib     = handshake.Device{Link: verbs.LinkInfiniBand, GIDType: verbs.GIDTypeIB, GIDs: []verbs.GID{{0xfe, 0x80, 15: 1}}}
)

func with(d handshake.Device, change func(*handshake.Device)) handshake.Device {
	change(&d)
	return d
}

func asked(d *handshake.Device)  { d.Asked = true }
func dials(d *handshake.Device)  { d.Addresses = nil }
func folder(d *handshake.Device) { d.Directory = 5 }

func at(addresses ...string) func(*handshake.Device) {
	return func(d *handshake.Device) {
		d.GIDs = nil
		for _, a := range addresses {
			d.GIDs = append(d.GIDs, gid(a))
		}
	}
}

func failed(seconds int) func(*handshake.Device) {
	return func(d *handshake.Device) { d.FailedFor, d.FailedWhy = time.Duration(seconds)*time.Second, "cut" }
}

// side returns a process with devices, on host 7, of user 3, without TLS.
func side(i int, devices ...handshake.Device) Side {
	return Side{Task: names[i], Incarnation: uint64(i + 1), Host: 7, Inventory: &handshake.Inventory{User: 3, TLS: handshake.NoTLS, Devices: devices}}
}

func changed(s Side, changes ...func(*Side)) Side {
	for _, c := range changes {
		c(&s)
	}
	return s
}

func host(n uint64) func(*Side)          { return func(s *Side) { s.Host = n } }
func user(n uint64) func(*Side)          { return func(s *Side) { s.User = n } }
func secure(t handshake.TLS) func(*Side) { return func(s *Side) { s.TLS = t } }
func older(s *Side)                      { s.Inventory = nil }

// TestChoose is the table of cases. why has a part of the reason against each route that is not
// taken.
func TestChoose(t *testing.T) {
	type whys map[Route]string
	const better = "is the better route"
	for name, c := range map[string]struct {
		a, b Side
		want Route
		why  whys
	}{
		"one host and one user": {side(0, shared, nic, tcp), side(1, shared, nic, tcp), Shared, whys{Fabric: "shm " + better, TCP: better}},
		"another user": {side(0, shared, tcp), changed(side(1, shared, tcp), user(4)), TCP,
			whys{Shared: "run as two users, and no mutual TLS proves their names", Fabric: "neither side has it"}},
		"users that are not known": {changed(side(0, shared, tcp), user(0)), changed(side(1, shared, tcp), user(0)), TCP, whys{Shared: "two users", Fabric: ""}},
		"another user with mutual TLS": {changed(side(0, shared, tcp), secure(handshake.MutualTLS)), changed(side(1, shared, tcp), secure(handshake.MutualTLS), user(4)), Shared,
			whys{Fabric: "", TCP: better}},
		"another user with TLS of the server alone": {changed(side(0, shared, tcp), secure(handshake.ServerTLS)), changed(side(1, shared, tcp), secure(handshake.ServerTLS), user(4)), TCP,
			whys{Fabric: "", Shared: "no mutual TLS"}},
		"another network namespace": {side(0, shared, tcp), changed(side(1, shared, tcp), host(8)), TCP,
			whys{Shared: "two network namespaces of a host; give both the same directory (the setting shm-dir)", Fabric: ""}},
		"a network namespace that is not known": {changed(side(0, shared, tcp), host(0)), changed(side(1, shared, tcp), host(0)), TCP, whys{Shared: "setting shm-dir", Fabric: ""}},
		"another network namespace, one directory": {side(0, with(shared, folder), tcp), changed(side(1, with(shared, folder), tcp), host(8)), Shared,
			whys{Fabric: "", TCP: better}},
		"another network namespace, a directory on one side": {side(0, with(shared, folder), tcp), changed(side(1, shared, tcp), host(8)), TCP,
			whys{Shared: "setting shm-dir", Fabric: ""}},
		"two hosts": {side(0, shared, tcp), changed(side(1, shared, tcp), host(8), user(4)), TCP,
			whys{Shared: "two hosts", Fabric: ""}},
		"shared memory off on one side": {side(0, shared, tcp), side(1, tcp), TCP, whys{Shared: nameB + " has no shm device", Fabric: ""}},
		"a NIC on both":                 {side(0, nic, tcp), changed(side(1, with(nic, at("10.0.0.9")), tcp), host(8)), Fabric, whys{Shared: "", TCP: "rdma " + better}},
		"a NIC and roce":                {side(0, nic, tcp), changed(side(1, roce, tcp), host(8)), Fabric, whys{Shared: "", TCP: better}},
		"a NIC and roce on a port that NICs do not send to": {side(0, nic, tcp), changed(side(1, with(roce, func(d *handshake.Device) { d.UDPPort = 5000 }), tcp), host(8)), TCP,
			whys{Shared: "", Fabric: "sends to UDP port 4791 only"}},
		"roce on both, not asked for":   {side(0, roce, tcp), changed(side(1, roce, tcp), host(8)), TCP, whys{Shared: "", Fabric: "neither side has been told to use it"}},
		"roce on both, asked for":       {side(0, with(roce, asked), tcp), changed(side(1, with(roce, asked), tcp), host(8)), TCP, whys{Shared: "", Fabric: "tcp " + better}},
		"roce on both, nothing better":  {side(0, with(roce, asked)), changed(side(1, with(roce, asked), tcp), host(8)), Fabric, whys{Shared: "", TCP: nameA + " has no tcp device"}},
		"roce on both, asked for by A":  {side(0, with(roce, asked)), changed(side(1, roce, tcp), host(8)), Fabric, whys{Shared: "", TCP: nameA + " has no tcp device"}},
		"InfiniBand on both":            {side(0, ib, tcp), changed(side(1, ib, tcp), host(8)), Fabric, whys{Shared: "", TCP: better}},
		"InfiniBand of two subnets":     {side(0, ib, tcp), changed(side(1, with(ib, func(d *handshake.Device) { d.GIDs = []verbs.GID{{0xfe, 0x80, 7: 1, 15: 1}} }), tcp), host(8)), TCP, whys{Shared: "", Fabric: "InfiniBand subnet"}},
		"InfiniBand and Ethernet":       {side(0, ib, tcp), changed(side(1, nic, tcp), host(8)), TCP, whys{Shared: "", Fabric: "has InfiniBand"}},
		"InfiniBand and roce":           {side(0, ib, tcp), changed(side(1, roce, tcp), host(8)), TCP, whys{Shared: "", Fabric: "has InfiniBand"}},
		"RoCE v1 and v2":                {side(0, nic), changed(side(1, with(nic, func(d *handshake.Device) { d.GIDType = verbs.GIDTypeRoCEv1 })), host(8)), None, whys{Shared: "", TCP: "", Fabric: "RoCE v1"}},
		"two families":                  {side(0, nic, tcp), changed(side(1, with(nic, at("2001:db8::1")), tcp), host(8)), TCP, whys{Shared: "", Fabric: "no route leads from GID 10.0.0.1"}},
		"two families, and one of both": {side(0, nic, tcp), changed(side(1, with(nic, at("2001:db8::1", "10.0.0.9")), tcp), host(8)), Fabric, whys{Shared: "", TCP: better}},
		"loopback and another host":     {side(0, with(nic, at("127.0.0.1")), tcp), changed(side(1, nic, tcp), host(8)), TCP, whys{Shared: "", Fabric: "no route leads"}},
		"loopback of one host":          {side(0, with(nic, at("127.0.0.1"))), side(1, with(nic, at("127.0.0.2"))), Fabric, whys{Shared: "", TCP: ""}},
		"a port without address":        {side(0, nic, tcp), changed(side(1, with(nic, at()), tcp), host(8)), TCP, whys{Shared: "", Fabric: "device of " + nameB + " has no address"}},
		"TCP of a client":               {side(0, with(tcp, dials)), changed(side(1, tcp), host(8)), TCP, whys{Shared: "", Fabric: ""}},
		"TCP of two clients":            {side(0, with(tcp, dials)), changed(side(1, with(tcp, dials)), host(8)), None, whys{Shared: "", Fabric: "", TCP: "takes connections"}},
		"TLS on one side":               {changed(side(0, tcp), secure(handshake.ServerTLS)), changed(side(1, tcp), host(8)), None, whys{Shared: "", Fabric: "", TCP: nameA + " uses TLS and " + nameB + " uses no TLS"}},
		"TLS on both":                   {changed(side(0, tcp), secure(handshake.ServerTLS)), changed(side(1, tcp), secure(handshake.MutualTLS)), TCP, whys{Shared: "", Fabric: ""}},
		"shared memory has failed":      {side(0, with(shared, failed(20)), tcp), side(1, shared, tcp), TCP, whys{Shared: "it has failed: cut; it is tried again in 20s", Fabric: ""}},
		"it has failed at the peer":     {side(0, shared, tcp), side(1, with(shared, failed(20)), tcp), TCP, whys{Shared: "it has failed: cut", Fabric: ""}},
		"all have failed":               {side(0, with(shared, failed(20)), with(tcp, failed(10))), side(1, shared, with(tcp, failed(15))), TCP, whys{Shared: "it has failed", Fabric: ""}},
		"the last one is tried first":   {side(0, with(shared, failed(5)), with(tcp, failed(10))), side(1, shared, tcp), Shared, whys{TCP: "it has failed", Fabric: ""}},
		"nothing":                       {side(0), side(1), None, whys{Shared: "", Fabric: "", TCP: "neither"}},
		"nothing in common":             {side(0, tcp), side(1, shared), None, whys{Shared: nameA, Fabric: "", TCP: nameB}},
		"an older build":                {side(0, shared, roce, tcp), changed(side(1), older), Fabric, whys{Shared: nameB + " is of an earlier release", TCP: "earlier release"}},
		"an older build without fabric": {side(0, shared, tcp), changed(side(1), older), None, whys{Shared: "earlier release", TCP: "earlier release", Fabric: nameA + " has no rdma device"}},
		"a device after another":        {side(0, tcp, with(tcp, dials)), changed(side(1, tcp, with(tcp, failed(9))), host(8)), TCP, whys{Shared: "", Fabric: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got, reasons := Choose(c.a, c.b)
			if got != c.want {
				t.Errorf("the route is %v, want %v: %v", got, c.want, reasons)
			}
			if len(reasons) != len(c.why) {
				t.Errorf("%d reasons, want %d: %v", len(reasons), len(c.why), reasons)
			}
			for _, r := range reasons {
				if words, ok := c.why[r.Route]; !ok || r.Why == "" || !strings.Contains(r.Why, words) {
					t.Errorf("the reason against %v is %q, want %q", r.Route, r.Why, words)
				}
			}
			back, same := Choose(c.b, c.a)
			if back != got || !slices.Equal(same, reasons) {
				t.Errorf("the other side chooses %v, %v", back, same)
			}
		})
	}
}

// TestChooseChangesNothing: Choose only reads what it gets.
func TestChooseChangesNothing(t *testing.T) {
	a, b := side(0, shared, nic, with(tcp, failed(3))), side(1, shared, nic, tcp)
	c, d := side(0, shared, nic, with(tcp, failed(3))), side(1, shared, nic, tcp)
	Choose(a, b)
	if !reflect.DeepEqual(a, c) || !reflect.DeepEqual(b, d) {
		t.Errorf("%+v, %+v", a, b)
	}
}
