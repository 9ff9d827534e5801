//go:build interop

package tensorflow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// answerer is a worker with the source of its values: TensorFlow's, or ours.
type answerer struct {
	worker      transport.Worker
	device      string // of the worker
	other       string // of another task
	incarnation uint64
}

func (bed *testbed) answerers() map[string]answerer {
	bed.t.Helper()
	us, err := bed.conns.Worker(bed.server.Task())
	if err != nil {
		bed.t.Fatal(err)
	}
	return map[string]answerer{
		"TensorFlow": {bed.tf, tfDevice, trystDevice, bed.tfIncarnation},
		"Tryst":      {us, trystDevice, tfDevice, bed.server.Incarnation()},
	}
}

// request requests a value in a step that the worker has not run, and returns the error.
func (a answerer) request(t testing.TB, key string, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := a.worker.RecvTensor(ctx, &tfpb.RecvTensorRequest{StepId: master.NewStep(), RendezvousKey: key})
	if err == nil {
		r.Tensor.Release()
		t.Errorf("%s: a value of a step that nobody has run", key)
	}
	return err
}

// TestSameAnswers: both workers give the same answers to requests that are unusual or wrong.
func TestSameAnswers(t *testing.T) {
	bed := start(t, options{})
	for name, a := range bed.answerers() {
		t.Run(name, func(t *testing.T) {
			key := func(src string) string {
				return rendezvous.CreateKey(src, a.incarnation, a.other, "x", rendezvous.FrameIter{})
			}
			const waits, brief = status.DeadlineExceeded, 300 * time.Millisecond
			wantError(t, a.request(t, key(a.device), brief), waits, "")
			wantError(t, a.request(t, key(a.other), brief), waits, "") // the value of another task
			parts := strings.Split(key(a.device), ";")
			parts[1] = strings.ToUpper(parts[1])
			wantError(t, a.request(t, strings.Join(parts, ";"), brief), waits, "")
			wantError(t, a.request(t, key(strings.Replace(a.device, "CPU:0", "GPU:7", 1)), soon), status.InvalidArgument, "/device:GPU:7 unknown device.")
			parts[1] = "1"
			wantError(t, a.request(t, strings.Join(parts, ";"), soon), status.Aborted, "RecvTensor expects a different device incarnation: 1 vs. ")
		})
	}
}

// TestSameDeviceAttributes: the attributes of CPU:0 differ in name and incarnation only.
func TestSameDeviceAttributes(t *testing.T) {
	bed := start(t, options{})
	of := make(map[string]*tfpb.DeviceAttributes)
	for name, a := range bed.answerers() {
		st, err := a.worker.GetStatus(bed.soon(), &tfpb.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range st.GetDeviceAttributes() {
			if d.GetName() == a.device {
				d.Name, d.Incarnation = "", 0
				of[name] = d
			}
		}
	}
	if tf, us := of["TensorFlow"], of["Tryst"]; tf == nil || !proto.Equal(tf, us) {
		t.Errorf("TensorFlow %v, Tryst %v", tf, us)
	}
}

// TestErrorOfAnyTextReachesTensorFlow: the text takes three bytes in gRPC's header for each of its
// own.
func TestErrorOfAnyTextReachesTensorFlow(t *testing.T) {
	bed := start(t, options{})
	for _, part := range []string{"\u00e9", "\x01", "\U0001F600"} {
		s := bed.runUntilRequest(bed.soon(), bed.echo(tensor.Float32))
		s.Abort(status.New(status.FailedPrecondition, strings.Repeat(part, 5000)))
		wantError(t, s.wait(), status.FailedPrecondition, strings.Repeat(part, 500))
		s.cleanUp()
	}
}
