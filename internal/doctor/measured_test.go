package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/server"
)

// TestMeasuredIsOneTable: each route that was reached is a row, with one unit for each column.
func TestMeasuredIsOneTable(t *testing.T) {
	measured := func(device, provider string, median time.Duration, lost uint64, rate float64) Reached {
		return Reached{Rate: rate, Path: &server.Measured{Device: device, Provider: provider, Echoes: 100, Median: median, P99: 2 * median, Sent: 4000, Lost: lost}}
	}
	shm := measured("shm0", server.ProviderSHM, 20*time.Microsecond, 0, 4.2e9)
	shm.Path.Sent = 0
	rdma := measured("roce-eth0", server.ProviderRoCE, 2100*time.Microsecond, 20, 9.7e6)
	f := Facts{Peers: []Peer{
		{Task: "a", GRPC: measured("", "", 60*time.Microsecond, 0, 875e6), Verbs: &rdma, Fixed: []FixedReached{{"shm", shm}, {"tcp", Reached{Err: errors.New("refused")}}}},
		{Task: "b", GRPC: Reached{Err: errors.New("is not up")}},
	}}
	var b strings.Builder
	if err := WriteMeasured(&b, f); err != nil {
		t.Fatal(err)
	}
	want := `
PEER  ROUTE  DEVICE     ROUND TRIP µs  P99 µs  LOSS %  MB/s
a     grpc   -          60             120     0.00    875
a     shm    shm0       20             40      -       4200
a     rdma   roce-eth0  2100           4200    0.50    10
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	if err := WriteMeasured(&b, Facts{Peers: f.Peers[1:]}); err != nil || b.Len() > 0 {
		t.Errorf("without a peer: %q, %v", b.String(), err)
	}
}
