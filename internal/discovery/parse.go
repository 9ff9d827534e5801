package discovery

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// The formats of drivers/infiniband/core/sysfs.c. Each parser takes what the
// file has after its white space is trimmed.

// parseNumbered takes "4: ACTIVE" apart.
func parseNumbered(s string) (int, string, error) {
	number, name, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 8)
	if !ok || err != nil {
		return 0, "", fmt.Errorf("%q: want a number, a colon and a name, as \"4: ACTIVE\"", s)
	}
	return int(n), strings.TrimSpace(name), nil
}

func parsePortState(s string) (verbs.PortState, error) {
	n, _, err := parseNumbered(s)
	if err == nil && n > int(verbs.PortActiveDefer) {
		err = fmt.Errorf("%q: no such state of a port", s)
	}
	if err != nil {
		return verbs.PortNop, err
	}
	return verbs.PortState(n), nil
}

func parseLink(s string) (verbs.LinkLayer, error) {
	switch s {
	case "InfiniBand":
		return verbs.LinkInfiniBand, nil
	case "Ethernet":
		return verbs.LinkEthernet, nil
	case "Unknown": // transports of their own, as EFA's
		return verbs.LinkUnspecified, nil
	}
	return verbs.LinkUnspecified, fmt.Errorf("%q: want InfiniBand, Ethernet or Unknown", s)
}

// parseGID takes eight groups of four hex digits. Other spellings of an IPv6
// address are not in sysfs, and are an error.
func parseGID(s string) (verbs.GID, error) {
	var g verbs.GID
	if len(s) != 39 {
		return g, fmt.Errorf("%q: want eight groups of four hex digits", s)
	}
	for i := range 8 {
		at := 5 * i
		if i > 0 && s[at-1] != ':' {
			return verbs.GID{}, fmt.Errorf("%q: want colons between the groups", s)
		}
		if _, err := hex.Decode(g[2*i:2*i+2], []byte(s[at:at+4])); err != nil {
			return verbs.GID{}, fmt.Errorf("%q: %w", s, err)
		}
	}
	return g, nil
}

// parseGUID takes four groups of four hex digits, first byte first.
func parseGUID(s string) (uint64, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || len(b) != 8 || len(s) != 19 {
		return 0, fmt.Errorf("%q: want four groups of four hex digits", s)
	}
	return binary.BigEndian.Uint64(b), nil
}

// parseGIDType takes the words of gid_attrs/types. The first two kinds share
// one word there: which it is, the link tells.
func parseGIDType(s string, link verbs.LinkLayer) (verbs.GIDType, error) {
	switch s {
	case "RoCE v2":
		return verbs.GIDTypeRoCEv2, nil
	case "IB/RoCE v1":
		if link == verbs.LinkInfiniBand {
			return verbs.GIDTypeIB, nil
		}
		return verbs.GIDTypeRoCEv1, nil
	}
	return verbs.GIDTypeUnknown, fmt.Errorf("%q: want \"IB/RoCE v1\" or \"RoCE v2\"", s)
}

func parseLID(s string) (verbs.LID, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number", s)
	}
	if n > math.MaxUint16 {
		return 0, fmt.Errorf("%q: the LID has more than 16 bits (Omni-Path): not supported", s)
	}
	return verbs.LID(n), nil
}

// parseRate takes "100 Gb/sec (4X EDR)" and "2.5 Gb/sec (1X SDR)".
func parseRate(s string) (Rate, error) {
	number, _, ok := strings.Cut(s, " Gb/sec")
	f, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(f >= 0 && f < 1e6) {
		return Rate{}, fmt.Errorf("%q: want a rate, as \"100 Gb/sec (4X EDR)\"", s)
	}
	return Rate{Mbps: int64(math.Round(f * 1000)), Text: s}, nil
}

// parseHardware takes the address of a netdev: bytes in hex, colons between.
func parseHardware(s string) ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil {
		return nil, fmt.Errorf("%q: want bytes in hex", s)
	}
	return b, nil
}

// parseIndex takes the name of a directory entry that is a number: a port, or a
// place in a table.
func parseIndex(s string, bits int) (int, bool) {
	n, err := strconv.ParseUint(s, 10, bits)
	return int(n), err == nil && strconv.FormatUint(n, 10) == s
}

// natural compares names with the numbers in them by value: 0 only for the same
// name.
func natural(a, b string) int {
	same := strings.Compare(a, b)
	for a != "" && b != "" {
		an, bn := digits(a), digits(b)
		if an > 0 && bn > 0 {
			x, y := strings.TrimLeft(a[:an], "0"), strings.TrimLeft(b[:bn], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			a, b = a[an:], b[bn:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Or(len(a)-len(b), same)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
