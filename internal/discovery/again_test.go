package discovery_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

func entry(index int, addr string, typ verbs.GIDType) verbs.GIDEntry {
	return verbs.GIDEntry{Index: index, GID: verbs.GIDFromAddr(netip.MustParseAddr(addr)), Type: typ}
}

// A GID table changes when a port flaps; the index that was right before may hold
// something else afterwards.
func TestAgainAfterAPortFlap(t *testing.T) {
	const v1, v2 = verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2
	was := entry(3, "192.0.2.1", v2)
	for _, tt := range []struct {
		name  string
		table []verbs.GIDEntry
		want  verbs.GIDEntry
		same  bool
	}{
		{"it stayed", []verbs.GIDEntry{entry(0, "fe80::1", v2), was}, was, true},
		{"it moved", []verbs.GIDEntry{entry(0, "fe80::1", v2), entry(3, "192.0.2.9", v2), entry(7, "192.0.2.1", v2)}, entry(7, "192.0.2.1", v2), true},
		{"it moved, and the other type has its place", []verbs.GIDEntry{entry(3, "192.0.2.1", v1), entry(4, "192.0.2.1", v2)}, entry(4, "192.0.2.1", v2), true},
		{"twice there, one where it was", []verbs.GIDEntry{entry(1, "192.0.2.1", v2), was}, was, true},
		{"the address changed", []verbs.GIDEntry{entry(0, "fe80::1", v2), entry(5, "192.0.2.77", v2), entry(2, "192.0.2.77", v1)}, entry(5, "192.0.2.77", v2), false},
		{"several of its kind", []verbs.GIDEntry{entry(9, "192.0.2.78", v2), entry(5, "192.0.2.77", v2)}, entry(5, "192.0.2.77", v2), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, same, err := discovery.Again(tt.table, was)
			if err != nil || now != tt.want || same != tt.same {
				t.Errorf("found %+v, same %v, %v; want %+v, same %v", now, same, err, tt.want, tt.same)
			}
		})
	}
}

func TestAgainTakesNothingOfAnotherKind(t *testing.T) {
	const v1, v2 = verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2
	for _, tt := range []struct {
		name  string
		was   verbs.GIDEntry
		table []verbs.GIDEntry
	}{
		{"empty", entry(3, "192.0.2.1", v2), nil},
		{"link-local is left", entry(3, "192.0.2.1", v2), []verbs.GIDEntry{entry(0, "fe80::1", v2), entry(1, "169.254.0.1", v2)}},
		{"IPv6 is left", entry(3, "192.0.2.1", v2), []verbs.GIDEntry{entry(3, "2001:db8::1", v2)}},
		{"RoCE v1 is left", entry(3, "192.0.2.1", v2), []verbs.GIDEntry{entry(3, "192.0.2.1", v1)}},
		{"another InfiniBand GID", entry(0, "fe80::1", verbs.GIDTypeIB), []verbs.GIDEntry{entry(0, "fe80::2", verbs.GIDTypeIB)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, _, err := discovery.Again(tt.table, tt.was)
			if !errors.Is(err, verbs.ErrNotFound) {
				t.Fatalf("found %+v, %v; want that there is none", now, err)
			}
			for _, e := range tt.table {
				if !strings.Contains(err.Error(), e.GID.String()) {
					t.Errorf("%q does not say that the table has %s", err, e.GID)
				}
			}
		})
	}
}
