package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

const (
	// receiverMemory is what a process of TestAnswersOfAHostileServerAreBounded may use, in bytes.
	receiverMemory = 256 << 20
	// hugeAnswer is what the hostile server answers with.
	hugeAnswer = 3 << 29
	// manyAnswers come at once, each of someAnswer bytes.
	manyAnswers = 40
	someAnswer  = 32 << 20
	// bombBytes is what a compressed answer becomes.
	bombBytes = 512 << 20
)

// TestAnswersOfAHostileServerAreBounded: a server in the cluster of a process, or that a client has dialed, answers with
// 1.5 GiB, with 40 answers of 32 MiB at once, and with some 500 KB that become 512 MiB. The process, which may use
// 256 MiB, ends these calls with ResourceExhausted, stays within its memory, and receives what fits.
func TestAnswersOfAHostileServerAreBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the peak of the memory is read from /proc")
	}
	for _, kind := range []string{"member", "client"} {
		t.Run(kind, func(t *testing.T) {
			at := notTryst(t, 1, func(method string, stream grpc.ServerStream) error {
				var request string
				if err := stream.RecvMsg(&request); err != nil {
					return err
				}
				return hostile(method, request, stream)
			})
			child := exec.CommandContext(t.Context(), os.Args[0], "-receiver="+kind, at[0].address)
			child.Env = append(os.Environ(), "GOMEMLIMIT=off")
			child.Stderr = os.Stderr
			out, err := child.Output()
			if err != nil {
				t.Fatal(err)
			}
			peak, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("a peak of %d MiB", peak>>20)
			if peak > receiverMemory+raceMemory {
				t.Errorf("a process with %d MiB has used %d MiB", receiverMemory>>20, peak>>20)
			}
		})
	}
}

// hostile answers a call.
func hostile(method, request string, stream grpc.ServerStream) error {
	bomb := func(m mem.BufferSlice) error {
		if err := grpc.SetSendCompressor(stream.Context(), gzip.Name); err != nil {
			return err
		}
		return stream.SendMsg(m)
	}
	switch name := method[strings.LastIndexByte(method, '/')+1:]; {
	case name == "GetStatus":
		b, err := proto.Marshal(&tfpb.GetStatusResponse{DeviceAttributes: []*tfpb.DeviceAttributes{{Name: "/job:ps/replica:0/task:0/device:CPU:0", DeviceType: "CPU", Incarnation: 7}}})
		if err != nil {
			return err
		}
		return stream.SendMsg(mem.BufferSlice{mem.SliceBuffer(b)})
	case name == "RecvTensor" && strings.Contains(request, ";some"):
		return stream.SendMsg(tensorOf(someAnswer))
	case name == "RecvTensor" && strings.Contains(request, ";small"):
		return stream.SendMsg(tensorOf(1 << 20))
	case name == "RecvTensor" && strings.Contains(request, ";bomb"):
		return bomb(tensorOf(bombBytes))
	case name == "RecvTensor" && strings.Contains(request, ";options"):
		return stream.SendMsg(field(4, 64<<20))
	case name == "RecvTensor" && strings.Contains(request, ";unknown"):
		return stream.SendMsg(field(15, 128<<20))
	case name == "Describe" && strings.Contains(request, "bomb"):
		return bomb(field(15, bombBytes))
	case name == "Describe" && strings.Contains(request, "some"):
		return stream.SendMsg(field(15, someAnswer))
	case name == "Hello" && strings.Contains(request, "/job:worker"):
		return grpcstatus.Error(codes.Unimplemented, "no Tryst")
	}
	return stream.SendMsg(field(15, hugeAnswer))
}

// tensorOf is a RecvTensorResponse with a vector of bytes, and it takes no memory.
func tensorOf(bytes int) mem.BufferSlice {
	n := uint64(bytes) //nolint:gosec // positive
	dim := protowire.AppendVarint([]byte{0x08}, n)
	head := append([]byte{0x08, byte(tfpb.DataType_DT_UINT8), 0x12}, protowire.AppendBytes(nil, protowire.AppendBytes([]byte{0x12}, dim))...)
	content := field(4, bytes)
	whole := protowire.AppendVarint([]byte{0x0a}, uint64(len(head)+content.Len())) //nolint:gosec // positive
	return append(mem.BufferSlice{mem.SliceBuffer(append(whole, head...))}, content...)
}

