// Package timing times receives of what a server publishes.
package timing

import (
	"context"
	"slices"
	"time"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Receives receives one published tensor count times, one after the other, and returns how
// long each receive took, the shortest first. The first receives over a route set it up, so make
// some before. The content is not checked. Errors are those of Recv and of the publication.
func Receives(ctx context.Context, c *server.Client, publication, tensor string, count int) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the step at the server
	defer cancel()
	stream, err := trystgrpc.NewPublicationsClient(c.Conn()).Open(ctx, &trystpb.OpenRequest{
		Publication: publication, Tensors: []string{tensor}, Puller: c.Task().String(), PullerIncarnation: c.Incarnation(),
	})
	var opened *trystpb.OpenResponse
	if err == nil {
		opened, err = stream.Recv()
	}
	if err != nil {
		return nil, status.From(grpctransport.CallError(c.Target(), err, nil)).WithPrefix("opening publication " + publication)
	}
	if n := len(opened.GetKeys()); n != 1 {
		return nil, status.Errorf(status.Internal, "opening publication %s gave %d keys for the tensor %s", publication, n, tensor)
	}
	key, err := rendezvous.ParseKey(opened.GetKeys()[0].GetKey())
	if err != nil {
		return nil, err
	}
	defer c.EndStep(opened.GetStepId())
	for range count {
		begin := time.Now()
		v, err := c.Recv(ctx, opened.GetStepId(), key)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
		v.Tensor.Release()
	}
	slices.Sort(took)
	return took, nil
}
