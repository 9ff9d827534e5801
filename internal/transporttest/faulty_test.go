package transporttest

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// fault is a fault that a transport could have.
type fault string

const (
	losesAtBreak      fault = "loses a value when the connection breaks"
	deliversTwice     fault = "delivers a value twice"
	forgetsRelease    fault = "forgets to release"
	ignoresCancel     fault = "ignores cancel"
	neverAcks         fault = "never acknowledges"
	givesUpAtBreak    fault = "gives up at the first broken connection"
	givesUpSlow       fault = "gives up what is slow"
	givesUpPeerAtOnce fault = "gives up a peer at once"
	neverGivesUpPeer  fault = "never gives up a peer"
	writesLate        fault = "writes late"
	losesDead         fault = "loses the mark of the dead"
	damagesLarge      fault = "damages large content"
	resumesWrong      fault = "goes on at the wrong byte after a break"
	lendsMemory       fault = "lends the sender's memory"
	mistakesErrors    fault = "takes the peer's errors for its own"
	servesOneByOne    fault = "serves one receive at a time"
	callsOneByOne     fault = "runs one callback at a time"
	leavesGoroutine   fault = "leaves a goroutine"
	stopsWithoutAcks  fault = "stops without acks"
	cancelsLate       fault = "cancels after later requests"
	namesNoWire       fault = "does not say what carried a value"
	acksEarly         fault = "acknowledges what it has not received yet"
	ignoresInto       fault = "receives into other memory"
	consumesUnfit     fault = "consumes a value that does not fit"
	touchesDead       fault = "writes into the memory for a dead value"
	writesIntoLate    fault = "writes into the receiver's memory late"
	keepsInto         fault = "keeps the receiver's memory"
)

// faults lists the faults, each with cases that must detect it.
var faults = []struct {
	fault fault
	cases []string
}{
	{losesAtBreak, []string{"Cut/InMidTransfer", "Cut/WhenTheValueIsMatched", "Cut/RandomlyUnderLoad", "Cut/RandomlyWithCancels"}},
	{deliversTwice, []string{"Order/FirstInFirstOut", "Cut/RandomlyUnderLoad", "Cut/RandomlyWithCancels"}},
	{forgetsRelease, []string{"Memory/SourceIsReleasedAfterTheReceive", "Order/SendFirst"}},
	{ignoresCancel, []string{"Cancel/InMidTransfer", "Abort/AtTheReceiverInMidTransfer"}},
	{neverAcks, []string{"Order/SendFirst", "Delivery/ConfirmedAfterTheReceive", "Cut/BeforeTheAck", "Stop/AcksAreSent"}},
	{givesUpAtBreak, []string{"Cut/WhileWaiting", "Cut/ManyWaiting", "Cut/BeforeTheRequestIsTaken"}},
	{givesUpSlow, []string{"Slow/ValueComesLaterThanThePeerTimeout", "Slow/TransferTakesLongerThanThePeerTimeout"}},
	{givesUpPeerAtOnce, []string{"Peer/GoneWhileWaiting", "Peer/NeverThere"}},
	{neverGivesUpPeer, []string{"Peer/GoneWhileWaiting", "Peer/GoneInMidTransfer", "Peer/OthersGoOn"}},
	{writesLate, []string{"Memory/DestinationIsFreeAfterACancel"}},
	{losesDead, []string{"Content/Dead"}},
	{damagesLarge, []string{"Size/65537", "Cut/RandomlyUnderLoad", "Many/AllToAll"}},
	{resumesWrong, []string{"Cut/InMidTransfer"}},
	{lendsMemory, []string{"Memory/DestinationIsTheReceivers"}},
	{mistakesErrors, []string{"Abort/CodesArrive"}},
	{servesOneByOne, []string{"Step/TwoAtOnceUnderOneKey", "Abort/OtherStepsGoOn", "Many/TenThousandReceivesAtOnce"}},
	{callsOneByOne, []string{"Callback/Blocks", "Callback/Receives"}},
	{leavesGoroutine, []string{"Order/SendFirst"}},
	{stopsWithoutAcks, []string{"Stop/AcksAreSent"}},
	{cancelsLate, []string{"Cancel/InOrderAfterwards"}},
	{namesNoWire, []string{"Order/SendFirst", "Content/Dead", "Cut/InMidTransfer"}},
	{acksEarly, []string{"Delivery/NotWhileInMidTransfer", "Delivery/NotWhenCancelled"}},
	{ignoresInto, []string{"Into/Sizes", "Into/CutInMidTransfer", "Into/ManyAtOnce"}},
	{consumesUnfit, []string{"Into/ThatDoesNotFit"}},
	{touchesDead, []string{"Into/Dead"}},
	{writesIntoLate, []string{"Into/CancelInMidTransfer", "Into/AbortInMidTransfer"}},
	{keepsInto, []string{"Into/Again"}},
}

func (f fault) peerTimeout(d time.Duration) time.Duration {
	switch f {
	case givesUpPeerAtOnce:
		return time.Millisecond
	case neverGivesUpPeer:
		return time.Hour
	}
	return d
}

func (f fault) remoter(r rendezvous.Remoter) rendezvous.Remoter {
	if f == callsOneByOne {
		return callInTurn{r, make(chan struct{}, 1)}
	}
	return r
}

// callInTurn runs one callback at a time. It uses a channel as its lock, since virtual time does
// not advance while a goroutine waits for a mutex.
type callInTurn struct {
	rendezvous.Remoter
	turn chan struct{}
}

