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
	s := newStage(t, tuned(clusterOptions{require: true}, func(o *verbstransport.Options) { o.Wrap(silent) }))
	from, to := s.start(0), s.startWith(1, transporttest.NodeOptions{PeerTimeout: 300 * time.Millisecond}) // less than handshake.CallTimeout
	to.recv(1, from.key(to, "v")).fails(status.Unavailable, "there is no verbs channel to /job:worker/replica:0/task:0 (an attempt is under way", "the setting fallback is none")
}
