package collective

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// sides are a producer and a consumer of one key, and what became of them.
type sides struct {
	b        bufs
	value    *tensor.Tensor
	got      *tensor.Tensor
	provided []error
	consumed []error
}

func newSides(t *testing.T) *sides {
	v, err := tensor.FromSlice(tensor.Vector(2), []float32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	return &sides{value: v}
}

func (s *sides) provide(ctx context.Context) {
	s.b.provide(ctx, "key0", s.value, func(err error) { s.provided = append(s.provided, err) })
}

func (s *sides) consume(ctx context.Context) {
	s.b.consume(ctx, "key0", func(t *tensor.Tensor, err error) { s.got, s.consumed = t, append(s.consumed, err) })
}

// wantMatched checks that the consumer has the producer's value, and that no reference is lost.
func (s *sides) wantMatched(t *testing.T) {
	t.Helper()
	if len(s.provided) != 1 || len(s.consumed) != 1 || s.provided[0] != nil || s.consumed[0] != nil {
		t.Fatalf("the producer ended with %v and the consumer with %v; want one success each", s.provided, s.consumed)
	}
	if s.got == nil || &s.got.Bytes()[0] != &s.value.Bytes()[0] {
		t.Fatal("the consumer did not get the producer's memory")
	}
	s.got.Release()
	s.wantUnique(t)
}

func (s *sides) wantUnique(t *testing.T) {
	t.Helper()
	if !s.b.empty() {
		t.Error("the table is not empty")
	}
	if !s.value.Buffer().Unique() {
		t.Error("the table has kept a reference to the value")
	}
}

// same checks that one side has ended once, with an error of this code and text.
func same(t *testing.T, side string, errs []error, code status.Code, text string) {
	t.Helper()
	if len(errs) != 1 {
		t.Fatalf("the %s ended %d times: %v", side, len(errs), errs)
	}
	if status.CodeOf(errs[0]) != code || status.From(errs[0]).Message() != text {
		t.Errorf("the %s ended with %v; want %v: %s", side, errs[0], code, text)
	}
}

const cancelText = "Operation was cancelled for BufRendezvous key key0"

// The names end in those of TensorFlow's buf_rendezvous_test.cc.

func TestBufsCorrectUseProducerFirst(t *testing.T) {
	s := newSides(t)
	s.provide(t.Context())
	if s.provided != nil {
		t.Fatal("the producer ended before the consumer came")
	}
	s.consume(t.Context())
	s.wantMatched(t)
}

func TestBufsCorrectUseConsumerFirst(t *testing.T) {
	s := newSides(t)
	s.consume(t.Context())
	s.provide(t.Context())
	s.wantMatched(t)
}

func TestBufsTakeIsConsumeForAValueThatIsThere(t *testing.T) {
	s := newSides(t)
	if s.b.take("key0") != nil {
		t.Fatal("take found a value that nobody has provided")
	}
	s.provide(t.Context())
	s.got, s.consumed = s.b.take("key0"), []error{nil}
	s.wantMatched(t)
	s.consume(t.Context())
	if s.b.take("key0") != nil {
		t.Fatal("take found the consumer's hook")
	}
	s.b.close()
}

func TestBufsErrorDuplicatePut(t *testing.T) {
	s := newSides(t)
	s.provide(t.Context())
	s.provide(t.Context())
	same(t, "second producer", s.provided, status.Internal, "BufRendezvous::ProvideBuf already called for key key0")
	s.provided = nil
	s.consume(t.Context())
	s.wantMatched(t)
}

func TestBufsErrorSecondConsumer(t *testing.T) {
	s := newSides(t)
	s.consume(t.Context())
	s.consume(t.Context())
	same(t, "second consumer", s.consumed, status.Internal, "Second consumer arrived for key key0")
	s.consumed = nil
	s.provide(t.Context())
	s.wantMatched(t)
}

func TestBufsErrorDeleteNonEmpty(t *testing.T) {
	s := newSides(t)
	s.provide(t.Context())
	s.b.close()
	same(t, "producer", s.provided, status.Internal, "Delete called on non-empty BufRendezvous")
	s.wantUnique(t)
}

func TestBufsAbortNonEmpty(t *testing.T) {
	for _, side := range []string{"producer", "consumer"} {
		s := newSides(t)
		ended := &s.provided
		if side == "consumer" {
			s.consume(t.Context())
			ended = &s.consumed
		} else {
			s.provide(t.Context())
		}
		s.b.abort(status.New(status.Internal, "Falling sky detected"))
		same(t, side, *ended, status.Internal, "Falling sky detected")
		s.wantUnique(t)
	}
}

func TestBufsAbortEmpty(t *testing.T) {
	var b bufs
	b.abort(status.New(status.Internal, "Falling sky detected"))
	b.close()
}

func TestBufsUseAfterAbort(t *testing.T) {
	s := newSides(t)
	s.b.abort(status.New(status.Internal, "Falling sky detected"))
	s.b.abort(status.New(status.Aborted, "later"))
	s.provide(t.Context())
	s.consume(t.Context())
	for side, errs := range map[string][]error{"producer": s.provided, "consumer": s.consumed} {
		same(t, side, errs, status.Internal, "Falling sky detected")
		if !status.IsDerived(errs[0]) {
			t.Errorf("the error of the %s is not derived", side)
		}
	}
	s.wantUnique(t)
}

// cancelling runs f in a bubble with a context whose cancel waits for what it causes.
func cancelling(t *testing.T, f func(s *sides, ctx context.Context, cancel func())) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f(newSides(t), ctx, func() {
			cancel()
			synctest.Wait()
		})
	})
}

