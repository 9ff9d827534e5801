//go:build rxe && linux && cgo

package roce_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/integration/roce/internal/cabletest"
)

// testTimeout limits waits that must not hang, on an emulated processor.
const testTimeout = time.Minute

const kernelDevice = cabletest.KernelDevice

// kernelAddrs and ourAddrs are the addresses of the two ends, IPv4 and IPv6.
var kernelAddrs, ourAddrs = cabletest.KernelAddrs(), cabletest.OurAddrs()

// namespace is the network namespace of our end.
type namespace struct{ *cabletest.Namespace }

// newCable creates the cable, with the kernel's device on one end, and returns the
// namespace of the other end.
func newCable(t *testing.T) *namespace {
	t.Helper()
	n := cabletest.NewNamespace(t)
	cabletest.New(t, cabletest.Here{}, n)
	return &namespace{n}
}
