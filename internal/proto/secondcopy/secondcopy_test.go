package secondcopy_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/internal/proto/registry"
	"github.com/tryst-rdma/tryst/internal/proto/secondcopy"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/proto/tensorflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBothCopiesLive: that this test runs at all says that neither copy
// panicked at start. Each registry has its own, and they read each other.
func TestBothCopiesLive(t *testing.T) {
	const name = "tensorflow.TensorProto"
	for _, test := range []struct {
		registry protoregistry.MessageTypeResolver
		want     proto.Message
	}{
		{registry.Types, &tensorflow.TensorProto{}},
		{protoregistry.GlobalTypes, &secondcopy.TensorProto{}},
	} {
		if got, err := test.registry.FindMessageByName(name); err != nil || got != test.want.ProtoReflect().Type() {
			t.Errorf("%T has %v for %s, error %v; want %T", test.registry, got, name, err, test.want)
		}
	}

	raw, err := proto.Marshal(&secondcopy.TensorProto{Dtype: secondcopy.DataType_DT_STRING, StringVal: [][]byte{[]byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	got := new(tensorflow.TensorProto)
	if err := proto.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	want := &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_STRING, StringVal: [][]byte{[]byte("x")}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestGlobalRegistryWouldPanic does what generated code without our registries
// does while the program starts: it puts Tryst's files into the global one.
// By the path they clash with a copy of the same path, by the names with any
// copy.
func TestGlobalRegistryWouldPanic(t *testing.T) {
	for _, path := range []string{"tensorflow/tensor.proto", "another/path.proto"} {
		fd := protodesc.ToFileDescriptorProto(tensorflow.File_tensorflow_tensor_proto)
		fd.Name = new(path)
		file, err := protodesc.NewFile(fd, registry.Files)
		if err != nil {
			t.Fatal(err)
		}
		if got := registerGlobally(file); !strings.Contains(got, "already registered") && !strings.Contains(got, "conflict") {
			t.Errorf("registering %s globally beside the second copy panics with %q, want a conflict", path, got)
		}
	}
}

// registerGlobally returns the text of the panic, or of the error, with which
// generated code panics.
func registerGlobally(file protoreflect.FileDescriptor) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	return fmt.Sprint(protoregistry.GlobalFiles.RegisterFile(file))
}

// TestAnyResolves resolves an Any of Tryst's by name, which needs our types,
// and an Any of a well-known type, which ours find, too.
func TestAnyResolves(t *testing.T) {
	for _, want := range []proto.Message{
		&tryst.RecvOptions{Requester: "/job:client/replica:0/task:7", Id: 9},
		&tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT8},
		&anypb.Any{TypeUrl: "x/y"},
	} {
		packed, err := anypb.New(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := anypb.UnmarshalNew(packed, proto.UnmarshalOptions{Resolver: registry.Types})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	options, err := anypb.New(&tryst.RecvOptions{Attempt: 3})
	if err != nil {
		t.Fatal(err)
	}
	request := &tensorflow.RecvTensorRequest{TransportOptions: options}
	if _, err := protojson.Marshal(request); err == nil {
		t.Error("protobuf's global registry resolves tryst.RecvOptions")
	}
	raw, err := protojson.MarshalOptions{Resolver: registry.Types}.Marshal(request)
	if err != nil || !strings.Contains(string(raw), `"attempt"`) {
		t.Errorf("as JSON: %s, error %v", raw, err)
	}
}

// TestReflection asks a server, as grpcurl does, for its services and builds
// their descriptors from the answers alone.
func TestReflection(t *testing.T) {
	server := grpc.NewServer()
	tensorflowgrpc.RegisterWorkerServiceServer(server, tensorflowgrpc.UnimplementedWorkerServiceServer{})
	tensorflowgrpc.RegisterVerbsServiceServer(server, tensorflowgrpc.UnimplementedVerbsServiceServer{})
	trystgrpc.RegisterPeersServer(server, trystgrpc.UnimplementedPeersServer{})
	trystgrpc.RegisterChunksServer(server, trystgrpc.UnimplementedChunksServer{})
	trystgrpc.RegisterPublicationsServer(server, trystgrpc.UnimplementedPublicationsServer{})
	healthgrpc.RegisterHealthServer(server, health.NewServer())
	reflectiongrpc.RegisterServerReflectionServer(server, reflection.NewServerV1(reflection.ServerOptions{
		Services:           server,
		DescriptorResolver: registry.Files,
		ExtensionResolver:  registry.Types,
	}))
	ask := reflectionClient(t, server)

	methods := map[string]int{
		"grpc.health.v1.Health":               3,
		"grpc.reflection.v1.ServerReflection": 1,
		"tensorflow.VerbsService":             1,
		"tensorflow.WorkerService":            16,
		"tryst.Chunks":                        1,
		"tryst.Peers":                         2,
		"tryst.Publications":                  5,
	}
	list := ask(&reflectiongrpc.ServerReflectionRequest{
		MessageRequest: &reflectiongrpc.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService()
	if len(list) != len(methods) {
		t.Errorf("%d services are listed, want %d", len(list), len(methods))
	}
	var set descriptorpb.FileDescriptorSet // grows: a stream sends each import once
	for _, service := range list {
		for _, raw := range ask(&reflectiongrpc.ServerReflectionRequest{
			MessageRequest: &reflectiongrpc.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()},
		}).GetFileDescriptorResponse().GetFileDescriptorProto() {
			fd := new(descriptorpb.FileDescriptorProto)
			if err := proto.Unmarshal(raw, fd); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(set.File, func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == fd.GetName() }) {
				set.File = append(set.File, fd)
			}
		}
		files, err := protodesc.NewFiles(&set)
		if err != nil {
			t.Errorf("%s: the files do not fit together: %v", service.GetName(), err)
			continue
		}
		desc, err := files.FindDescriptorByName(protoreflect.FullName(service.GetName()))
		if err != nil {
			t.Errorf("%s: %v", service.GetName(), err)
			continue
		}
		if s, ok := desc.(protoreflect.ServiceDescriptor); !ok || s.Methods().Len() != methods[service.GetName()] {
			t.Errorf("%s is %v, want a service of %d methods", service.GetName(), desc, methods[service.GetName()])
		}
	}
}

// reflectionClient serves in memory and returns a function that asks one
// question of the reflection service.
func reflectionClient(t *testing.T, server *grpc.Server) func(*reflectiongrpc.ServerReflectionRequest) *reflectiongrpc.ServerReflectionResponse {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := reflectiongrpc.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func(question *reflectiongrpc.ServerReflectionRequest) *reflectiongrpc.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(question); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e := answer.GetErrorResponse(); e != nil {
			t.Fatalf("%v: %s", question.GetMessageRequest(), e.GetErrorMessage())
		}
		return answer
	}
}
