package server

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// SendWait is Send with a bound and a confirmation. It waits until the bytes that this step
// has sent to the task of to, and that this task does not have yet, are within the setting
// send-bound together with t. A value that is larger than the bound goes alone. Calls go on in
// their order. Values of Send count too, from the first SendWait of the step on, but Send
// never waits. A flow of Sends does not keep a SendWait out: the first one in line goes on once
// nothing counts any more that counted when it became the first.
//
// The Delivery says when the receiver has the value, or why that is not known. Nobody needs
// to look at it. The memory of t may be written again when t.Buffer().Unique() reports true,
// which may be later.
//
// SendWait ends with Cancelled or DeadlineExceeded when ctx ends before there is space, with
// the error of the step when that ends, and otherwise as Send. After an error nothing was
// sent. A consumer that does not receive what was sent first, but waits for a later value,
// must not be fed by SendWait with more than the bound between the two: both would wait.
func (s *Server) SendWait(ctx context.Context, step int64, to, name string, t *tensor.Tensor, dead bool) (*rendezvous.Delivery, error) {
	e, in := Edge{s: s, name: name}, s.members.Now()
	if err := e.makeOut("SendWait", to); err != nil {
		return nil, err
	}
	d, err := s.manager.Find(step).SendWait(ctx, e.out, rendezvous.Args{}, t, dead)
	if err = s.checkSent(in, step, e.peer.Task, err); err != nil {
		return nil, err
	}
	return d, nil
}
