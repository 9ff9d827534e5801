package server

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// TestLossWatchKnowsThePeersOfADevice: the device in user space counts by peer, and the
// metrics and warnings name its task.
func TestLossWatchKnowsThePeersOfADevice(t *testing.T) {
	w := newVerbsTown(t, 2)
	start := func(i int) *VerbsServer {
		v, err := StartVerbs(t.Context(), w.settings(i, func(c *Config) { c.RDMA.Timeout = time.Second }),
			Options{Provider: roce.New(roce.Options{}), Allocator: tensortest.NewAllocator(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := v.Close(t.Context()); err != nil && t.Context().Err() == nil {
				t.Errorf("Close: %v", err)
			}
		})
		return v
	}
	a, b := start(0), start(1)
	w.up(a, b.Task())
	w.up(b, a.Task())
	w.exchange(1, b, a, 1)
	r := a.loss.Read()
	if len(r.Paths) != 1 || !r.Software || r.Paths[0].Sent == 0 {
		t.Fatalf("%+v", r)
	}
	if got := a.loss.PeerName(r.Paths[0].Peer); got != b.Task().String() {
		t.Errorf("the peer at %v is %s", r.Paths[0].Peer, got)
	}
	if !a.loss.Active() || len(r.TCP) == 0 {
		t.Errorf("running %v, %d TCP connections", a.loss.Active(), len(r.TCP))
	}
	text, peer := metricsText(a.gatherer), `{peer="`+b.Task().String()+`"`
	for _, name := range []string{`tryst_verbs_path_packets_total` + peer + `,what="sent"}`, `tryst_verbs_path_packets_total` + peer + `,what="received"}`, `tryst_tcp_sent_segments_total`} {
		if got := metric(t, text, name); got < 1 {
			t.Errorf("%s %v, want 1 at least", name, got)
		}
	}
	for _, name := range []string{`tryst_verbs_path_losses_total` + peer + `,what="sent"}`, `tryst_loss_ratio{kind="sent"}`, `tryst_loss_warnings_total{kind="tcp"}`} {
		if got := metric(t, text, name); got < 0 {
			t.Errorf("there is no %s", name)
		}
	}
}