func TestBufsProvideThenCancel(t *testing.T) {
	cancelling(t, func(s *sides, ctx context.Context, cancel func()) {
		s.provide(ctx)
		cancel()
		same(t, "producer", s.provided, status.Cancelled, cancelText)
		s.wantUnique(t)
	})
}

func TestBufsCancelThenProvide(t *testing.T) {
	cancelling(t, func(s *sides, ctx context.Context, cancel func()) {
		cancel()
		s.provide(ctx)
		same(t, "producer", s.provided, status.Cancelled, cancelText)
		s.wantUnique(t)
	})
}

func TestBufsConsumeThenCancel(t *testing.T) {
	cancelling(t, func(s *sides, ctx context.Context, cancel func()) {
		s.consume(ctx)
		cancel()
		same(t, "consumer", s.consumed, status.Cancelled, cancelText)
		if !errors.Is(s.consumed[0], context.Canceled) {
			t.Error("the error does not match context.Canceled")
		}
		s.wantUnique(t)
	})
}

func TestBufsCancelThenConsume(t *testing.T) {
	cancelling(t, func(s *sides, ctx context.Context, cancel func()) {
		cancel()
		s.consume(ctx)
		same(t, "consumer", s.consumed, status.Cancelled, cancelText)
	})
}

func TestBufsProvideConsumeThenCancel(t *testing.T) {
	cancelling(t, func(s *sides, ctx context.Context, cancel func()) {
		s.provide(ctx)
		s.consume(ctx)
		cancel()
		s.wantMatched(t)
	})
}

func TestBufsCancelThenProvideConsume(t *testing.T) {
	cancelling(t, func(s *sides, ctx context.Context, cancel func()) {
		cancel()
		s.provide(ctx)
		s.consume(ctx)
		same(t, "producer", s.provided, status.Cancelled, cancelText)
		same(t, "consumer", s.consumed, status.Cancelled, cancelText)
		s.wantUnique(t)
	})
}

func TestBufsAbortOfOneGroupLeavesTheOthers(t *testing.T) {
	var b bufs
	ended := map[string]error{}
	wait := func(key string) {
		b.consume(t.Context(), key, func(_ *tensor.Tensor, err error) { ended[key] = err })
	}
	wait("7:1:0:0")
	wait("77:1:0:0")
	first := b.beginGroup(7, device(0, 0))
	b.abortGroup(7, first, status.New(status.Unavailable, "gone"))
	wait("7:2:0:0")
	if len(ended) != 2 || status.CodeOf(ended["7:1:0:0"]) != status.Unavailable || status.CodeOf(ended["7:2:0:0"]) != status.Unavailable {
		t.Errorf("ended: %v; want both keys of group 7 with Unavailable", ended)
	}
	second := b.beginGroup(7, device(0, 0))
	wait("7:3:0:0")
	b.abortGroup(7, first, status.New(status.Unavailable, "gone"))
	if len(ended) != 2 {
		t.Errorf("the group does not begin again: %v", ended)
	}
	if third := b.beginGroup(7, device(0, 1)); third != second {
		t.Errorf("another device begins run %d of the group, not %d", third, second)
	}
	b.close()
}

// A value that was taken for a peer and did not reach it is there again, for a consumer that waits
// or comes.
func TestBufsTakeAValueBack(t *testing.T) {
	for _, waits := range []bool{false, true} {
		s := newSides(t)
		s.provide(t.Context())
		taken := s.b.take("key0")
		if waits {
			s.consume(t.Context())
		}
		if !s.b.restore("key0", taken) {
			t.Fatal("it was not taken back")
		}
		if !waits {
			s.consume(t.Context())
		}
		s.wantMatched(t)
	}
}

// After an abort nobody can take a value: it is not taken back.
func TestBufsTakeNothingBackAfterAnAbort(t *testing.T) {
	s := newSides(t)
	s.provide(t.Context())
	taken := s.b.take("key0")
	s.b.abort(status.New(status.Internal, "x"))
	if s.b.restore("key0", taken) {
		t.Fatal("it was taken back")
	}
	taken.Release()
	s.wantUnique(t)
}
