package verbstransport_test

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// silent answers no bootstrap call.
func silent(ctx context.Context, _ *tfpb.GetRemoteAddressRequest, _ func() error, _ *tfpb.GetRemoteAddressResponse) error {
	<-ctx.Done()
	return status.From(ctx.Err())
}

// TestReceiveBeforeAnAttemptHasFailedTellsSo: without fallback, a receive ends while the first attempt to make a channel
// is under way. Its error has that in words.
func TestReceiveBeforeAnAttemptHasFailedTellsSo(t *testing.T) {
	o := clusterOptions{require: true, parallel: true} // it waits for the peer timeout
	s := newStage(t, tuned(o, func(o *verbstransport.Options) { o.Wrap(silent) }))
	const timeout = 3 * time.Second // less than handshake.CallTimeout, and more than Hello over gRPC takes
	from, to := s.start(0), s.startWith(1, transporttest.NodeOptions{PeerTimeout: timeout})
	to.recv(1, from.key(to, "v")).fails(status.Unavailable, "there is no verbs channel to /job:worker/replica:0/task:0 (an attempt is under way", "the setting fallback is none")
}
