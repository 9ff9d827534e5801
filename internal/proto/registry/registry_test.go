package registry_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tryst-rdma/tryst/internal/proto/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSharedNames looks for what stands in the global registries only: found
// when its name is shared, hidden otherwise.
func TestSharedNames(t *testing.T) {
	_ = durationpb.File_google_protobuf_duration_proto // linked, so that it is there to be found
	foreign, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name:        new("foreign/foreign.proto"),
		Package:     new("foreign"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("Foreign")}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := protoregistry.GlobalFiles.RegisterFile(foreign); err != nil {
		t.Fatal(err)
	}
	if err := protoregistry.GlobalTypes.RegisterMessage(dynamicpb.NewMessageType(foreign.Messages().Get(0))); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		name protoreflect.FullName
		want error
	}{
		{"google/protobuf/any.proto", "google.protobuf.Any", nil},
		{"google/protobuf/duration.proto", "google.protobuf.Duration", nil},
		{"google/protobuf/none.proto", "google.protobuf.None", protoregistry.NotFound},
		{"google/protobufx/any.proto", "google.protobufx.Any", protoregistry.NotFound},
		{"foreign/foreign.proto", "foreign.Foreign", protoregistry.NotFound},
		{"tensorflow/none.proto", "tensorflow.None", protoregistry.NotFound},
		{"", "", protoregistry.NotFound},
	} {
		if _, err := registry.Files.FindFileByPath(test.path); !errors.Is(err, test.want) {
			t.Errorf("FindFileByPath(%q): %v, want %v", test.path, err, test.want)
		}
		if _, err := registry.Files.FindDescriptorByName(test.name); !errors.Is(err, test.want) {
			t.Errorf("FindDescriptorByName(%q): %v, want %v", test.name, err, test.want)
		}
		if _, err := registry.Types.FindMessageByName(test.name); !errors.Is(err, test.want) {
			t.Errorf("FindMessageByName(%q): %v, want %v", test.name, err, test.want)
		}
		for _, url := range []string{"type.googleapis.com/" + string(test.name), "/" + string(test.name), string(test.name)} {
			if _, err := registry.Types.FindMessageByURL(url); !errors.Is(err, test.want) {
				t.Errorf("FindMessageByURL(%q): %v, want %v", url, err, test.want)
			}
		}
	}
}

// TestOwnComesFirst: a name is taken once per registry, and what is registered
// here is found here, shared or not.
func TestOwnComesFirst(t *testing.T) {
	files := new(registry.FileRegistry)
	if err := files.RegisterFile(anypb.File_google_protobuf_any_proto); err != nil {
		t.Fatal(err)
	}
	if err := files.RegisterFile(anypb.File_google_protobuf_any_proto); err == nil {
		t.Error("a second file under one path is no error")
	}
	seen := 0
	files.RangeFiles(func(protoreflect.FileDescriptor) bool { seen++; return true })
	if seen != 1 {
		t.Errorf("RangeFiles calls for %d files, want the own one", seen)
	}
	types := new(registry.TypeRegistry)
	if err := types.RegisterMessage((&anypb.Any{}).ProtoReflect().Type()); err != nil {
		t.Fatal(err)
	}
	if err := types.RegisterMessage((&anypb.Any{}).ProtoReflect().Type()); err == nil {
		t.Error("a second type under one name is no error")
	}
}
