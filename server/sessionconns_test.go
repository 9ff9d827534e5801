package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/server/internal/memory"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// strangers are servers that are no Tryst at n addresses of this host. answer gets each receive.
func strangers(t *testing.T, n int, answer func(grpc.ServerStream) error) (at []member) {
	t.Helper()
	return notTryst(t, n, func(method string, stream grpc.ServerStream) error {
		if !strings.HasSuffix(method, "/RecvTensor") {
			return grpcstatus.Error(codes.Unimplemented, "no Tryst")
		}
		return answer(stream)
	})
}

// notTryst are servers at n addresses of this host. answer gets each call.
func notTryst(t *testing.T, n int, answer func(method string, stream grpc.ServerStream) error) (at []member) {
	t.Helper()
	s := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxSendMsgSize(1<<31-1), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		return answer(method, stream)
	}))
	ended := make(chan struct{}, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = s.Serve(l)
			ended <- struct{}{}
		}()
		at = append(at, member{task: taskOf("stranger", i), address: l.Addr().String()})
	}
	t.Cleanup(func() {
		s.Stop()
		for range n {
			<-ended
		}
	})
	return at
}

// bytesCodec sends bytes, and gives what comes to a *string.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(mem.BufferSlice); ok {
		return b, nil
	}
	return nil, errors.New("no bytes")
}
func (bytesCodec) Unmarshal(b mem.BufferSlice, v any) error {
	if s, ok := v.(*string); ok {
		*s = string(b.Materialize())
	}
	return nil
}
func (bytesCodec) Name() string { return "proto" }

// field is a message with one field of some MiB, and it takes no memory.
func field(number byte, bytes int) mem.BufferSlice {
	m := mem.BufferSlice{mem.SliceBuffer(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(bytes)))} //nolint:gosec // positive
	for block := make([]byte, 1<<20); bytes > 0; bytes -= len(block) {
		m = append(m, mem.SliceBuffer(block))
	}
	return m
}

// neverAnswer is an answer that does not come.
func neverAnswer(stream grpc.ServerStream) error {
	<-stream.Context().Done()
	return nil
}

// receiveFrom runs a step of a session's first member that receives from others, and returns why it failed.
func (c *ownCluster) receiveFrom(members ...int) error {
	c.t.Helper()
	in := c.sessions[0].NewGraphOn(c.peer(0))
	for i, m := range members {
		in.Fetch(fmt.Sprint("x", i), in.Recv(fmt.Sprint("x", i), tensor.Float32, c.peer(m)), tensor.Float32)
	}
	step := master.NewStep()
	values, err := registerGraph(c.t, c.sessions[0], in).Run(c.t.Context(), step, nil)
	for _, v := range values {
		v.Release()
	}
	if err := c.sessions[0].CleanUp(c.t.Context(), step); err != nil {
		c.t.Error(err)
	}
	return err
}

// TestConnectionsOfSessionsAreBounded: a session whose cluster has more addresses than the process may have
// connections to ends its step with the reason, and leaves some to other sessions. They end with the session.
func TestConnectionsOfSessionsAreBounded(t *testing.T) {
	s, other := start(t, settings(), Options{Kernels: ops.New(), memory: 64 << 20}), start(t, settings(), Options{Kernels: ops.New()})
	c := propagate(t, grpctransport.DialOptions{}, append([]member{{task: taskOf("trainer", 0), server: s}}, strangers(t, 20, neverAnswer)...)...)
	var all []int
	for i := range 20 {
		all = append(all, i+1)
	}
	err := c.receiveFrom(all...)
	wantStatus(t, err, status.ResourceExhausted, fmt.Sprintf("the session has %d connections to tasks that only it knows, of at most %[1]d", memory.LeastConnections*3/4))
	text := metricsText(s.gatherer)
	if n := metric(t, text, "tryst_session_connections"); n < 1 || n > memory.LeastConnections*3/4 {
		t.Errorf("%v connections", n)
	}
	if n := metric(t, text, "tryst_refused_session_connections_total"); n < 1 {
		t.Errorf("%v are refused", n)
	}
	d := propagate(t, grpctransport.DialOptions{}, member{task: taskOf("ps", 0), server: other}, member{task: taskOf("ps", 1), server: s})
	d.exchange(0, 1)
	d.close()
	c.close()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); metric(t, metricsText(s.gatherer), "tryst_session_connections") != 0; <-ticks.C {
		if time.Now().After(end) {
			t.Fatal("connections stay after the sessions")
		}
	}
}

// TestResponsesToSessionsAreBounded: a task of a session's cluster that answers a receive with more than the memory of
// tensors ends the step, and takes no more than that.
func TestResponsesToSessionsAreBounded(t *testing.T) {
	s := start(t, settings(), Options{Kernels: ops.New(), memory: 128 << 20})
	c := propagate(t, grpctransport.DialOptions{}, append([]member{{task: taskOf("trainer", 0), server: s}}, strangers(t, 1, func(stream grpc.ServerStream) error {
		return stream.SendMsg(field(15, 1<<30)) // a field that nobody knows
	})...)...)
	defer c.close()
	wantStatus(t, c.receiveFrom(1), status.ResourceExhausted, "a response is larger than what this process has left")
	if n := s.budget.Pool.Stats().InUse; n > 2*grpctransport.PeerConnectionBytes {
		t.Errorf("%d bytes stay in use", n)
	}
}
