package proto_test

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tryst-rdma/tryst/internal/proto/registry"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/proto/tensorflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//go:embed testdata
var testdata embed.FS

// files are all of Tryst's proto files. The messages' packages need naming to
// be linked; the services' packages pull in the rest.
var files = []protoreflect.FileDescriptor{
	tensorflow.File_tensorflow_payloads_proto,
	tensorflow.File_tensorflow_verbs_proto,
	tensorflow.File_tensorflow_worker_proto,
	tensorflowgrpc.File_tensorflowgrpc_verbs_service_proto,
	tensorflowgrpc.File_tensorflowgrpc_worker_service_proto,
	tryst.File_tryst_publication_proto,
	tryst.File_tryst_transfer_proto,
	trystgrpc.File_trystgrpc_services_proto,
}

// extended lists TensorFlow's messages that have fields of Tryst's, from
// firstOwn up.
var extended = []protoreflect.FullName{
	"tensorflow.CompleteGroupRequest",
	"tensorflow.GetRemoteAddressRequest",
	"tensorflow.GetRemoteAddressResponse",
	"tensorflow.MarkRecvFinishedRequest",
}

const firstOwn = 16

// own lists Tryst's messages that stand among TensorFlow's, because fields of its
// messages use them.
var own = []protoreflect.FullName{"tensorflow.TrystDevice", "tensorflow.TrystRail"}

// TestContract compares every message, enum and service with the tables in
// testdata, both ways: what is missing, changed or added shows as a diff.
// tensorflow.txt was written down from TensorFlow's own descriptors, not from
// the .proto files here.
func TestContract(t *testing.T) {
	for _, test := range []struct {
		table string
		has   func(d protoreflect.Descriptor) bool
	}{
		{"tensorflow.txt", func(d protoreflect.Descriptor) bool {
			return strings.HasPrefix(string(d.FullName()), "tensorflow.") && !isOwn(d)
		}},
		{"tryst.txt", func(d protoreflect.Descriptor) bool {
			return strings.HasPrefix(string(d.FullName()), "tryst.") || isOwn(d)
		}},
	} {
		t.Run(test.table, func(t *testing.T) {
			raw, err := testdata.ReadFile("testdata/" + test.table)
			if err != nil {
				t.Fatal(err)
			}
			_, want, _ := strings.Cut(string(raw), "\n\n") // after the head
			blocks := []string{}
			registry.Files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
				blocks = append(blocks, describeFile(f, test.has)...)
				return true
			})
			slices.SortFunc(blocks, func(a, b string) int {
				return strings.Compare(fullName(a), fullName(b))
			})
			got := strings.Join(blocks, "\n")
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("the messages differ from testdata/%s (-table +code):\n%s", test.table, diff)
			}
		})
	}
}

func fullName(block string) string { return strings.Fields(block)[1] }

// isOwn tells whether d is a field of Tryst's in a message of TensorFlow's, or
// belongs to a message of Tryst's among them.
func isOwn(d protoreflect.Descriptor) bool {
	if slices.Contains(own, d.FullName()) || slices.Contains(own, d.Parent().FullName()) {
		return true
	}
	f, ok := d.(protoreflect.FieldDescriptor)
	return ok && f.Number() >= firstOwn && slices.Contains(extended, f.Parent().FullName())
}

// describeFile gives a block for each message, enum and service of a file, in
// the form of the tables, as far as has holds.
func describeFile(f protoreflect.FileDescriptor, has func(protoreflect.Descriptor) bool) []string {
	blocks := describeTypes(f, has)
	for i := range f.Services().Len() {
		if s := f.Services().Get(i); has(s) {
			blocks = append(blocks, describeService(s))
		}
	}
	return blocks
}

// describeTypes gives a block for each message and enum of a file or message.
func describeTypes(in interface {
	Messages() protoreflect.MessageDescriptors
	Enums() protoreflect.EnumDescriptors
}, has func(protoreflect.Descriptor) bool,
) []string {
	var blocks []string
	for i := range in.Enums().Len() {
		if e := in.Enums().Get(i); has(e) {
			blocks = append(blocks, describeEnum(e))
		}
	}
	for i := range in.Messages().Len() {
		m := in.Messages().Get(i)
		if m.IsMapEntry() {
			continue
		}
		if block := describeMessage(m, has); block != "" {
			blocks = append(blocks, block)
		}
		blocks = append(blocks, describeTypes(m, has)...)
	}
	return blocks
}

func describeMessage(m protoreflect.MessageDescriptor, has func(protoreflect.Descriptor) bool) string {
	var fields []protoreflect.FieldDescriptor
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); has(f) {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 && !has(m) {
		return ""
	}
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	var b strings.Builder
	fmt.Fprintf(&b, "message %s\n", m.FullName())
	for _, f := range fields {
		fmt.Fprintf(&b, "  %d %s\n", f.Number(), describeField(f))
	}
	var reserved []int
	for i := range m.ReservedRanges().Len() {
		for r := m.ReservedRanges().Get(i); r[0] < r[1]; r[0]++ {
			reserved = append(reserved, int(r[0]))
		}
	}
	if slices.Sort(reserved); len(reserved) > 0 {
		fmt.Fprintf(&b, "  reserved %s\n", strings.Trim(fmt.Sprint(reserved), "[]"))
	}
	return b.String()
}

