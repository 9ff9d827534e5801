package delivery

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// responseAction is one thing for the shell to do.
type responseAction struct {
	kind     responseActionKind
	to       call // doReply
	fetch    uint64
	ctx      context.Context // doFetch: for the shell
	held     bool            // doFetch: space is reserved for the value; report by waits when the receive waits
	request  transport.Request
	response transport.Response
}

type responseActionKind uint8

const (
	doFetch     responseActionKind = iota // receive request.Key in request.Step; report by fetched
	doStopFetch                           // take the receive of that fetch back; it still reports
	doReply                               // give response to a call, with a reference of its own
	doRestore                             // put response.Value back to the head of its key
	doRelease                             // release response.Value; response.Err is its outcome for the sender
)

// call is a call that waits for the response to an attempt.
type call struct {
	to      transport.Replier
	id      uint64
	attempt uint32
}

// reply gives a call its response, with a reference of its own: the cache may have
// released its own by the time that the action is carried out.
func reply(to call, r transport.Response) responseAction {
	if r.Err == nil {
		r.Value.Tensor.Retain()
	}
	return responseAction{kind: doReply, to: to, response: r}
}

func refuse(to call, err error) responseAction {
	return responseAction{kind: doReply, to: to, response: transport.Response{Err: err}}
}

func superseded(r transport.Request, by uint32) *status.Error {
	return status.Errorf(status.Aborted,
		"attempt %d of receive %016x gets no response any more: attempt %d has come", r.Attempt, r.ID, by)
}

// giveBack undoes a receive whose response nobody takes.
func giveBack(r transport.Request, resp transport.Response) []responseAction {
	if resp.Err != nil {
		return nil
	}
	return []responseAction{{kind: doRestore, request: r, response: resp}}
}
