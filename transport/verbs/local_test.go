package verbstransport

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// Answer is answer, for tests outside the package.
func (t *RdmaRemoteRendezvous) Answer(ctx context.Context, address string, from handshake.Offer) (handshake.Offer, error) {
	return t.answer(ctx, address, from)
}

// InMemory returns bootstrap connections between processes of one test, without sockets. find returns the
// process that is reached at a task's address; nil if there is none.
func InMemory(find func(cluster.Task) *RdmaRemoteRendezvous) func(cluster.Task) (grpc.ClientConnInterface, error) {
	return func(peer cluster.Task) (grpc.ClientConnInterface, error) {
		return inMemory{find: func() *RdmaRemoteRendezvous { return find(peer) }}, nil
	}
}

type inMemory struct {
	grpc.ClientConnInterface
	find func() *RdmaRemoteRendezvous
}

// Invoke implements grpc.ClientConnInterface.
func (c inMemory) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	t := c.find()
	if t == nil {
		return grpcstatus.Error(codes.Unavailable, "it is not up")
	}
	var r registrar
	t.Register(&r, BootstrapOptions{Host: func(cluster.Task) (string, bool) { return "", true }})
	request, ok := args.(*tfpb.GetRemoteAddressRequest)
	to, ok2 := reply.(proto.Message)
	if !ok || !ok2 {
		return fmt.Errorf("%s with %T and %T", method, args, reply)
	}
	response, err := r.service.GetRemoteAddress(ctx, request)
	if err == nil {
		proto.Merge(to, response)
		return nil
	}
	for _, o := range opts {
		if trailer, ok := o.(grpc.TrailerCallOption); ok {
			*trailer.TrailerAddr = metadata.Pairs("tryst-answered", "1")
		}
	}
	return err
}

// registrar keeps the service that is registered.
type registrar struct {
	service tensorflowgrpc.VerbsServiceServer
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registrar) RegisterService(_ *grpc.ServiceDesc, impl any) {
	r.service, _ = impl.(tensorflowgrpc.VerbsServiceServer)
}

// Wrap replaces the connections for bootstrap calls: call is called in place of each call, and may make it.
func (o *Options) Wrap(call func(ctx context.Context, request *tfpb.GetRemoteAddressRequest, next func() error, response *tfpb.GetRemoteAddressResponse) error) {
	under := o.Bootstrap
	o.Bootstrap = func(peer cluster.Task) (grpc.ClientConnInterface, error) {
		conn, err := under(peer)
		return wrapped{conn, call}, err
	}
}

type wrapped struct {
	grpc.ClientConnInterface
	call func(context.Context, *tfpb.GetRemoteAddressRequest, func() error, *tfpb.GetRemoteAddressResponse) error
}

// Invoke implements grpc.ClientConnInterface.
func (c wrapped) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	request, ok := args.(*tfpb.GetRemoteAddressRequest)
	response, ok2 := reply.(*tfpb.GetRemoteAddressResponse)
	if !ok || !ok2 {
		return fmt.Errorf("%s with %T and %T", method, args, reply)
	}
	return c.call(ctx, request, func() error { return c.ClientConnInterface.Invoke(ctx, method, request, response, opts...) }, response)
}
