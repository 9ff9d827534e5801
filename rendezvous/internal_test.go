package rendezvous

import (
	"context"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
)

// everything publishes one tensor under every key.
type everything struct{ t *tensor.Tensor }

func (everything) Publishes(Key) bool { return true }

func (s everything) TakePublished(Key) (Value, bool) { return Value{Tensor: s.t.Retain()}, true }

func (s everything) RecvPublished(_ context.Context, _ Key, done DoneFunc) bool {
	done(Value{Tensor: s.t.Retain()}, Args{}, nil)
	return true
}

// What is published touches no table (ARCHITECTURE.md section 3.1): it is not restored to one,
// where it would stay for as long as the step lives, and be taken for what was sent later.
func TestPublishedIsNotRestored(t *testing.T) {
	released := make(chan struct{})
	v, err := tensor.New(tensor.Uint8, tensor.Vector(1), tensor.NewBuffer([]byte{1}, func() { close(released) }))
	if err != nil {
		t.Fatal(err)
	}
	m := NewManager(ManagerOptions{})
	defer m.Close()
	s := everything{v}
	m.AddPublisher(s)
	m.Find(7) // the program uses this step
	k, err := ParseKey(CreateKey("/job:p/replica:0/task:0/device:CPU:0", 1, "/job:c/replica:0/task:0/device:CPU:0", "publication:x@1/t", FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.RecvLocal(t.Context(), 7, k)
	if err != nil {
		t.Fatal(err)
	}
	// The requester has cancelled: the response cache puts the value back.
	if m.Restore(7, k, got) {
		t.Error("a published tensor was put into the table of a step")
	} else {
		got.Tensor.Release()
	}
	if !m.Republishes(k) {
		t.Error("a published tensor counts as one that is received once")
	}
	m.RemovePublisher(s)
	if m.Republishes(k) {
		t.Error("nobody publishes it any more, and it counts as published")
	}
	v.Release()
	select {
	case <-released:
	case <-time.After(time.Minute):
		t.Error("nobody publishes it any more, and it is not released")
	}
}

// once is a Publisher whose values are received once.
type once struct {
	everything
	back []Value
}

func (o *once) RestorePublished(_ Key, v Value) bool {
	o.back = append(o.back, v)
	return true
}

// TestWhatASourceGivesOnceIsRestoredToIt: its value is not put into the table of a step, and cannot be had
// again otherwise.
func TestWhatASourceGivesOnceIsRestoredToIt(t *testing.T) {
	v, err := tensor.New(tensor.Uint8, tensor.Vector(1), tensor.NewBuffer([]byte{1}, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	s := &once{everything: everything{v}}
	m := NewManager(ManagerOptions{Publishers: []Publisher{s}})
	defer m.Close()
	k, err := ParseKey(CreateKey("/job:p/replica:0/task:0/device:CPU:0", 1, "/job:c/replica:0/task:0/device:CPU:0", "buffer:1:x", FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	if !m.Restore(7, k, Value{Tensor: v}) || len(s.back) != 1 || s.back[0].Tensor != v {
		t.Errorf("the publisher has got %v back", s.back)
	}
	if m.Republishes(k) {
		t.Error("it counts as one that each receive gets")
	}
}

// Two callers initialise a step. Who has been told that it is initialised can send.
func TestInitializedTwice(t *testing.T) {
	k, err := ParseKey(CreateKey("/job:p/replica:0/task:0/device:CPU:0", 1, "/job:c/replica:0/task:0/device:CPU:0", "x", FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	other, err := ParseKey(CreateKey("/job:q/replica:0/task:0/device:CPU:0", 1, "/job:c/replica:0/task:0/device:CPU:0", "x", FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	b := NewBaseRemote(1, nil)
	defer b.Close()
	s := &Session{Task: k.Src().Task}
	b.RecvLocalAsync(context.Background(), other, func(Value, Args, error) { // InvalidArgument, during Initialize
		if err := b.Initialize(s); err != nil { // as another goroutine's would
			t.Error(err)
		}
		v, err := tensor.New(tensor.Uint8, tensor.Vector(1), tensor.NewBuffer([]byte{1}, nil))
		if err != nil {
			t.Error(err)
			return
		}
		defer v.Release()
		if err := b.Send(k, Args{}, v, false); err != nil {
			t.Errorf("Send after Initialize has returned nil: %v", err)
		}
	})
	if err := b.Initialize(s); err != nil {
		t.Error(err)
	}
}
