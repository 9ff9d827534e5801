package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/collective"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// TestCallsOfCollectivesAreBounded: requests for buffers, groups and operations that wait count as
// the receives of their host.
func TestCallsOfCollectivesAreBounded(t *testing.T) {
	f := newFixture(t, Options{MaxWaiting: 1})
	defer f.close()
	f.opts.Collectives = collective.New(collective.Options{Task: f.opts.Task, Devices: func() []*tfpb.DeviceAttributes {
		resp, _ := f.GetStatus(t.Context(), nil)
		return resp.GetDeviceAttributes()
	}})
	defer f.opts.Collectives.Close()
	f.recentBufs = newRecentIDs("RecvBuf (GrpcWorker)", recentWindow)
	release, err := f.waiting.take("", 1) // a receive waits
	if err != nil {
		t.Fatal(err)
	}
	device := cluster.DeviceOf(f.opts.Task).String()
	calls := map[string]func(context.Context) error{
		"RecvBuf": func(ctx context.Context) error {
			_, err := f.RecvBuf(ctx, &tfpb.RecvBufRequest{BufRendezvousKey: "k", SrcDevice: device, DstDevice: device, SrcIncarnation: f.opts.Incarnation, RequestId: 7})
			return err
		},
		"CompleteGroup": func(ctx context.Context) error {
			resp, _ := f.GetStatus(ctx, nil)
			_, err := f.CompleteGroup(ctx, &tfpb.CompleteGroupRequest{GroupKey: 1, GroupSize: 1, DeviceType: "CPU", DeviceAttributes: resp.GetDeviceAttributes()[0]})
			return err
		},
		"CompleteInstance": func(ctx context.Context) error {
			_, err := f.CompleteInstance(ctx, &tfpb.CompleteInstanceRequest{GroupKey: 1, Device: device, DataType: tfpb.DataType_DT_FLOAT})
			return err
		},
	}
	for name, call := range calls {
		if err := call(t.Context()); status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "max-waiting") {
			t.Errorf("%s beyond the limit: %v", name, err)
		}
	}
	release()
	for _, name := range []string{"CompleteGroup", "CompleteInstance"} {
		if err := calls[name](t.Context()); err != nil {
			t.Errorf("%s within the limit: %v", name, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := calls["RecvBuf"](over); status.CodeOf(err) != status.Cancelled {
		t.Errorf("RecvBuf again, within the limit: %v", err)
	}
	if err := calls["RecvBuf"](t.Context()); status.CodeOf(err) != status.Aborted || !strings.Contains(err.Error(), "The same RecvBuf (GrpcWorker) request was received twice.") {
		t.Errorf("a repeated RecvBuf: %v", err)
	}
	if len(f.waiting.count) != 0 {
		t.Errorf("calls that have ended count: %v", f.waiting.count)
	}
}
