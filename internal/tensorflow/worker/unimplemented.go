package worker

import "github.com/tryst-rdma/tryst/status"

// refuse is the error of methods that need kernels. A TensorFlow master returns it to its client.
func refuse(method string) error {
	return status.Errorf(status.Unimplemented, "%s: this worker moves tensors and runs no graphs", method)
}
