package checkpoint

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Receiver is the part of the pulling process' rendezvous that a Puller uses.
type Receiver interface {
	// RecvAsync receives the value of a key in a step, as in rendezvous.Rendezvous.
	RecvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc)
	// EndStep releases the state of a step. It does not block.
	EndStep(step int64)
}

// NewReceiver returns a Receiver for the steps of a process. The manager's session must be that
// of the Puller's task.
func NewReceiver(m *rendezvous.Manager) Receiver { return receiver{m} }

type receiver struct{ m *rendezvous.Manager }

func (r receiver) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	r.m.Find(step).RecvAsync(ctx, key, args, done)
}

func (r receiver) EndStep(step int64) { r.m.Cleanup(step) }

// PullerOptions configures a Puller. All fields except Address and Allocator are needed.
type PullerOptions struct {
	// Conn is a connection to the server that has the publications.
	Conn grpc.ClientConnInterface
	// Task and Incarnation are those of this process, and of the Receiver's session.
	Task        cluster.Task
	Incarnation uint64
	// Receiver receives the tensors.
	Receiver Receiver
	// Address is the address of the server, for messages.
	Address string
	// Allocator has the memory of large tensors, which come in pieces, each straight into its
	// place; nil means tensor.Heap.
	Allocator tensor.Allocator
}

// Puller pulls publications of one server. It is safe for concurrent use and need not be
// closed. Nobody copies it.
type Puller struct {
	o      PullerOptions
	client trystgrpc.PublicationsClient

	watches watches
}

// NewPuller returns a Puller.
func NewPuller(o PullerOptions) *Puller {
	if o.Allocator == nil {
		o.Allocator = tensor.Heap{}
	}
	return &Puller{o: o, client: trystgrpc.NewPublicationsClient(o.Conn)}
}

// server names the server in messages.
func (p *Puller) server() string {
	if p.o.Address == "" {
		return "the server"
	}
	return p.o.Address
}

// List returns the publications of the server, sorted by name.
func (p *Puller) List(ctx context.Context) ([]Publication, error) {
	var trailer metadata.MD
	resp, err := p.client.List(ctx, &trystpb.ListRequest{}, grpc.MaxCallRecvMsgSize(maxManifest), grpc.Trailer(&trailer))
	if err != nil {
		return nil, p.failed(ctx, "listing the publications", err, trailer)
	}
	var all []Publication
	for _, pub := range resp.GetPublications() {
		all = append(all, publicationOf(pub))
	}
	slices.SortFunc(all, byName)
	return all, nil
}

// Describe returns the manifest of a publication. An empty name means the server's only
// publication; it is InvalidArgument if there are several. An empty version means the current
// one.
func (p *Puller) Describe(ctx context.Context, name, version string) (*Manifest, error) {
	if name == "" {
		only, err := p.only(ctx)
		if err != nil {
			return nil, err
		}
		name = only
	}
	var trailer metadata.MD
	resp, err := p.client.Describe(ctx, &trystpb.DescribeRequest{Publication: name, Version: version},
		grpc.MaxCallRecvMsgSize(maxManifest), grpc.Trailer(&trailer))
	if err != nil {
		return nil, p.failed(ctx, "asking for publication "+quote(name), err, trailer)
	}
	m, err := manifestOf(resp)
	if err != nil {
		return nil, wrap("the description of publication "+quote(name)+" by "+p.server(), err)
	}
	if m.Name != name || version != "" && m.Version != version {
		return nil, status.Errorf(status.InvalidArgument, "%s was asked for %s version %s, and described %s version %s", p.server(), quote(name), quote(version), quote(m.Name), quote(m.Version))
	}
	return m, nil
}

// only returns the name of the server's only publication.
func (p *Puller) only(ctx context.Context) (string, error) {
	all, err := p.List(ctx)
	if err != nil {
		return "", err
	}
	switch len(all) {
	case 0:
		return "", status.Errorf(status.NotFound, "%s has no publication", p.server())
	case 1:
		return all[0].Name, nil
	}
	names := make([]string, 0, suggestions)
	for _, pub := range all[:min(len(all), suggestions)] {
		names = append(names, quote(pub.Name))
	}
	if len(all) > suggestions {
		names = append(names, "...")
	}
	return "", status.Errorf(status.InvalidArgument, "%s has %d publications (%s): say which one", p.server(), len(all), strings.Join(names, ", "))
}

// namesOf returns the names to open. It returns none, which means all tensors, if all are
// chosen or the list would be longer than maxOpenNames.
func (m *Manifest) namesOf(chosen []int) []string {
	if len(chosen) == len(m.Entries) {
		return nil
	}
	names, size := make([]string, 0, len(chosen)), 0
	for _, i := range chosen {
		names = append(names, m.Entries[i].Name)
		if size += len(m.Entries[i].Name) + 4; size > maxOpenNames { // with tag and length
			return nil
		}
	}
	return names
}
