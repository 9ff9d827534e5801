package discovery

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestParse(t *testing.T) {
	ok := func(f func(string) (any, error)) func(string) string {
		return func(s string) string {
			v, err := f(s)
			if err != nil {
				return "error"
			}
			return fmt.Sprint(v)
		}
	}
	state := ok(func(s string) (any, error) { return parsePortState(s) })
	gid := ok(func(s string) (any, error) { return parseGID(s) })
	guid := ok(func(s string) (any, error) { v, err := parseGUID(s); return fmt.Sprintf("%016x", v), err })
	ib := ok(func(s string) (any, error) { return parseGIDType(s, verbs.LinkInfiniBand) })
	eth := ok(func(s string) (any, error) { return parseGIDType(s, verbs.LinkEthernet) })
	lid := ok(func(s string) (any, error) { return parseLID(s) })
	rate := ok(func(s string) (any, error) { v, err := parseRate(s); return v.Mbps, err })
	link := ok(func(s string) (any, error) { return parseLink(s) })
	counter := ok(func(s string) (any, error) { return parseCounter(s) })
	for _, tt := range []struct {
		name  string
		parse func(string) string
		text  string
		want  string
	}{
		{"state", state, "4: ACTIVE", "ACTIVE"}, {"state", state, "5: ACTIVE_DEFER", "ACTIVE_DEFER"}, {"state", state, "1: DOWN", "DOWN"},
		{"state", state, "6: NEW", "error"}, {"state", state, "ACTIVE", "error"}, {"state", state, "4", "error"}, {"state", state, "", "error"}, {"state", state, "-1: X", "error"}, {"state", state, "999: X", "error"},
		{"GID", gid, "0000:0000:0000:0000:0000:ffff:c000:0201", "192.0.2.1"},
		{"GID", gid, "fe80:0000:0000:0000:0e42:a1ff:fe65:4ca2", "fe80:0000:0000:0000:0e42:a1ff:fe65:4ca2"},
		{"GID", gid, "::ffff:c000:0201", "error"}, {"GID", gid, "", "error"}, {"GID", gid, strings.Repeat("0", 39), "error"}, {"GID", gid, "000g:0000:0000:0000:0000:ffff:c000:0201", "error"},
		{"GUID", guid, "0c42:a103:0065:4ca2", "0c42a10300654ca2"}, {"GUID", guid, "0c42a10300654ca2", "error"}, {"GUID", guid, "0c42:a103:0065", "error"},
		{"type on InfiniBand", ib, "IB/RoCE v1", "InfiniBand"}, {"type on Ethernet", eth, "IB/RoCE v1", "RoCE v1"}, {"type", eth, "RoCE v2", "RoCE v2"}, {"type", eth, "", "error"}, {"type", eth, "roce v2", "error"},
		{"LID", lid, "0x1a", "26"}, {"LID", lid, "0", "0"}, {"LID", lid, "0x1ffff", "error"}, {"LID", lid, "x", "error"},
		{"rate", rate, "100 Gb/sec (4X EDR)", "100000"}, {"rate", rate, "2.5 Gb/sec (1X SDR)", "2500"}, {"rate", rate, "100", "error"}, {"rate", rate, "NaN Gb/sec", "error"}, {"rate", rate, "-1 Gb/sec", "error"}, {"rate", rate, "1e300 Gb/sec", "error"},
		{"link", link, "Ethernet", "Ethernet"}, {"link", link, "InfiniBand", "InfiniBand"}, {"link", link, "Unknown", "unspecified"}, {"link", link, "", "error"},
		{"counter", counter, "18446744073709551615", "18446744073709551615"}, {"counter", counter, "N/A (no PMA)", "error"}, {"counter", counter, "", "error"},
	} {
		if got := tt.parse(tt.text); got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestNaturalOrder(t *testing.T) {
	names := []string{"", "a", "mlx5", "mlx5_0", "mlx5_02", "mlx5_2", "mlx5_10", "mlx5_10a", "mlx6_0", "mlx10_0", "rxe0"}
	for i, a := range names {
		for j, b := range names {
			if got := natural(a, b); got < 0 != (i < j) || got == 0 != (i == j) {
				t.Errorf("natural(%q, %q) is %d", a, b, got)
			}
		}
	}
}

// message makes a netlink message of attributes: a number as uint8, uint32 or
// uint64, a string, or attributes within.
func message(parts ...any) []byte {
	var b []byte
	for i := 0; i < len(parts); i += 2 {
		var v []byte
		number, _ := parts[i].(int)
		kind := uint16(number)
		switch x := parts[i+1].(type) {
		case uint8:
			v = []byte{x}
		case uint32:
			v = binary.NativeEndian.AppendUint32(nil, x)
		case uint64:
			v = binary.NativeEndian.AppendUint64(nil, x)
		case string:
			v = append([]byte(x), 0)
		case []byte:
			v = x
			kind |= 0x8000 // nested
		}
		b = binary.NativeEndian.AppendUint16(b, uint16(4+len(v)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, v...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	return b
}

func TestParseNetlink(t *testing.T) {
	link, err := parseDeviceMessage(message(attrDevIndex, uint32(7), attrDevName, "mlx5_0", attrPortIndex, uint32(2), 4, uint64(99),
		attrFirmware, "16.35", attrNodeGUID, uint64(0x0c42a10300654ca2), attrProtocol, "roce", 9999, "a thing of the future"))
	if want := (NetlinkDevice{Index: 7, Name: "mlx5_0", Ports: 2, Firmware: "16.35", NodeGUID: 0x0c42a10300654ca2, Protocol: "roce"}); err != nil || link != want {
		t.Errorf("link %+v, %v; want %+v", link, err, want)
	}
	port, err := parsePortMessage(message(attrDevIndex, uint32(7), attrPortIndex, uint32(2), attrPortState, uint8(4), attrPhysState, uint8(5), attrLID, uint32(9), attrNetdevName, "eth0"))
	if want := (NetlinkPort{Number: 2, State: verbs.PortActive, Physical: 5, LID: 9, Netdev: "eth0"}); err != nil || port != want {
		t.Errorf("port %+v, %v; want %+v", port, err, want)
	}
	driver, err := parseDriverMessage(message(attrChardevName, "uverbs3", attrDriverID, uint32(14)))
	if want := (NetlinkDriver{ID: 14, Node: "uverbs3"}); err != nil || driver != want {
		t.Errorf("driver %+v, %v; want %+v", driver, err, want)
	}
	entry := func(name string, n uint64) []byte { return message(attrResName, name, attrResCurrent, n) }
	counts, err := parseObjectsMessage(message(attrDevIndex, uint32(7), attrDevName, "x",
		attrResSummary, message(attrResEntry, entry("pd", 2), attrResEntry, entry("qp", 1<<40), attrResEntry, entry("mr", 0))))
	if d := cmp.Diff(map[string]uint64{"pd": 2, "qp": 1 << 40, "mr": 0}, counts); err != nil || d != "" {
		t.Errorf("counts: %v, %s", err, d)
	}
}

// What the netlink module drops is an error here.
func TestParseNetlinkRefuses(t *testing.T) {
	objects := func(b []byte) error { _, err := parseObjectsMessage(b); return err }
	link := func(b []byte) error { _, err := parseDeviceMessage(b); return err }
	port := func(b []byte) error { _, err := parsePortMessage(b); return err }
	for _, tt := range []struct {
		name  string
		parse func([]byte) error
		b     []byte
	}{
		{"a header that is cut", link, []byte{8, 0, 1}},
		{"a length beyond the message", link, append(message(attrDevName, "x"), 12, 0, 1, 0)},
		{"a length below the header", link, append(message(attrDevName, "x"), 3, 0, 1, 0)},
		{"a number of three bytes", link, message(attrDevName, "x", attrDevIndex, "ab")},
		{"a number of no bytes", link, message(attrDevName, "x", attrDevIndex, []byte{})},
		{"a number that is too large", link, message(attrDevName, "x", attrDevIndex, uint64(1<<32))},
		{"a name without its end", link, message(attrDevName, []byte("x"))},
		{"an empty name", link, message(attrDevName, []byte{})},
		{"a zero byte in a name", link, message(attrDevName, "a\x00b")},
		{"no name", link, message(attrDevIndex, uint32(1))},
		{"a port without a number", port, message(attrDevIndex, uint32(1))},
		{"a state of the future", port, message(attrPortIndex, uint32(1), attrPortState, uint8(9))},
		{"no counts", objects, message(attrDevIndex, uint32(1))},
		{"a count without a name", objects, message(attrResSummary, message(attrResEntry, message(attrResCurrent, uint64(1))))},
		{"a name without a count", objects, message(attrResSummary, message(attrResEntry, message(attrResName, "qp")))},
		{"a table that is cut", objects, message(attrResSummary, []byte{9, 0, 0, 0})},
	} {
		if err := tt.parse(tt.b); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
}

func FuzzParseSysfs(f *testing.F) {
	for _, s := range []string{
		"4: ACTIVE", "Ethernet", "fe80:0000:0000:0000:0e42:a1ff:fe65:4ca2", "0c42:a103:0065:4ca2", "IB/RoCE v1", "0x1a",
		"100 Gb/sec (4X EDR)", "00:11:22:33:44:55", "N/A (no PMA)", "1: CA", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if st, err := parsePortState(s); err == nil && st > verbs.PortActiveDefer {
			t.Errorf("%q is state %d", s, st)
		}
		if g, err := parseGID(s); err == nil {
			if again := fmt.Sprintf("%04x", g[:2]); !strings.EqualFold(again, s[:4]) {
				t.Errorf("%q begins with %s", s, again)
			}
		}
		if r, err := parseRate(s); err == nil && r.Mbps < 0 {
			t.Errorf("%q is %d Mb/s", s, r.Mbps)
		}
		if guid, err := parseGUID(s); err == nil {
			b := fmt.Sprintf("%016x", guid)
			if want := strings.ToLower(strings.ReplaceAll(s, ":", "")); b != want {
				t.Errorf("%q is %s", s, b)
			}
		}
		if n, ok := parseIndex(s, 8); ok && fmt.Sprint(n) != s {
			t.Errorf("%q is %d", s, n)
		}
		for _, l := range []verbs.LinkLayer{verbs.LinkInfiniBand, verbs.LinkEthernet} {
			if typ, err := parseGIDType(s, l); err == nil && typ == verbs.GIDTypeUnknown {
				t.Errorf("%q is no type", s)
			}
		}
		_, _ = parseLink(s)
		_, _ = parseLID(s)
		_, _ = parseHardware(s)
		_, _ = parseCounter(s)
		_, _ = parseNodeType(s)
		if natural(s, s) != 0 {
			t.Errorf("%q is not itself", s)
		}
	})
}

func FuzzParseNetlink(f *testing.F) {
	f.Add(message(attrDevIndex, uint32(7), attrDevName, "mlx5_0", attrPortIndex, uint32(2), attrPortState, uint8(4)))
	f.Add(message(attrResSummary, message(attrResEntry, message(attrResName, "qp", attrResCurrent, uint64(3)))))
	f.Add([]byte{5, 0, 1, 0, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseDeviceMessage(b); err == nil && l.Name == "" {
			t.Error("a device without a name")
		}
		if p, err := parsePortMessage(b); err == nil && (p.Number == 0 || p.State > verbs.PortActiveDefer) {
			t.Errorf("port %+v", p)
		}
		_, _ = parseDriverMessage(b)
		if c, err := parseObjectsMessage(b); err == nil && c == nil {
			t.Error("neither counts nor an error")
		}
	})
}