// runReceiver is the process that the server attacks. It prints its peak of memory.
func runReceiver(kind, address string) int {
	run := runMember
	if kind == "client" {
		run = runClient
	}
	if err := run(context.Background(), address); err != nil {
		fmt.Fprintln(os.Stderr, kind, err)
		return 1
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kib, _, _ := strings.Cut(rest, " kB")
	n, err := strconv.ParseInt(strings.TrimSpace(kib), 10, 64)
	fmt.Println(n << 10)
	if err != nil {
		return 1
	}
	return 0
}

// exhausted returns an error unless err is ResourceExhausted.
func exhausted(what string, err error) error {
	if status.CodeOf(err) == status.ResourceExhausted {
		return nil
	}
	return fmt.Errorf("%s: %w, want ResourceExhausted", what, err)
}

// runMember receives from a server of the process's own cluster.
func runMember(ctx context.Context, address string) (failed error) {
	s, err := Start(ctx, Config{
		Listen: "127.0.0.1:0", Transport: "grpc", Memory: receiverMemory, Task: "/job:worker/task:0",
		Cluster: map[string][]string{"worker": {"127.0.0.1:1"}, "ps": {address}},
	}, Options{LimitHeap: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, s.Close(ctx)) }()
	receive := func(name string) error {
		v, err := s.Recv(ctx, 1, "/job:ps/task:0", name)
		if err == nil {
			v.Tensor.Release()
		}
		return err
	}
	errs := []error{exhausted("1.5 GiB", receive("huge"))}
	var all sync.WaitGroup
	for range manyAnswers {
		all.Go(func() {
			if err := receive("some"); err != nil && status.CodeOf(err) != status.ResourceExhausted {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	all.Wait()
	errs = append(errs, exhausted("what becomes 512 MiB", receive("bomb")), exhausted("64 MiB of options", receive("options")),
		receive("small"))
	if err := receive("unknown"); err == nil {
		errs = append(errs, errors.New("128 MiB without a tensor were a value"))
	}
	_, err = s.conns.Worker(cluster.Task{Job: "ps"})
	if err != nil {
		return err
	}
	if n := s.budget.Pool.Stats().InUse; n != 0 {
		errs = append(errs, fmt.Errorf("%d bytes stay in use", n))
	}
	return errors.Join(errs...)
}

// runClient calls the services that a client of Tryst uses.
func runClient(ctx context.Context, address string) (failed error) {
	c, err := Dial(ctx, Config{Memory: receiverMemory, Transport: "grpc"}, address, Options{LimitHeap: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, c.Close(ctx)) }()
	_, hello := c.Server(ctx)
	_, list := c.Puller().List(ctx)
	_, describe := c.Puller().Describe(ctx, "huge", "")
	_, bomb := c.Puller().Describe(ctx, "bomb", "")
	_, health := healthpb.NewHealthClient(c.Conn()).Check(ctx, &healthpb.HealthCheckRequest{})
	errs := []error{
		exhausted("Hello", hello), exhausted("List", list), exhausted("Describe", describe), exhausted("what becomes 512 MiB", bomb),
		exhausted("Health", fromStatus(health)),
	}
	stream, err := c.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/tryst.Publications/Open")
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(&trystpb.OpenRequest{}), stream.CloseSend()); err != nil {
		return err
	}
	errs = append(errs, exhausted("Open", fromStatus(stream.RecvMsg(new(trystpb.OpenResponse)))))
	var all sync.WaitGroup
	for range manyAnswers {
		all.Go(func() { _, _ = c.Puller().Describe(ctx, "some", "") })
	}
	all.Wait()
	if n := c.budget.Pool.Stats().InUse; n != 0 {
		errs = append(errs, fmt.Errorf("%d bytes stay in use", n))
	}
	return errors.Join(errs...)
}

// fromStatus returns an error of gRPC as one of Tryst.
func fromStatus(err error) error {
	s := grpcstatus.Convert(err)
	return status.New(status.Code(s.Code()), s.Message())
}
