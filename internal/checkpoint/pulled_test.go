package checkpoint_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// over is an arrival of one attempt in one second.
func over(transport, device string, bytes int64) rendezvous.Arrival {
	return rendezvous.Arrival{Transport: transport, Device: device, Bytes: bytes, Duration: time.Second, Attempts: 1}
}

// received collects the records of a pull.
type received map[string][]rendezvous.Arrival

func (r received) add(t *testing.T) func(checkpoint.PulledTensor) {
	return func(p checkpoint.PulledTensor) {
		if _, ok := r[p.Name]; ok {
			t.Errorf("%s was reported twice", p.Name)
		}
		r[p.Name] = p.Arrivals
	}
}

// TestPullSaysWhatCarriedEachTensor: one tensor falls back to gRPC on its second attempt, two
// come over verbs, on two devices.
func TestPullSaysWhatCarriedEachTensor(t *testing.T) {
	h := published(t, patterned(t, "a", 10), patterned(t, "b", 20), patterned(t, "c", 30), patterned(t, "d", 40))
	p, puller := at(t, h)
	fell := rendezvous.Arrival{Transport: "grpc", Bytes: 20, Duration: 3 * time.Second, Attempts: 2}
	p.arrive = func(edge string, n int64) rendezvous.Arrival {
		switch {
		case strings.HasSuffix(edge, "/b"):
			return fell
		case strings.HasSuffix(edge, "/d"):
			return over("verbs", "mlx5_1", n)
		}
		return over("verbs", "mlx5_0", n)
	}
	got := make(received)
	var sum checkpoint.Summary
	for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Received: got.add(t), Summary: &sum}) {
		must(t, err)
		if got[x.Name()] == nil {
			t.Errorf("%s was yielded before its record", x.Name())
		}
		x.Release()
	}
	if want := (received{
		"a": {over("verbs", "mlx5_0", 10)}, "b": {fell}, "c": {over("verbs", "mlx5_0", 30)}, "d": {over("verbs", "mlx5_1", 40)},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if want := []checkpoint.Carried{
		{Tensors: 2, Arrival: rendezvous.Arrival{Transport: "verbs", Device: "mlx5_0", Bytes: 40, Duration: 2 * time.Second, Attempts: 2}},
		{Tensors: 1, Arrival: fell},
		{Tensors: 1, Arrival: over("verbs", "mlx5_1", 40)},
	}; !reflect.DeepEqual(sum.Carried, want) {
		t.Errorf("got %+v\nwant %+v", sum.Carried, want)
	}
	for transport, want := range map[string]int{"verbs": 3, "grpc": 1, "local": 0} {
		if n := sum.Over(transport); n != want {
			t.Errorf("%d tensors over %s, want %d", n, transport, want)
		}
	}
}

// TestPieceOverAnotherTransportIsSeen: one piece of a tensor went over gRPC. The tensor counts at both
// transports.
func TestPieceOverAnotherTransportIsSeen(t *testing.T) {
	h := serve(t)
	h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, patterned(t, "x", 2*piece+3*mib)))
	p, puller := at(t, h)
	p.arrive = func(_ string, n int64) rendezvous.Arrival {
		if n == 3*mib { // the last piece
			return over("grpc", "", n)
		}
		return over("verbs", "mlx5_0", n)
	}
	got := make(received)
	sum, err := puller.Save(t.Context(), checkpoint.PullRequest{Received: got.add(t)}, checkpoint.SaveOptions{Out: filepath.Join(t.TempDir(), "m.safetensors")})
	must(t, err)
	verbs := rendezvous.Arrival{Transport: "verbs", Device: "mlx5_0", Bytes: 2 * piece, Duration: 2 * time.Second, Attempts: 2}
	if want := (received{"x": {verbs, over("grpc", "", 3*mib)}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if sum.Over("grpc") != 1 || sum.Over("verbs") != 1 {
		t.Errorf("the sum is %+v", sum.Carried)
	}
}

// TestRequestsOfEarlierSessionsAreCounted: a tensor whose receive failed, and which came in the
// next session, has two attempts.
func TestRequestsOfEarlierSessionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, puller := at(t, published(t, patterned(t, "x", 10)))
		p.arrive = func(_ string, n int64) rendezvous.Arrival { return over("grpc", "", n) }
		var once sync.Once
		fail := func(string) (err error) {
			once.Do(func() { err = status.New(status.Unavailable, "the connection is lost") })
			return err
		}
		p.fail.Store(&fail)
		got := make(received)
		for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Received: got.add(t)}) {
			must(t, err)
			x.Release()
		}
		want := over("grpc", "", 10)
		want.Attempts = 2
		if !reflect.DeepEqual(got, received{"x": {want}}) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestDamagedArrivalIsCounted: what came damaged over gRPC, and right over verbs, says so.
func TestDamagedArrivalIsCounted(t *testing.T) {
	h := published(t, patterned(t, "x", 1000))
	n := 0
	h.damage = func(v rendezvous.Value) { // the memory is shared with the host
		if n++; n <= 2 {
			v.Tensor.Bytes()[5] ^= 1
		}
	}
	p, puller := at(t, h)
	p.arrive = func(_ string, size int64) rendezvous.Arrival {
		if n == 1 {
			return over("grpc", "", size)
		}
		return over("verbs", "mlx5_0", size)
	}
	var sum checkpoint.Summary
	for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Summary: &sum}) {
		must(t, err)
		x.Release()
	}
	want := []checkpoint.Carried{{1, over("grpc", "", 1000)}, {1, over("verbs", "mlx5_0", 1000)}}
	if !reflect.DeepEqual(sum.Carried, want) {
		t.Errorf("got %+v, want %+v", sum.Carried, want)
	}
}

// TestResumedTensorHasNoArrival: what an earlier pull has written, no transport has carried now.
func TestResumedTensorHasNoArrival(t *testing.T) {
	b := begin(t, threeTensors(t), 1)
	got := make(received)
	sum, err := b.Save(t.Context(), checkpoint.PullRequest{Received: got.add(t)}, checkpoint.SaveOptions{Out: b.out})
	must(t, err)
	var carried int64
	for _, c := range sum.Carried {
		carried += c.Bytes
	}
	if sum.Resumed == 0 || carried != sum.Bytes-sum.Resumed {
		t.Errorf("%d bytes of %d were there, and %d were carried: %+v", sum.Resumed, sum.Bytes, carried, sum.Carried)
	}
}

// TestPullThatIsLeftHasASummary: a loop that ends with the tensor it looked for learns what carried
// it. An empty Summary would say that nothing went over gRPC.
func TestPullThatIsLeftHasASummary(t *testing.T) {
	h := published(t, patterned(t, "a", 10), patterned(t, "b", 20), patterned(t, "c", 30))
	p, puller := at(t, h)
	p.arrive = func(_ string, n int64) rendezvous.Arrival { return over("grpc", "", n) }
	var sum checkpoint.Summary
	for x, err := range puller.Pull(t.Context(), checkpoint.PullRequest{Summary: &sum}) {
		must(t, err)
		x.Release()
		break
	}
	if sum.Tensors == 0 || sum.Over("grpc") != sum.Tensors || sum.Digest != "" || sum.Publication.Name == "" {
		t.Errorf("summary %+v, want tensors that came over gRPC, and no digest of all", sum)
	}
}
