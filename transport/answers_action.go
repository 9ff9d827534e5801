package transport

import "github.com/tryst-rdma/tryst/status"

// keptAction is one thing for the shell to do.
type keptAction struct {
	kind   keptActionKind
	call   callID
	fetch  uint64
	held   bool // room is held free for what is fetched: report by waits when it waits
	ask    Ask
	answer Answer
}

type keptActionKind uint8

const (
	keptFetch     keptActionKind = iota // receive ask.Key in ask.Step; report by fetched
	keptStopFetch                       // take the receive of that fetch back; it still reports
	keptReply                           // give answer to call, with a reference of its own
	keptRestore                         // put answer.Value back to the head of its key
	keptRelease                         // release answer.Value
)

// reply gives a call its answer, with a reference of its own: the table's may be
// gone by the time that the action is carried out.
func reply(call callID, ans Answer) keptAction {
	if ans.Err == nil {
		ans.Value.Tensor.Retain()
	}
	return keptAction{kind: keptReply, call: call, answer: ans}
}

func refuse(call callID, err error) keptAction {
	return keptAction{kind: keptReply, call: call, answer: Answer{Err: err}}
}

func superseded(a Ask, by uint32) *status.Error {
	return status.Errorf(status.Aborted,
		"attempt %d of receive %016x is answered no more: attempt %d has come", a.Attempt, a.ID, by)
}

// giveBack undoes a receive whose answer nobody takes.
func giveBack(a Ask, ans Answer) []keptAction {
	if ans.Err != nil {
		return nil
	}
	return []keptAction{{kind: keptRestore, ask: a, answer: ans}}
}
