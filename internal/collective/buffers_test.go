package collective

import (
	"context"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// TestABufferIsForTheMemberItNames: a device that asks for the buffer of another one gets nothing, takes
// nothing, and does not keep the other one from it: by RecvBuf, and by a receive of the ledger.
func TestABufferIsForTheMemberItNames(t *testing.T) {
	n := newNetwork(t, 1, 1, 1)
	c := n.process(0)
	const step, key = 3, "5:1:0:0:0:0:0"
	other := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := recvBuf(ctx, n, func(r *tfpb.RecvBufRequest) { r.BufRendezvousKey, r.DstDevice = key, device(2, 0).String() })
		other <- err
	}()
	k, err := bufferKey(step, member{device(0, 0), &tfpb.DeviceAttributes{Incarnation: 1000}}, device(2, 0), key)
	if err != nil {
		t.Fatal(err)
	}
	x := slice[float32](t, 1, 2)
	provided := make(chan error, 1)
	c.Step(step).bufs.provide(t.Context(), forDevice(key, device(1, 0)), x, func(err error) { provided <- err })
	if _, taken := c.Publisher().TakePublished(k); taken {
		t.Error("another device took the buffer")
	}
	select {
	case err := <-other:
		t.Errorf("the call of another device ended: %v", err)
	case err := <-provided:
		t.Errorf("the buffer is gone: %v", err)
	default:
	}
	got, err := recvBuf(t.Context(), n, func(r *tfpb.RecvBufRequest) { r.BufRendezvousKey = key })
	if err != nil || string(got) != string(x.Bytes()) {
		t.Errorf("the device that it is for got %v, %v", got, err)
	}
	if err := <-provided; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-other; status.CodeOf(err) != status.Cancelled {
		t.Errorf("the other device: %v", err)
	}
}
