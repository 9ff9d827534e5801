package handshake

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

func TestAPeersOfferIsValidated(t *testing.T) {
	if err := Validate(at(1, testOffer(0, 1))); err != nil {
		t.Fatal(err)
	}
	for words, spoil := range map[string]func(*Offer){
		"protocol version": func(o *Offer) { o.Version = 0 },
		"speaks protocol version 3, and this process needs version 4 at least; run the same release": func(o *Offer) { o.Version = 3 },
		"no task":                func(o *Offer) { o.Task = cluster.Task{} },
		"incarnation is 0":       func(o *Offer) { o.Incarnation = 0 },
		"generation is 0":        func(o *Offer) { o.Generation = 0 },
		"generation is 1844":     func(o *Offer) { o.Generation = 1<<64 - 1 },
		"0 rails":                func(o *Offer) { o.Rails = nil },
		"9 rails":                func(o *Offer) { o.Rails = make([]Rail, 9) },
		"link layer is":          func(o *Offer) { o.Link = 9 },
		"GID type on Ethernet":   func(o *Offer) { o.GIDType = verbs.GIDTypeIB },
		"GID type on Infini":     func(o *Offer) { o.Link = verbs.LinkInfiniBand },
		"window is 0":            func(o *Offer) { o.Window = 0 },
		"window is 42":           func(o *Offer) { o.Window = 1<<32 - 1 },
		"receives hold 0":        func(o *Offer) { o.ReceiveSize = 0 },
		"receives hold 4294":     func(o *Offer) { o.ReceiveSize = 1<<32 - 1 },
		"eager limit is":         func(o *Offer) { o.EagerLimit = o.ReceiveSize + 1 },
		"ports take messages":    func(o *Offer) { o.MaxMessage = 1 },
		"number 0x0":             func(o *Offer) { o.Rails[0].QPN = 0 },
		"number 0x1":             func(o *Offer) { o.Rails[0].QPN = 1 },
		"number 0xffffff":        func(o *Offer) { o.Rails[0].QPN = 1<<24 - 1 },
		"number 0x1000000":       func(o *Offer) { o.Rails[0].QPN = 1 << 24 },
		"packet sequence number": func(o *Offer) { o.Rails[0].PSN = 1 << 24 },
		"no MTU of 1500":         func(o *Offer) { o.Rails[0].MTU = 1500 },
		"GID is empty":           func(o *Offer) { o.Rails[0].GID = verbs.GID{} },
		"multicast":              func(o *Offer) { o.Rails[0].GID[0] = 0xff },
		"LID is 0":               func(o *Offer) { o.Link, o.GIDType = verbs.LinkInfiniBand, verbs.GIDTypeIB },
		"names no port that":     func(o *Offer) { o.Rails[0].UDP.Port = 4791 },
		"UDP source ports":       func(o *Offer) { o.Rails[0].UDP.Sources = make([]uint16, 65) },
		"rail 1: queue pair":     func(o *Offer) { o.Rails = append(o.Rails, o.Rails[0]) },
	} {
		o := at(1, testOffer(0, 1))
		spoil(&o)
		err := Validate(o)
		if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
}

// TestAGIDIsTheAddressOfOneHost: multicast, broadcast and unspecified addresses are refused.
func TestAGIDIsTheAddressOfOneHost(t *testing.T) {
	for address, words := range map[string]string{
		"10.0.0.1": "", "2001:db8::1": "", "fe80::1": "", "127.0.0.1": "", "::1": "", "223.255.255.255": "", "::ffff:10.0.0.1": "",
		"ff02::1": "multicast", "ff0e::1": "multicast", "224.0.0.1": "multicast", "239.255.255.255": "multicast", "::ffff:224.0.0.251": "multicast",
		"255.255.255.255": "broadcast", "0.0.0.0": "unspecified", "::": "empty",
	} {
		for _, kind := range []verbs.GIDType{verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2} {
			o := at(1, testOffer(0, 1))
			o.GIDType, o.Rails[0].GID = kind, verbs.GIDFromAddr(netip.MustParseAddr(address))
			switch err := Validate(o); {
			case words == "" && err != nil:
				t.Errorf("%s: %v", address, err)
			case words != "" && (status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), words)):
				t.Errorf("%s: want %q, got %v", address, words, err)
			}
		}
	}
}

