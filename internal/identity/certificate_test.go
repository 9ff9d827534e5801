package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"slices"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/cluster"
)

// callBy is the context of a call over a connection with this state of TLS.
func callBy(t *testing.T, state tls.ConnectionState) context.Context {
	return peer.NewContext(t.Context(), &peer.Peer{Addr: textAddr("10.0.0.1:7000"), AuthInfo: credentials.TLSInfo{State: state}})
}

// TestNamesOfACertificate: the common name and the paths of URIs of two schemes name tasks; those of
// others do not, whatever their path is.
func TestNamesOfACertificate(t *testing.T) {
	one, two := cluster.Task{Job: "ps", Index: 1}, cluster.Task{Job: "ps", Index: 2}
	for uri, want := range map[string][]cluster.Task{
		"tryst:/job:ps/replica:0/task:2":                {one, two},
		"tryst:///job:ps/replica:0/task:2":              {one, two},
		"spiffe://example.org/job:ps/replica:0/task:2":  {one, two},
		"https://example.org/job:ps/replica:0/task:2":   {one},
		"http:///job:ps/replica:0/task:2":               {one},
		"file:///job:ps/replica:0/task:2":               {one},
		"trysts:/job:ps/replica:0/task:2":               {one},
		"//example.org/job:ps/replica:0/task:2":         {one},
		"/job:ps/replica:0/task:2":                      {one},
		"urn:/job:ps/replica:0/task:2":                  {one},
		"tryst:/job:ps/replica:0/task:2/device:CPU:0":   {one},
		"spiffe://example.org/ns/x/job:ps/task:2":       {one},
		"https://tryst:x@h/job:ps/replica:0/task:2#spi": {one},
	} {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		cert := &x509.Certificate{
			Subject: pkix.Name{CommonName: one.String()}, URIs: []*url.URL{u}, DNSNames: []string{"h3"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)},
		}
		id := Of(callBy(t, tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}))
		if !id.Proven || !slices.Equal(id.Tasks, want) || !slices.Equal(id.Hosts, []string{"h3", "10.0.0.1"}) {
			t.Errorf("%s: %+v, want the tasks %v", uri, id, want)
		}
	}
}

// TestWithoutAVerifiedChainNothingIsProven: a certificate that nobody has verified proves no name.
func TestWithoutAVerifiedChainNothingIsProven(t *testing.T) {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "/job:ps/replica:0/task:1"}, DNSNames: []string{"h3"}}
	shown := []*x509.Certificate{cert}
	for name, ctx := range map[string]context.Context{
		"no call":          t.Context(),
		"no TLS":           peer.NewContext(t.Context(), &peer.Peer{Addr: textAddr("10.0.0.1:7000")}),
		"no certificate":   callBy(t, tls.ConnectionState{}),
		"no chain":         callBy(t, tls.ConnectionState{PeerCertificates: shown}),
		"chains of nobody": callBy(t, tls.ConnectionState{PeerCertificates: shown, VerifiedChains: [][]*x509.Certificate{}}),
		"an empty chain":   callBy(t, tls.ConnectionState{PeerCertificates: shown, VerifiedChains: [][]*x509.Certificate{{}}}),
	} {
		if id := Of(ctx); id.Proven || len(id.Tasks)+len(id.Hosts) != 0 {
			t.Errorf("%s: %+v", name, id)
		}
	}
}

// TestReceiversOfAPlace: a certificate covers a place by the rules of names. A place that only the
// cluster of a session has is also covered by its host, and never for want of one.
func TestReceiversOfAPlace(t *testing.T) {
	seven, eight := cluster.Task{Job: "ps", Index: 7}, cluster.Task{Job: "ps", Index: 8}
	client := cluster.Task{Job: cluster.ClientJob, Index: 1}
	tasks := func(t ...cluster.Task) Identity { return Identity{Proven: true, Tasks: t, Hosts: []string{"h3"}} }
	hosts := Identity{Proven: true, Hosts: []string{"h3"}}
	for _, c := range []struct {
		id    Identity
		place cluster.Place
		ok    bool
	}{
		{Identity{}, cluster.Place{Task: seven, Host: "h9"}, true},
		{tasks(seven), cluster.Place{Task: seven, Host: "h9"}, true},
		{tasks(eight), cluster.Place{Task: seven, Host: "h3"}, false},
		{tasks(eight), cluster.Place{Task: client}, true},
		{hosts, cluster.Place{Task: seven, Host: "H3."}, true},
		{hosts, cluster.Place{Task: seven, Host: "h4"}, false},
		{hosts, cluster.Place{Task: seven}, true},
		{tasks(seven), cluster.Place{Task: seven, Host: "h9", Elsewhere: true}, true},
		{tasks(eight), cluster.Place{Task: seven, Host: "h3", Elsewhere: true}, true},
		{tasks(eight), cluster.Place{Task: seven, Host: "h4", Elsewhere: true}, false},
		{hosts, cluster.Place{Task: seven, Host: "h4", Elsewhere: true}, false},
		{hosts, cluster.Place{Task: seven, Elsewhere: true}, false},
		{hosts, cluster.Place{Task: client, Host: "h4", Elsewhere: true}, false},
	} {
		if err := c.id.CheckReceiver(c.place); (err == nil) != c.ok {
			t.Errorf("%v for %+v: %v", c.id, c.place, err)
		}
	}
}
