package calls

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/tryst-rdma/tryst/internal/proto/registry"
)

// registerReflection registers the reflection service in both versions that tools
// use. Its resolvers are our own registry: our messages are not in protobuf's global one.
func registerReflection(to grpc.ServiceRegistrar, s *grpc.Server) {
	o := reflection.ServerOptions{Services: s, DescriptorResolver: registry.Files, ExtensionResolver: registry.Types}
	reflectionpb.RegisterServerReflectionServer(to, reflection.NewServerV1(o))
	reflectionalpha.RegisterServerReflectionServer(to, reflection.NewServer(o))
}
