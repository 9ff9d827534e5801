package calls

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// unservedServices are services of TensorFlow that programs call at a task, and that no task of Tryst has; each with what to do
// instead. A name is the end of a service's full name: the packages differ between releases.
var unservedServices = []struct{ name, instead string }{
	{"MasterService", "this task has no master, which tf.compat.v1.Session asks the task of its target for; give the Session the target of a tf.distribute.Server of the cluster"},
	{"EagerService", "this task runs graphs of sessions, not TensorFlow's eager runtime (ParameterServerStrategy, experimental_connect_to_cluster); use tf.compat.v1.Session with the target of a tf.distribute.Server of the cluster"},
	{"CoordinationService", "this task has no coordination service, which TensorFlow's eager runtime needs; use tf.compat.v1.Session with the target of a tf.distribute.Server of the cluster"},
}

// refuseUnknown ends a call of a service or method that is not served, with Unimplemented. It reads nothing of the call.
func refuseUnknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	const longest = 100 // of a name that a stranger chose
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	for _, s := range unservedServices {
		if strings.HasPrefix(service, "tensorflow.") && strings.HasSuffix(service, "."+s.name) {
			return grpcstatus.Errorf(codes.Unimplemented, "%.*s is not served: %s (docs/tensorflow.md of Tryst)", longest, service, s.instead)
		}
	}
	return grpcstatus.Errorf(codes.Unimplemented, "the method %.*q is not served", longest, method)
}

// ofServices keeps calls that refuseUnknown ends from an interceptor: a stranger chooses the names of their methods, which must
// not become labels of metrics.
func ofServices(i grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if service == nil {
			return handler(service, stream)
		}
		return i(service, stream, info, handler)
	}
}
