package server

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/tryst-rdma/tryst/proto/registry"
)

// registerReflection lets tools list and describe the services, in both
// versions of the protocol that tools speak. Our messages are in a registry of
// their own, which gRPC does not know by itself.
func registerReflection(to grpc.ServiceRegistrar, s *grpc.Server) {
	o := reflection.ServerOptions{Services: s, DescriptorResolver: registry.Files, ExtensionResolver: registry.Types}
	reflectionpb.RegisterServerReflectionServer(to, reflection.NewServerV1(o))
	reflectionalpha.RegisterServerReflectionServer(to, reflection.NewServer(o))
}