func (r callInTurn) RecvFromRemoteAsync(step int64, k rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer {
	ended := make(chan outcome, 1)
	if done == nil {
		done = func(v rendezvous.Value, _ rendezvous.Args, err error) { ended <- outcome{v, err} }
	}
	return inTurn{r.Remoter.RecvFromRemoteAsync(step, k, args, func(v rendezvous.Value, args rendezvous.Args, err error) {
		r.turn <- struct{}{}
		defer func() { <-r.turn }()
		done(v, args, err)
	}), ended}
}

// inTurn is a transfer whose Wait also takes the lock.
type inTurn struct {
	rendezvous.Transfer
	ended <-chan outcome
}

func (x inTurn) Wait(ctx context.Context) (rendezvous.Value, error) {
	select {
	case <-ctx.Done():
		x.Cancel(status.From(context.Cause(ctx)))
		o := <-x.ended
		return o.value, o.err
	case o := <-x.ended:
		return o.value, o.err
	}
}

func (f fault) conn(w *refConn) transport.Conn {
	if f == "" {
		return w
	}
	return &faultyConn{refConn: w, fault: f, turn: make(chan struct{}, 1)}
}

// faultyConn is a connection with one fault.
type faultyConn struct {
	*refConn
	fault fault
	turn  chan struct{}
}

func (w *faultyConn) Cancel(ctx context.Context, ids []uint64) error {
	switch w.fault {
	case ignoresCancel:
		return nil
	case cancelsLate:
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return w.refConn.Cancel(ctx, ids)
}

func (w *faultyConn) Ack(ctx context.Context, ids []uint64) error {
	if w.fault == neverAcks {
		return nil
	}
	return w.refConn.Ack(ctx, ids)
}

func (w *faultyConn) Begin(t *transport.Receive) transport.Attempt {
	return &faultyAttempt{w.begin(t), w}
}

// faultyAttempt is an attempt with the fault of its connection.
type faultyAttempt struct {
	*refAttempt
	w *faultyConn
}

func (a *faultyAttempt) Wait(ctx context.Context) (rendezvous.Value, error) {
	w := a.w
	switch w.fault {
	case neverAcks:
		a.acks = nil
	case cancelsLate:
		a.cancels = nil
	case servesOneByOne:
		w.turn <- struct{}{}
		defer func() { <-w.turn }()
	case givesUpSlow:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, shortTimeout)
		defer cancel()
	case resumesWrong:
		if a.t.Partial.Bytes > 0 {
			a.t.Partial.Bytes++
		}
	}
	v, err := a.refAttempt.Wait(ctx)
	if to := w.from.c.node(w.task); to != nil {
		return w.spoil(to, a.t, v, err)
	}
	return v, err
}

// spoil applies the faults that act after the receive.
func (w *faultyConn) spoil(to *refNode, a *transport.Receive, v rendezvous.Value, err error) (rendezvous.Value, error) {
	var lost *transport.LostError
	broken := errors.As(err, &lost)
	switch w.fault {
	case losesAtBreak:
		if broken {
			to.kept.Ack(a.Requester, []uint64{a.ID})
		}
	case deliversTwice:
		if err == nil && !to.manager.Restore(a.Step, a.Key, rendezvous.Value{Tensor: v.Tensor.Retain()}) {
			v.Tensor.Release()
		}
	case forgetsRelease:
		_, _ = to.kept.Value(a.Requester, a.ID, a.Attempt) // a reference
	case givesUpAtBreak, givesUpSlow:
		if broken || status.CodeOf(err) == status.DeadlineExceeded {
			err = status.Errorf(status.Unavailable, "%v is gone", w.task)
		}
	case writesLate:
		if err != nil && a.Partial.Buffer != nil {
			dst := a.Partial.Buffer.Bytes()
			a.Partial.Drop()
			dst[len(dst)-1] = 1
		}
	case losesDead:
		v.Dead = false
	case damagesLarge:
		if err == nil && v.Tensor.Size() > 64*kib && v.Tensor.DType().Plain() {
			v.Tensor.Bytes()[64*kib] ^= 1
		}
	case namesNoWire:
		a.Arrival.Transport = ""
	case lendsMemory:
		if kept, e := to.kept.Value(a.Requester, a.ID, a.Attempt); err == nil && e == nil {
			v.Tensor.Release()
			v.Tensor = kept.Tensor
		}
	case mistakesErrors:
		var own *transport.ReceiverError // dropped
		if c := status.CodeOf(err); (c == status.Unavailable || c == status.Cancelled) && !errors.As(err, &own) {
			err = &transport.LostError{Err: err}
		}
	case ignoresInto:
		if err == nil && a.Into != nil && v.Tensor == a.Into.Tensor() {
			other, e := v.Tensor.Clone(tensor.Heap{})
			v.Tensor.Release()
			v.Tensor, err = other, e
		}
	case consumesUnfit:
		if status.CodeOf(err) == status.InvalidArgument {
			to.kept.Ack(a.Requester, []uint64{a.ID})
		}
	case touchesDead:
		if err == nil && a.Into != nil && v.Dead {
			a.Into.Tensor().Bytes()[0] = 1
		}
	case writesIntoLate:
		if err != nil && a.Into != nil {
			dst := a.Into.Tensor().Bytes()
			time.AfterFunc(20*time.Millisecond, func() { dst[len(dst)-1] = 1 })
		}
	case keepsInto:
		if err == nil && a.Into != nil {
			a.Into.Tensor().Retain()
		}
	case leavesGoroutine:
		go func() { <-w.from.c.t.Context().Done(); <-make(chan struct{}) }()
	}
	return v, err
}
