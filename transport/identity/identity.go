// Package identity is what mutual TLS proves of the caller of a gRPC service, and
// which task names a caller with that proof may use. The bootstrap of verbs and
// the services of package grpctransport share this one check (PROTOCOL.md
// section 10).
package identity

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Identity is what a connection has proved of its other end.
type Identity struct {
	// Proven reports that there is a certificate that was verified (mutual TLS).
	// A connection without one may use every name.
	Proven bool
	// Tasks are the task names in the certificate, and Hosts its DNS names and IP
	// addresses.
	Tasks []cluster.Task
	Hosts []string
}

// Of returns what the connection of a call has proved of its caller.
func Of(ctx context.Context) Identity {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return Identity{}
	}
	cert := info.State.VerifiedChains[0][0]
	id := Identity{Proven: true, Hosts: slices.Clone(cert.DNSNames)}
	for _, ip := range cert.IPAddresses {
		id.Hosts = append(id.Hosts, ip.String())
	}
	names := []string{cert.Subject.CommonName}
	for _, u := range cert.URIs {
		names = append(names, taskPath(u))
	}
	for _, name := range names {
		if t, err := cluster.ParseTask(name); err == nil {
			id.Tasks = append(id.Tasks, t)
		}
	}
	return id
}

// taskPath is the path of a URI that may name a task: tryst:/job:ps/replica:0/task:7,
// or spiffe://example.org/job:ps/task:7.
func taskPath(u *url.URL) string {
	if u.Scheme != "tryst" && u.Scheme != "spiffe" {
		return ""
	}
	return u.Path
}

// Check refuses with PermissionDenied a name that the certificate does not cover.
// host is the host of the address that the cluster has for the task; empty when it
// has none.
//
// A certificate with task names covers these. One without covers the tasks on its
// hosts, and tasks without an address. A wildcard is no host: it may stand for every
// host of a cluster, each of which could then use the name of any task. The name of
// a client is random and no certificate has it, so every certificate covers those.
func (id Identity) Check(task cluster.Task, host string) error {
	if !id.Proven || task.Job == cluster.ClientJob || slices.Contains(id.Tasks, task) {
		return nil
	}
	if len(id.Tasks) == 0 {
		if host == "" || slices.ContainsFunc(id.Hosts, func(h string) bool { return sameHost(h, host) }) {
			return nil
		}
	}
	wildcard := ""
	if slices.ContainsFunc(id.Hosts, func(h string) bool { return strings.Contains(h, "*") }) {
		wildcard = " (a wildcard does not count)"
	}
	return status.Errorf(status.PermissionDenied,
		"the caller claims the name %v, and its certificate is for tasks %v and hosts %q%s; give it a certificate with the URI tryst:%v, or one for its host %q",
		task, id.Tasks, id.Hosts, wildcard, task, host)
}

// sameHost compares two hosts, as addresses where they are such.
func sameHost(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX == nil && errY == nil {
		return x.Unmap() == y.Unmap()
	}
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}