func describeField(f protoreflect.FieldDescriptor) string {
	s := typeName(f) + " " + string(f.Name())
	if f.IsMap() {
		s = fmt.Sprintf("map<%s, %s> %s", typeName(f.MapKey()), typeName(f.MapValue()), f.Name())
	} else if f.IsList() {
		s = "repeated " + s
	}
	if f.IsPacked() {
		s += " packed"
	}
	if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
		s += " oneof " + string(o.Name())
	}
	if options, ok := f.Options().(*descriptorpb.FieldOptions); ok && options.GetDeprecated() {
		s += " deprecated"
	}
	if f.HasOptionalKeyword() {
		s += " optional"
	}
	return s
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return string(f.Message().FullName())
	case f.Enum() != nil:
		return string(f.Enum().FullName())
	}
	return f.Kind().String()
}

func describeEnum(e protoreflect.EnumDescriptor) string {
	var values []protoreflect.EnumValueDescriptor
	for i := range e.Values().Len() {
		values = append(values, e.Values().Get(i))
	}
	slices.SortStableFunc(values, func(a, b protoreflect.EnumValueDescriptor) int { return int(a.Number() - b.Number()) })
	var b strings.Builder
	fmt.Fprintf(&b, "enum %s\n", e.FullName())
	for _, v := range values {
		fmt.Fprintf(&b, "  %d %s\n", v.Number(), v.Name())
	}
	return b.String()
}

func describeService(s protoreflect.ServiceDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "service %s\n", s.FullName())
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		stream := map[bool]string{true: "stream "}
		fmt.Fprintf(&b, "  %s(%s%s) %s%s\n", m.Name(),
			stream[m.IsStreamingClient()], m.Input().FullName(), stream[m.IsStreamingServer()], m.Output().FullName())
	}
	return b.String()
}

// TestMethodPaths pins the paths that TensorFlow's worker serves, all 16, as
// the generated client and server use them.
func TestMethodPaths(t *testing.T) {
	for _, test := range []struct {
		desc grpc.ServiceDesc
		want []string
	}{
		{tensorflowgrpc.WorkerService_ServiceDesc, []string{
			"/tensorflow.WorkerService/CleanupAll",
			"/tensorflow.WorkerService/CleanupGraph",
			"/tensorflow.WorkerService/CompleteGroup",
			"/tensorflow.WorkerService/CompleteInstance",
			"/tensorflow.WorkerService/CreateWorkerSession",
			"/tensorflow.WorkerService/DeleteWorkerSession",
			"/tensorflow.WorkerService/DeregisterGraph",
			"/tensorflow.WorkerService/GetStatus",
			"/tensorflow.WorkerService/GetStepSequence",
			"/tensorflow.WorkerService/Logging",
			"/tensorflow.WorkerService/MarkRecvFinished",
			"/tensorflow.WorkerService/RecvBuf",
			"/tensorflow.WorkerService/RecvTensor",
			"/tensorflow.WorkerService/RegisterGraph",
			"/tensorflow.WorkerService/RunGraph",
			"/tensorflow.WorkerService/Tracing",
		}},
		{tensorflowgrpc.VerbsService_ServiceDesc, []string{"/tensorflow.VerbsService/GetRemoteAddress"}},
		{trystgrpc.Peers_ServiceDesc, []string{"/tryst.Peers/Cancel", "/tryst.Peers/Hello"}},
		{trystgrpc.Chunks_ServiceDesc, []string{"/tryst.Chunks/Fetch"}},
		{trystgrpc.Publications_ServiceDesc, []string{
			"/tryst.Publications/Alive", "/tryst.Publications/Describe", "/tryst.Publications/List", "/tryst.Publications/Open",
			"/tryst.Publications/Watch",
		}},
	} {
		var got []string
		for _, m := range test.desc.Methods {
			got = append(got, "/"+test.desc.ServiceName+"/"+m.MethodName)
		}
		for _, m := range test.desc.Streams {
			got = append(got, "/"+test.desc.ServiceName+"/"+m.StreamName)
		}
		slices.Sort(got)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.desc.ServiceName, diff)
		}
	}
}

// TestDataTypeRefs checks that each type has a reference type 100 above it.
func TestDataTypeRefs(t *testing.T) {
	base, refs := 0, 0
	for n, name := range tensorflow.DataType_name {
		switch {
		case n == 0:
		case n < 100:
			base++
			if got, want := tensorflow.DataType_name[n+100], name+"_REF"; got != want {
				t.Errorf("DataType %d is %s, so %d should be %s, and is %q", n, name, n+100, want, got)
			}
		default:
			refs++
		}
	}
	if base != refs || base != 33 {
		t.Errorf("%d types and %d reference types, want 33 each", base, refs)
	}
}

// TestNothingRegistersGlobally fails when a generated file went past
// protoc-gen-tryst: it would stand in the registries where a second copy
// panics.
func TestNothingRegistersGlobally(t *testing.T) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if p := f.Package(); p.Parent() == "" && (p == "tensorflow" || p == "tryst") || p.Parent() == "tensorflow" {
			t.Errorf("%s is in protobuf's global registry", f.Path())
		}
		return true
	})
	for _, f := range files {
		if got, err := registry.Files.FindFileByPath(f.Path()); err != nil || got != f {
			t.Errorf("registry.Files has %v for %s, error %v", got, f.Path(), err)
		}
	}
	for _, m := range []proto.Message{&tensorflow.TensorProto{}, &tryst.RecvOptions{}} {
		name := m.ProtoReflect().Descriptor().FullName()
		if mt, err := registry.Types.FindMessageByName(name); err != nil || mt != m.ProtoReflect().Type() {
			t.Errorf("registry.Types has %v for %s, error %v", mt, name, err)
		}
		if _, err := protoregistry.GlobalTypes.FindMessageByName(name); err == nil {
			t.Errorf("%s is in protobuf's global registry", name)
		}
	}
}
