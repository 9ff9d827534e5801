package grpctransport

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/transport"
)

// bufWorker answers RecvBuf.
type bufWorker struct {
	transport.Worker
	resp *tfpb.RecvBufResponse
}

func (w bufWorker) RecvBuf(context.Context, *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error) {
	return w.resp, nil
}

// TestResponseToRecvBufIsThatOfGeneratedCode, and large content is not copied.
func TestResponseToRecvBufIsThatOfGeneratedCode(t *testing.T) {
	for _, n := range []int{0, 10, copyLimit, copyLimit + 1, 1 << 20} {
		content := bytes.Repeat([]byte{7}, n)
		want := &tfpb.RecvBufResponse{
			NumBytes: int64(n), BufPtr: 5, IsDead: true, SendStartMicros: 9, RequireAck: true,
			TransportOptions: &anypb.Any{TypeUrl: "type.googleapis.com/x", Value: content},
		}
		s := &service{ServiceOptions: ServiceOptions{Worker: bufWorker{resp: want}}}
		encoded, err := s.recvBuf(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := newCodec().Marshal(encoded)
		if err != nil {
			t.Fatal(err)
		}
		var got tfpb.RecvBufResponse
		if err := proto.Unmarshal(b.Materialize(), &got); err != nil || !proto.Equal(&got, want) {
			t.Errorf("%d bytes: another response is read, %v", n, err)
		}
		if n > copyLimit && &b[len(b)-1].ReadOnlyData()[0] != &content[0] {
			t.Errorf("%d bytes were copied", n)
		}
		b.Free()
	}
}
