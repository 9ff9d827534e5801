package transporttest

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// fault is a mistake that a transport could make.
type fault string

const (
	losesAtBreak      fault = "loses a value when the connection breaks"
	deliversTwice     fault = "delivers a value twice"
	forgetsRelease    fault = "forgets to release"
	ignoresCancel     fault = "ignores cancel"
	neverFinishes     fault = "never says finished"
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
	stopsWithoutAWord fault = "stops without a word"
	cancelsLate       fault = "cancels after later requests"
)

// faults lists the mistakes, each with cases that must fail by it.
var faults = []struct {
	fault fault
	cases []string
}{
	{losesAtBreak, []string{"Cut/InMidTransfer", "Cut/WhenTheValueIsMatched", "Cut/RandomlyUnderLoad", "Cut/RandomlyWithCancels"}},
	{deliversTwice, []string{"Order/FirstInFirstOut", "Cut/RandomlyUnderLoad", "Cut/RandomlyWithCancels"}},
	{forgetsRelease, []string{"Memory/SourceIsReleasedAfterTheReceive", "Order/SendFirst"}},
	{ignoresCancel, []string{"Cancel/InMidTransfer", "Abort/AtTheReceiverInMidTransfer"}},
	{neverFinishes, []string{"Order/SendFirst", "Cut/BeforeFinished", "Stop/FinishedIsSaid"}},
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
	{stopsWithoutAWord, []string{"Stop/FinishedIsSaid"}},
	{cancelsLate, []string{"Cancel/InOrderAfterwards"}},
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

// callInTurn runs one callback at a time. The turn is a channel, as virtual time
// stands still while somebody waits for a mutex.
type callInTurn struct {
	rendezvous.Remoter
	turn chan struct{}
}

func (r callInTurn) RecvFromRemoteAsync(step int64, k rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.RemoteRecv {
	return r.Remoter.RecvFromRemoteAsync(step, k, args, func(v rendezvous.Value, args rendezvous.Args, err error) {
		r.turn <- struct{}{}
		defer func() { <-r.turn }()
		done(v, args, err)
	})
}

func (f fault) wire(w *refWire) transport.Wire {
	if f == "" {
		return w
	}
	return &faultyWire{refWire: w, fault: f, turn: make(chan struct{}, 1)}
}

// faultyWire makes one mistake.
type faultyWire struct {
	*refWire
	fault fault
	turn  chan struct{}
}

func (w *faultyWire) Cancel(ctx context.Context, ids []uint64) error {
	switch w.fault {
	case ignoresCancel:
		return nil
	case cancelsLate:
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return w.refWire.Cancel(ctx, ids)
}

func (w *faultyWire) Finish(ctx context.Context, ids []uint64) error {
	if w.fault == neverFinishes {
		return nil
	}
	return w.refWire.Finish(ctx, ids)
}

func (w *faultyWire) Recv(ctx context.Context, a *transport.Attempt) (rendezvous.Value, error) {
	switch w.fault {
	case neverFinishes:
		a.Finished = nil
	case cancelsLate:
		a.Cancelled = nil
	case servesOneByOne:
		w.turn <- struct{}{}
		defer func() { <-w.turn }()
	case givesUpSlow:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, shortTimeout)
		defer cancel()
	case resumesWrong:
		if a.Partial.Bytes > 0 {
			a.Partial.Bytes++
		}
	}
	v, err := w.refWire.Recv(ctx, a)
	if to := w.from.c.node(w.task); to != nil {
		return w.spoil(ctx, to, a, v, err)
	}
	return v, err
}

// spoil makes the mistake after the receive.
func (w *faultyWire) spoil(ctx context.Context, to *refNode, a *transport.Attempt, v rendezvous.Value, err error) (rendezvous.Value, error) {
	var lost *transport.LostError
	broken := errors.As(err, &lost)
	switch w.fault {
	case losesAtBreak:
		if broken {
			to.kept.Finish(a.Asker, []uint64{a.ID})
		}
	case deliversTwice:
		if err == nil && !to.manager.Restore(a.Step, a.Key, rendezvous.Value{Tensor: v.Tensor.Retain()}) {
			v.Tensor.Release()
		}
	case forgetsRelease:
		_, _ = to.kept.Value(a.Asker, a.ID, a.Attempt) // a reference
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
	case lendsMemory:
		if kept, e := to.kept.Value(a.Asker, a.ID, a.Attempt); err == nil && e == nil {
			v.Tensor.Release()
			v.Tensor = kept.Tensor
		}
	case mistakesErrors:
		if c := status.CodeOf(err); (c == status.Unavailable || c == status.Cancelled) && ctx.Err() == nil {
			err = &transport.LostError{Err: err}
		}
	case leavesGoroutine:
		go func() { <-w.from.c.t.Context().Done(); <-make(chan struct{}) }()
	}
	return v, err
}