func TestCompatible(t *testing.T) {
	gid := func(s string) verbs.GID { return verbs.GIDFromAddr(netip.MustParseAddr(s)) }
	for words, spoil := range map[string]func(a, b *Offer){
		"":           func(_, _ *Offer) {},
		"InfiniBand": func(_, b *Offer) { b.Link, b.GIDType = verbs.LinkInfiniBand, verbs.GIDTypeIB },
		"RoCE v1":    func(_, b *Offer) { b.GIDType = verbs.GIDTypeRoCEv1 },
		"no route leads from GID 10.0.0.1 of /job:a/replica:0/task:0 (IPv4) to 2001": func(_, b *Offer) { b.Rails[0].GID = gid("2001:db8::1") },
		"(IPv6 of one link)": func(a, b *Offer) { a.Rails[0].GID, b.Rails[0].GID = gid("2001:db8::2"), gid("fe80::1") },
		"(IPv4 loopback)":    func(a, _ *Offer) { a.Rails[0].GID = gid("127.0.0.1") },
		"from GID 127.0.0.1 of /job:a/replica:0/task:0 (IPv4 loopback) to 0000:0000:0000:0000:0000:0000:0000:0001 of /job:b/replica:0/task:0 (IPv6 loopback)": func(a, b *Offer) {
			a.Rails[0].GID, b.Rails[0].GID = gid("127.0.0.1"), gid("::1")
		},
		"no route leads from GID 127.0.0.1": func(a, b *Offer) { a.Rails[0].GID, a.Host, b.Host = gid("127.0.0.1"), 7, 8 },
		"GID 127.0.0.1 of /job:a/replica:0/task:0 and 127.0.0.2 of /job:b/replica:0/task:0 are loopback, and of two hosts": func(a, b *Offer) {
			a.Rails[0].GID, b.Rails[0].GID, a.Host, b.Host = gid("127.0.0.1"), gid("127.0.0.2"), 7, 8
		},
		"(IPv6 loopback) to fe80": func(a, b *Offer) {
			a.Rails[0].GID, b.Rails[0].GID, a.Host, b.Host = gid("::1"), gid("fe80::1"), 7, 7
		},
		"/job:a/replica:0/task:0 is in the InfiniBand subnet fe80000000000000, /job:b/replica:0/task:0 in fe80000000000001": func(a, b *Offer) {
			for i, o := range []*Offer{a, b} {
				o.Link, o.GIDType, o.Rails[0].LID, o.Rails[0].GID = verbs.LinkInfiniBand, verbs.GIDTypeIB, 3, verbs.GID{0xfe, 0x80, 7: byte(i), 15: 3}
			}
		},
		"/job:a/replica:0/task:0 takes 5000, that of /job:b/replica:0/task:0 0": func(a, _ *Offer) { a.Rails[0].UDP.Port = 5000 },
		"/job:a/replica:0/task:0 takes 0, that of /job:b/replica:0/task:0 5000": func(_, b *Offer) { b.Rails[0].UDP.Port = 5000 },
	} {
		a, b := testOffer(0, 1), testOffer(1, 2)
		spoil(&a, &b)
		err := Compatible(a, b)
		if words == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		code := status.FailedPrecondition
		if a.onLoopback() || b.onLoopback() {
			code = status.CodeOf(err) // TestLoopbackMayChange
		}
		if status.CodeOf(err) != code || !strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), names[0].String()) || !strings.Contains(err.Error(), names[1].String()) {
			t.Errorf("want %q and both names, got %v", words, err)
		}
	}
	for name, meet := range map[string]func(a, b *Offer){
		"loopback of hosts that are not known": func(a, b *Offer) { a.Rails[0].GID, b.Rails[0].GID = gid("127.0.0.1"), gid("127.0.0.1") },
		"one of which is known":                func(a, b *Offer) { a.Rails[0].GID, b.Rails[0].GID, a.Host = gid("::1"), gid("::1"), 7 },
		"loopback of one host": func(a, b *Offer) {
			a.Rails[0].GID, b.Rails[0].GID, a.Host, b.Host = gid("127.0.0.1"), gid("127.0.0.2"), 7, 7
		},
		"loopback and another address of it": func(a, b *Offer) { a.Rails[0].GID, a.Host, b.Host = gid("127.0.0.1"), 7, 7 },
		"the same over IPv6": func(a, b *Offer) {
			a.Rails[0].GID, b.Rails[0].GID, a.Host, b.Host = gid("::1"), gid("2001:db8::1"), 7, 7
		},
		"two hosts": func(a, b *Offer) { a.Host, b.Host = 7, 8 },
		"one InfiniBand subnet": func(a, b *Offer) {
			for i, o := range []*Offer{a, b} {
				o.Link, o.GIDType, o.Rails[0].LID, o.Rails[0].GID = verbs.LinkInfiniBand, verbs.GIDTypeIB, 3, verbs.GID{0xfe, 0x80, 15: byte(i)}
			}
		},
	} {
		a, b := testOffer(0, 1), testOffer(1, 2)
		meet(&a, &b)
		if err := errors.Join(Compatible(a, b), Compatible(b, a)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, ports := range [][2]uint16{{4791, 0}, {0, 4791}, {5000, 5001}, {0, 0}} {
		a, b := testOffer(0, 1), testOffer(1, 2)
		a.Rails[0].UDP.Port, b.Rails[0].UDP.Port = ports[0], ports[1]
		if err := Compatible(a, b); err != nil {
			t.Errorf("ports %v: %v", ports, err)
		}
	}
}

// A process on loopback may get another address soon, so its peers try again soon. Two
// families of one host stay as they are.
func TestLoopbackMayChange(t *testing.T) {
	for name, c := range map[string]struct {
		own, peer         string
		ownHost, peerHost uint64
		code              status.Code
	}{
		"loopback and another host":         {"127.0.0.1", "10.0.0.1", 7, 8, status.Unavailable},
		"another host and loopback":         {"10.0.0.1", "127.0.0.1", 7, 8, status.Unavailable},
		"loopback of two hosts":             {"127.0.0.1", "127.0.0.1", 7, 8, status.Unavailable},
		"both families' loopback, one host": {"127.0.0.1", "::1", 7, 7, status.FailedPrecondition},
		"two families":                      {"10.0.0.1", "2001:db8::1", 7, 8, status.FailedPrecondition},
	} {
		a, b := testOffer(0, 1), testOffer(1, 2)
		a.Rails[0].GID, b.Rails[0].GID = verbs.GIDFromAddr(netip.MustParseAddr(c.own)), verbs.GIDFromAddr(netip.MustParseAddr(c.peer))
		a.Host, b.Host = c.ownHost, c.peerHost
		if err := Compatible(a, b); status.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
}

func TestOffersAreCompared(t *testing.T) {
	a := at(1, testOffer(0, 1))
	for i, change := range []func(*Offer){
		func(o *Offer) { o.Generation++ }, func(o *Offer) { o.Incarnation++ }, func(o *Offer) { o.Window++ }, func(o *Offer) { o.Rails[0].PSN++ },
		func(o *Offer) { o.Rails[0].UDP.Sources = []uint16{1} }, func(o *Offer) { o.Rails = append(o.Rails, o.Rails[0]) },
	} {
		b := at(1, testOffer(0, 1))
		if !a.Equal(b) {
			t.Fatal("two equal offers differ")
		}
		if change(&b); a.Equal(b) {
			t.Errorf("change %d makes no difference", i)
		}
	}
}
