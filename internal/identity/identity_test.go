package identity

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestNameIsTheCertificates(t *testing.T) {
	seven := cluster.Task{Job: "ps", Index: 7}
	for _, c := range []struct {
		id   Identity
		host string
		ok   bool
	}{
		{Identity{}, "h3", true},
		{Identity{Proven: true, Tasks: []cluster.Task{seven}}, "h3", true},
		{Identity{Proven: true, Tasks: []cluster.Task{{Job: "ps", Index: 8}}}, "h3", false},
		{Identity{Proven: true, Tasks: []cluster.Task{{Job: "ps", Index: 8}}, Hosts: []string{"h3"}}, "h3", false},
		{Identity{Proven: true, Hosts: []string{"h4", "H3."}}, "h3", true},
		{Identity{Proven: true, Hosts: []string{"h4"}}, "h3", false},
		{Identity{Proven: true, Hosts: []string{"::ffff:10.0.0.1"}}, "10.0.0.1", true},
		{Identity{Proven: true, Hosts: []string{"h4"}}, "", true},
		{Identity{Proven: true, Tasks: []cluster.Task{{Job: "ps", Index: 8}}}, "", false},
		{Identity{Proven: true}, "h3", false},
	} {
		err := c.id.Check(seven, c.host)
		if (err == nil) != c.ok || err != nil && status.CodeOf(err) != status.PermissionDenied {
			t.Errorf("%+v at %q: %v", c.id, c.host, err)
		}
	}
}

// TestAWildcardIsNoHost: a wildcard does not count as a host, other than in TLS. The error explains
// it.
func TestAWildcardIsNoHost(t *testing.T) {
	ps, told := cluster.Task{Job: "ps"}, "(a wildcard does not count)"
	err := Identity{Proven: true, Hosts: []string{"*.cluster.example"}}.Check(ps, "h3.cluster.example")
	if status.CodeOf(err) != status.PermissionDenied || !strings.Contains(err.Error(), told) {
		t.Errorf("%v", err)
	}
	err = Identity{Proven: true, Hosts: []string{"h4.cluster.example"}}.Check(ps, "h3.cluster.example")
	if err == nil || strings.Contains(err.Error(), told) {
		t.Errorf("%v", err)
	}
	if err := (Identity{Proven: true, Hosts: []string{"*.cluster.example", "h3.cluster.example"}}).Check(ps, "h3.cluster.example"); err != nil {
		t.Error(err)
	}
}

// TestEveryCertificateCoversClients: the names of clients are random, so no certificate can have
// them.
func TestEveryCertificateCoversClients(t *testing.T) {
	client := cluster.Task{Job: cluster.ClientJob, Index: 1234}
	for _, id := range []Identity{{Proven: true}, {Proven: true, Hosts: []string{"h3"}}, {Proven: true, Tasks: []cluster.Task{{Job: "ps", Index: 8}}}} {
		if err := id.Check(client, ""); err != nil {
			t.Errorf("%+v: %v", id, err)
		}
	}
}

// TestAddressOfAnAddress: all ports and addresses of a host's network are one source.
func TestAddressOfAnAddress(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:7000": "10.0.0.1", "[::ffff:10.0.0.1]:7001": "10.0.0.1", "[::1]:7000": "::1",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64", "[2001:db8:1:2:9::]:1": "2001:db8:1:2::/64",
		"[2001:db8:1:3::1]:1": "2001:db8:1:3::/64", "[fe80::1%eth0]:1": "fe80::/64",
		"pipe": "pipe", "@": "@",
	} {
		if got := AddressOf(textAddr(address)); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

// textAddr is a net.Addr with a given text.
type textAddr string

func (textAddr) Network() string  { return "test" }
func (a textAddr) String() string { return string(a) }
