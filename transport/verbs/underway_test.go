package verbstransport_test

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// silentExchange is a peer that answers no bootstrap call.
type silentExchange struct{}

func (silentExchange) Exchange(ctx context.Context, _ cluster.Task, _ handshake.Offer) (handshake.Offer, error) {
	<-ctx.Done()
	return handshake.Offer{}, status.From(ctx.Err())
}

// TestReceiveBeforeAnAttemptHasFailedTellsSo: without fallback, a receive ends while the first attempt to make a channel
// is under way. Its error has that in words.
func TestReceiveBeforeAnAttemptHasFailedTellsSo(t *testing.T) {
	s := newStage(t, tuned(clusterOptions{require: true}, func(o *verbstransport.Options) { o.Exchanger = silentExchange{} }))
	from, to := s.start(0), s.startWith(1, transporttest.NodeOptions{PeerTimeout: 300 * time.Millisecond}) // less than handshake.CallTimeout
	to.recv(1, from.key(to, "v")).fails(status.Unavailable, "there is no verbs channel to /job:worker/replica:0/task:0 (an attempt is under way", "the setting fallback is none")
}
