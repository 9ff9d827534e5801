package verbstransport_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// older carries what a build carries that knows no other devices than RDMA.
func older(_ context.Context, own *tfpb.GetRemoteAddressRequest, next func() error, theirs *tfpb.GetRemoteAddressResponse) error {
	own.Devices, own.User, own.Tls, own.Serial = nil, 0, 0, 0
	err := next()
	theirs.Devices, theirs.User, theirs.Tls, theirs.Serial = nil, 0, 0, 0
	return err
}

// TestPeerOfAnEarlierRelease: a process with every route and one of a build that knows RDMA
// alone use RDMA, and the status says why nothing better is used.
func TestPeerOfAnEarlierRelease(t *testing.T) {
	o := sideBySide()
	tune := o.tune
	o.tune = func(task cluster.Task, to *verbstransport.Options) {
		if tune != nil {
			tune(task, to)
		}
		to.Wrap(older)
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
