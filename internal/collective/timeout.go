package collective

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// timeout is the attribute timeout_seconds of an operation, with the text that tells what took too
// long. It has no limit when after is 0.
type timeout struct {
	after time.Duration
	text  string
}

// TensorFlow's texts.
const (
	timedOutWaiting = "Collective has timed out waiting for other workers."
	timedOutRunning = "Collective has timed out during execution."
)

// start ends a context after the timeout. The function that it returns takes it back.
func (t timeout) start(stop context.CancelCauseFunc) func() {
	if t.after <= 0 {
		return func() {}
	}
	timer := time.AfterFunc(t.after, func() { stop(status.New(status.DeadlineExceeded, t.text)) })
	return func() { timer.Stop() }
}
