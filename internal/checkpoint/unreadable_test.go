package checkpoint_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
)

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil //nolint:errcheck // its only user sends that
}
func (rawCodec) Unmarshal(d mem.BufferSlice, v any) error {
	*(v.(*[]byte)) = d.Materialize() //nolint:errcheck // the same
	return nil
}
func (rawCodec) Name() string { return "proto" }

// TestAnAnswerThatCannotBeReadEndsAPull at once: the next one would be the same.
func TestAnAnswerThatCannotBeReadEndsAPull(t *testing.T) {
	lis := bufconn.Listen(1 << 20)
	var calls atomic.Int32
	g := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var in []byte
		if err := s.RecvMsg(&in); err != nil {
			return err
		}
		calls.Add(1)
		return s.SendMsg([]byte{0xff})
	}))
	go g.Serve(lis) //nolint:errcheck // it ends with Stop
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///liar", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	p := checkpoint.NewPuller(checkpoint.PullerOptions{Conn: conn, Task: cluster.ClientTask(), Incarnation: 1})
	for _, e := range p.Pull(t.Context(), checkpoint.PullRequest{Publication: "model", Retry: 2 * time.Second}) {
		err = e
	}
	if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "sent cannot be used") || calls.Load() != 1 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}
