// Package identity checks the task name that a caller of a gRPC service claims against its
// certificate (mutual TLS). The bootstrap of verbs and the services of package grpctransport
// share this check (PROTOCOL.md section 10).
package identity

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// Identity has the names in the certificate of a connection's peer.
type Identity struct {
	// Proven reports whether the peer has a verified certificate (mutual TLS). A peer
	// without one may use every name.
	Proven bool
	// Tasks are the task names in the certificate. Hosts are its DNS names and IP addresses.
	Tasks []cluster.Task
	Hosts []string
}

// Of returns the identity of the caller of ctx's call.
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

// taskPath returns the path of a URI that may name a task, for instance
// tryst:/job:ps/replica:0/task:7 or spiffe://example.org/job:ps/task:7.
func taskPath(u *url.URL) string {
	if u.Scheme != "tryst" && u.Scheme != "spiffe" {
		return ""
	}
	return u.Path
}

// Check returns PermissionDenied if the certificate does not cover the name of task. host is
// the host of the task's address in the cluster; empty for a task without an address.
//
// A certificate with task names covers these tasks. A certificate without task names covers
// the tasks on its hosts, and tasks without an address. A wildcard does not count as a host:
// it may match all hosts of a cluster, and each of them could then use the name of any task.
// The names of clients are random, so no certificate can have them; every certificate covers
// them.
func (id Identity) Check(task cluster.Task, host string) error {
	if id.covers(cluster.Place{Task: task, Host: host}) {
		return nil
	}
	return id.refuse(fmt.Sprintf("the caller claims the name %v, but its certificate is", task), task, host)
}

// CheckReceiver returns PermissionDenied if something that is for the process at a place is not for
// the caller. The rules are those of Check. A place that only the cluster of a session has is covered
// by its name there or by its host: certificates have the names of another cluster.
func (id Identity) CheckReceiver(p cluster.Place) error {
	if id.covers(p) {
		return nil
	}
	return id.refuse(fmt.Sprintf("it is for %v alone, but the caller's certificate is", p.Task), p.Task, p.Host)
}

func (id Identity) covers(p cluster.Place) bool {
	switch {
	case !id.Proven || slices.Contains(id.Tasks, p.Task):
		return true
	case p.Elsewhere:
		return p.Host != "" && id.at(p.Host)
	case p.Task.Job == cluster.ClientJob:
		return true
	}
	return len(id.Tasks) == 0 && (p.Host == "" || id.at(p.Host))
}

// at reports whether a host is one of the certificate.
func (id Identity) at(host string) bool {
	return slices.ContainsFunc(id.Hosts, func(h string) bool { return cluster.CanonicalHost(h) == cluster.CanonicalHost(host) })
}

func (id Identity) refuse(claim string, task cluster.Task, host string) error {
	wildcard := ""
	if slices.ContainsFunc(id.Hosts, func(h string) bool { return strings.Contains(h, "*") }) {
		wildcard = " (a wildcard does not count)"
	}
	return status.Errorf(status.PermissionDenied, "%w", cluster.NotProven(fmt.Sprintf(
		"%s for tasks %v and hosts %q%s; give it a certificate with the URI tryst:%v, or one for its host %q",
		claim, id.Tasks, id.Hosts, wildcard, task, host)))
}

// String is the names in the certificate; empty without one, and for one without names.
func (id Identity) String() string {
	names := make([]string, 0, len(id.Tasks)+len(id.Hosts))
	for _, t := range id.Tasks {
		names = append(names, t.String())
	}
	return strings.Join(append(names, id.Hosts...), ",")
}
