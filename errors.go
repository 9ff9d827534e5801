package tryst

import "github.com/tryst-rdma/tryst/status"

// The kinds of Aborted: errors.Is(err, tryst.ErrPeerRestarted). They are the same over all transports, and travel to
// other processes with the error. An Aborted that a program passes to Step.Abort keeps its kind, and is ErrStepEnded
// without one.
var (
	// ErrPeerRestarted: another process has taken the place of the peer, and what the earlier one had sent is lost.
	// The next receive is a request to the new process. A Delivery ends with it when the process that had requested
	// the value is replaced.
	ErrPeerRestarted = status.ErrPeerRestarted
	// ErrStepEnded: the step was closed, or aborted without another reason, here or at the peer.
	ErrStepEnded = status.ErrStepEnded
	// ErrShutdown: this server or the peer is closing.
	ErrShutdown = status.ErrShutdown
	// ErrTaskLeft: a task has left the cluster (Server.SetCluster). Later calls for it are NotFound, and match, too.
	ErrTaskLeft = status.ErrTaskLeft
)
