// Package proto holds the Go code of Tryst's wire contracts, whose .proto files are in proto/:
// TensorFlow's worker (proto/tensorflow, which importers need, and tensorflowgrpc here) and Tryst's
// own services (tryst, trystgrpc).
//
// Messages and services are separate Go packages, so that a package that only
// speaks about messages does not pull in gRPC. Every generated file registers
// in package registry instead of protobuf's global registries.
//
// "go generate ./internal/proto" writes the Go code anew; the same input gives the
// same bytes. buf comes from tools/buf, the stock plugins from tools/protoc.
package proto

//go:generate go tool -modfile=../../tools/buf/go.mod buf generate ../../proto
//go:generate go tool -modfile=../../tools/buf/go.mod buf generate --template buf.gen.secondcopy.yaml
