package verbstransport_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// olderExchange carries what a build carries that knows no other devices than RDMA.
type olderExchange struct{ verbstransport.Exchanger }

func (e olderExchange) Exchange(ctx context.Context, peer cluster.Task, own handshake.Offer) (handshake.Offer, error) {
	own.Inventory = nil
	theirs, err := e.Exchanger.Exchange(ctx, peer, own)
	theirs.Inventory = nil
	return theirs, err
}

// TestPeerOfAnEarlierRelease: a process with all kinds of devices and one of a build that knows RDMA
// alone use RDMA, and the status says why nothing better is used.
func TestPeerOfAnEarlierRelease(t *testing.T) {
	o := sideBySide()
	tune := o.tune
	o.tune = func(task cluster.Task, to *verbstransport.Options) {
		if tune != nil {
			tune(task, to)
		}
		to.Exchanger = olderExchange{to.Exchanger}
	}
	s := newStage(t, o)
	from, to := s.pair()
	from.overRoute(to, "rdma")
	from.exchange(to, 1)
	k := from.connection(to)
	if len(k.Routes) == 0 || !strings.Contains(k.Routes[0].Why, "earlier release") {
		t.Errorf("the reason against the best route: %+v", k.Routes)
	}
	if k.Stats.Without != 0 {
		t.Errorf("%d receives took gRPC", k.Stats.Without)
	}
}
