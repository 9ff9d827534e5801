package rdma

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// TestARefusedNameIsNotOptional: that a peer has no verbs is as it should be where nobody has asked for them, and that one
// of the two does not prove its name is not.
func TestARefusedNameIsNotOptional(t *testing.T) {
	peer := cluster.Task{Job: "worker", Index: 1}
	for _, c := range []struct {
		reason         error
		optional, word string
	}{
		{status.Errorf(status.Unimplemented, "it %w", handshake.ErrNotServed), "optional", "unfit"},
		{status.Errorf(status.Unavailable, "%w", &handshake.UnreachedError{Err: errors.New("connection refused")}), "waiting", "away"},
		{status.New(status.PermissionDenied, "the certificate is for another task"), "unfit", "unfit"},
		{status.Errorf(status.Unauthenticated, "%w", &status.Said{Peer: peer.String(), Text: "no certificate"}), "refused", "refused"},
	} {
		for optional, want := range map[bool]string{true: c.optional, false: c.word} {
			r := &Part{Optional: optional}
			if got := r.reasonWord(verbstransport.Connection{Task: peer, Reason: c.reason}); got != want {
				t.Errorf("optional %v: %v is %s, want %s", optional, c.reason, got, want)
			}
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPortCounters: the counters of the port have their names; what cannot be read is not there, and stops nothing.
func TestPortCounters(t *testing.T) {
	for _, values := range []map[string]uint64{{"out_of_sequence": 17, "port_rcv_data": 1 << 40}, nil} {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(newPortCounters(func() (discovery.Choice, map[string]uint64) {
			return discovery.Choice{Device: "mlx5_0", Port: 2}, values
		}))
		all, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, f := range all {
			for _, m := range f.GetMetric() {
				l := m.GetLabel() // sorted by name
				got[f.GetName()+" "+l[0].GetValue()+" "+l[1].GetValue()+" "+l[2].GetValue()] = m.GetUntyped().GetValue()
			}
		}
		if len(got) != len(values) {
			t.Errorf("%v of %v", got, values)
		}
		for name, want := range values {
			if n := got["tryst_rdma_port_counter "+name+" mlx5_0 2"]; n != float64(want) {
				t.Errorf("%s is %v, want %d: %v", name, n, want, got)
			}
		}
	}
}
