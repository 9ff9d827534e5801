package grpctransport

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/transport"
)

// TestProcessThatSentATicketIsGoneBeforeFetch: the value has left its key when the ticket comes. If
// another process has the place of the sender then, the receive ends with an error that says so,
// whether Fetch reaches no process or the other one. It gets no value of the other process.
func TestProcessThatSentATicketIsGoneBeforeFetch(t *testing.T) {
	for name, reached := range map[string]bool{"Fetch reaches no process": false, "Fetch reaches the other process": true} {
		t.Run(name, func(t *testing.T) {
			var c testCluster
			first := c.start(t, 0, nodeOptions{unaryLimit: 1024})
			next := c.start(t, 0, nodeOptions{unaryLimit: 1024})
			p := newProxy(t, first.address)
			fetches := 0
			fetch := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if method == trystgrpc.Chunks_Fetch_FullMethodName {
					fetches++
				}
				if fetches != 1 {
					return stream(ctx, desc, cc, method, opts...)
				}
				defer p.setBackend(next.address)
				if reached {
					p.setBackend(next.address)
				} else {
					p.setBackend("")
				}
				for cc.GetState() == connectivity.Ready && cc.WaitForStateChange(ctx, connectivity.Ready) {
				}
				s, err := stream(ctx, desc, cc, method, opts...)
				if err == nil && !reached { // it is on a connection that is cut: gRPC does not know that yet
					err = s.RecvMsg(new(trystpb.Chunk))
				}
				if (err == nil) != reached {
					t.Errorf("Fetch: %v", err)
				}
				return s, err
			}
			b := c.start(t, 1, nodeOptions{
				addresses: map[int]string{0: p.address()}, dial: DialOptions{Extra: []grpc.DialOption{grpc.WithStreamInterceptor(fetch)}},
			})
			x := tensortest.Tensor(t, tensor.Float32, 1<<16)
			first.send(1, first.key(b, "x"), x)
			next.send(1, next.key(b, "x"), x)
			o := <-b.begin(t.Context(), 1, first.key(b, "x"))
			if o.err == nil {
				o.v.Tensor.Release()
			}
			if status.CodeOf(o.err) != status.Aborted || !errors.Is(o.err, transport.ErrProcessGone) {
				t.Errorf("%v, want Aborted with %q", o.err, transport.ErrProcessGone)
			}
			if _, ok := status.From(o.err).Payload(status.PayloadPossiblyRestarted); !ok {
				t.Errorf("no payload says that the peer has restarted: %v", o.err)
			}
			if fetches != 1 {
				t.Errorf("%d calls of Fetch, want 1", fetches)
			}
			v := b.recv(1, next.key(b, "x"))
			tensortest.RequireEqual(t, x, v.Tensor)
			v.Tensor.Release()
		})
	}
}
