// Package registry holds the protobuf registries in which Tryst's generated
// code registers its files and types.
//
// protobuf's global registries take each file path and each full name once
// per process and panic at start on a second one. Many Go programs carry a
// copy of TensorFlow's messages, all with the same full names, so a library
// that registers its copy globally makes such programs crash before main.
//
// One pair serves all of Tryst's packages, because files find their imports
// through it: tryst's messages refer to tensorflow's.
//
// Code that resolves names at run time must be given these registries:
// [Files] as DescriptorResolver and [Types] as ExtensionResolver of gRPC's
// reflection service, Types as the Resolver of protojson, prototext and
// anypb.UnmarshalNew. The calls that name a Go type (proto.Unmarshal,
// Any.UnmarshalTo, Any.MessageIs) need none.
package registry

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Files holds the file descriptors of Tryst's protobuf packages. It is filled
// while the program starts and only read afterwards, from any goroutine.
var Files = new(FileRegistry)

// Types holds the message and enum types of Tryst's protobuf packages. It is
// filled while the program starts and only read afterwards, from any
// goroutine.
var Types = new(TypeRegistry)

// shared lists the name spaces that are looked up in the global registries
// when the own ones lack them. Their Go code comes from one module each
// (google.golang.org/protobuf and google.golang.org/grpc), so it is in a
// process at most once; grpc. is here because a reflection service that
// resolves through Files has to describe health and itself, too.
var shared = []string{"google.protobuf.", "grpc."}

// isShared tells whether a full name lies in a shared name space.
func isShared(name string) bool {
	for _, prefix := range shared {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// FileRegistry is a registry of file descriptors that finds shared names
// (google/protobuf/*, grpc/*) in [protoregistry.GlobalFiles].
type FileRegistry struct {
	own protoregistry.Files
}

// RegisterFile adds a file. It is called by generated code while the program
// starts. A path or name that is already there is an error.
func (r *FileRegistry) RegisterFile(file protoreflect.FileDescriptor) error {
	return r.own.RegisterFile(file)
}

// FindFileByPath returns the file with this import path, for instance
// "tensorflow/worker.proto", or [protoregistry.NotFound].
func (r *FileRegistry) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	file, err := r.own.FindFileByPath(path)
	if errors.Is(err, protoregistry.NotFound) && isShared(strings.ReplaceAll(path, "/", ".")) {
		return protoregistry.GlobalFiles.FindFileByPath(path)
	}
	return file, err
}

// FindDescriptorByName returns the descriptor with this full name, for
// instance "tensorflow.WorkerService", or [protoregistry.NotFound].
func (r *FileRegistry) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	desc, err := r.own.FindDescriptorByName(name)
	if errors.Is(err, protoregistry.NotFound) && isShared(string(name)) {
		return protoregistry.GlobalFiles.FindDescriptorByName(name)
	}
	return desc, err
}

// RangeFiles calls f for each of Tryst's own files, in no particular order,
// until f returns false.
func (r *FileRegistry) RangeFiles(f func(protoreflect.FileDescriptor) bool) {
	r.own.RangeFiles(f)
}

// TypeRegistry is a registry of Go types for messages, enums and extensions
// that finds shared names (google.protobuf.*, grpc.*) in
// [protoregistry.GlobalTypes].
type TypeRegistry struct {
	own protoregistry.Types
}

// RegisterMessage adds a message type. It is called by generated code while
// the program starts. A name that is already there is an error.
func (r *TypeRegistry) RegisterMessage(t protoreflect.MessageType) error {
	return r.own.RegisterMessage(t)
}

// RegisterEnum adds an enum type, as RegisterMessage does for messages.
func (r *TypeRegistry) RegisterEnum(t protoreflect.EnumType) error {
	return r.own.RegisterEnum(t)
}

// RegisterExtension adds an extension type, as RegisterMessage does for
// messages.
func (r *TypeRegistry) RegisterExtension(t protoreflect.ExtensionType) error {
	return r.own.RegisterExtension(t)
}

// FindMessageByName returns the type of a message by its full name, or
// [protoregistry.NotFound].
func (r *TypeRegistry) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	t, err := r.own.FindMessageByName(name)
	if errors.Is(err, protoregistry.NotFound) && isShared(string(name)) {
		return protoregistry.GlobalTypes.FindMessageByName(name)
	}
	return t, err
}

// FindMessageByURL returns the type of a message by the type URL of an Any,
// which ends in "/" and the full name, or [protoregistry.NotFound].
func (r *TypeRegistry) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	return r.FindMessageByName(protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:]))
}

// FindExtensionByName returns an extension by its full name, or
// [protoregistry.NotFound].
func (r *TypeRegistry) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return r.own.FindExtensionByName(name)
}

// FindExtensionByNumber returns an extension by the message that it extends
// and its field number, or [protoregistry.NotFound].
func (r *TypeRegistry) FindExtensionByNumber(message protoreflect.FullName, number protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return r.own.FindExtensionByNumber(message, number)
}

// RangeExtensionsByMessage calls f for each extension of a message, in no
// particular order, until f returns false.
func (r *TypeRegistry) RangeExtensionsByMessage(message protoreflect.FullName, f func(protoreflect.ExtensionType) bool) {
	r.own.RangeExtensionsByMessage(message, f)
}
