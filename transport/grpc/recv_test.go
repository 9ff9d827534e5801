package grpctransport

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestM6RemoteRecvOne: a receive from another worker is one RecvTensor, and the
// value arrives.
func TestM6RemoteRecvOne(t *testing.T) {
	var c testCluster
	a := c.start(t, 0, nodeOptions{})
	b := c.start(t, 1, nodeOptions{})
	sent := tensortest.NewAllocator(t)
	for _, n := range []int64{0, 1, 100, 256, 257, 1 << 20} {
		x := value(t, sent, n)
		key := a.key(b, "x")
		a.send(1, key, x)
		v := b.recv(1, key)
		tensortest.RequireEqual(t, x, v.Tensor)
		x.Release()
		v.Tensor.Release()
	}
	b.close()
	a.close()
	collected(t, sent)
}
