package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// explain names the receive in an error that a peer has answered with, or that it is not reached.
// The texts of an ended step and of a closing server are TensorFlow's, so they stay, after words
// that say what has happened; TensorFlow's workers do not send the kind. Other errors name their receive already; one that ended the step here
// stays as it is.
func (e *Edge) explain(ctx context.Context, step int64, key rendezvous.Key, err error) error {
	if err == nil || e.peer.Task == e.s.task {
		return err
	}
	if err = e.s.checkReceived(ctx, step, e.peer.Task, err); e.s.manager.Err(step) != nil {
		return err
	}
	said := status.From(err)
	receive := fmt.Sprintf("receive of %s in step %d", key.Describe(), step)
	switch {
	case !status.IsFromPeer(err):
		if c := said.Code(); c != status.Unavailable && c != status.Aborted && !errors.Is(err, status.ErrTaskLeft) {
			return err
		}
		return said.WithPrefix(receive)
	case said.Message() == fmt.Sprintf("Cleanup %d", step):
		return said.WithKind(status.ErrStepEnded).WithPrefix(fmt.Sprintf("%s: %s has ended the step", receive, e.peer.Task))
	case said.Message() == "Shutdown", said.Message() == "Call was aborted":
		return said.WithKind(status.ErrShutdown).WithPrefix(fmt.Sprintf("%s: %s is shutting down", receive, e.peer.Task))
	}
	return said.WithPrefix(fmt.Sprintf("%s: %s says", receive, e.peer.Task))
}
