//go:build interop

package tensorflow_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// recorder is a gRPC proxy before a task: it forwards each unary call and keeps the requests.
type recorder struct {
	to *grpc.ClientConn

	mu    sync.Mutex // guards calls
	calls []recordedCall
}

type recordedCall struct {
	method            string
	request, response []byte
}

// startRecorder starts a recorder that listens on address.
func startRecorder(t testing.TB, address, to string) *recorder {
	t.Helper()
	large := grpc.MaxCallRecvMsgSize(1<<31 - 1)
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), large))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{to: conn}
	s := grpc.NewServer(grpc.UnknownServiceHandler(r.forward), grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxRecvMsgSize(1<<31-1))
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		ended.Wait()
		conn.Close()
	})
	return r
}

func (r *recorder) forward(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request, response []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	// The metadata of the call stays here: TensorFlow adds none of its own, and that of gRPC is for this
	// connection only. TensorFlow 2.13 resets a call that has it twice.
	ctx, cancel := context.WithCancel(context.WithoutCancel(stream.Context()))
	defer context.AfterFunc(stream.Context(), cancel)()
	err := r.to.Invoke(ctx, method, &request, &response, grpc.WaitForReady(true))
	r.mu.Lock()
	r.calls = append(r.calls, recordedCall{method, request, response})
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return stream.SendMsg(&response)
}

// take returns the calls of a method since the last take of any method, in the order of their ends.
func (r *recorder) take(method string) (calls []recordedCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.method == method {
			calls = append(calls, c)
		}
	}
	r.calls = nil
	return calls
}

// bytesCodec passes messages as bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("marshal %T: only *[]byte is possible", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal to %T: only *[]byte is possible", v)
	}
	*b = data.Materialize()
	return nil
}
