package rendezvous_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// TestArrivalOfALocalValue: a value of this process says so, with its size.
func TestArrivalOfALocalValue(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		x := c.make(1)
		defer x.Release()
		want := rendezvous.Arrival{Transport: rendezvous.TransportLocal, Bytes: x.Size(), Attempts: 1}
		for _, args := range []rendezvous.Args{noArgs, {Device: "stream 3"}} {
			if err := r.Send(key(t, "a"), args, x, false); err != nil {
				t.Fatal(err)
			}
			v, err := r.Recv(t.Context(), key(t, "a"), noArgs)
			if err != nil {
				t.Fatal(err)
			}
			if got := v.Arrival(); got != want {
				t.Errorf("sent with %v: got %+v, want %+v", args, got, want)
			}
			v.Tensor.Release()
		}
	})
}

// TestArrivalOfAValueThatIsSentOn: a value that has come over a network, and is sent within this
// process, has come over no network at its receiver.
func TestArrivalOfAValueThatIsSentOn(t *testing.T) {
	c := counted(t)
	l := rendezvous.NewLocal()
	defer l.Close()
	x := c.make(1)
	defer x.Release()
	came := rendezvous.Arrival{Transport: "verbs", Device: "mlx5_0", Bytes: 8, Duration: time.Second, Attempts: 2}
	first := rendezvous.Value{Tensor: x, SendArgs: came.NewArgs()}
	if got := first.Arrival(); got != came {
		t.Errorf("got %+v, want %+v", got, came)
	}
	if err := l.Send(key(t, "a"), first.SendArgs, first.Tensor, false); err != nil {
		t.Fatal(err)
	}
	v, err := l.Recv(context.Background(), key(t, "a"), noArgs)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Tensor.Release()
	if got := v.Arrival(); got.Transport != rendezvous.TransportLocal || got.Device != "" || got.Attempts != 1 {
		t.Errorf("got %+v, want a local one", got)
	}
	if v.SendArgs != noArgs {
		t.Errorf("the receiver gets %v, want no device", v.SendArgs)
	}
}

// TestValueHasFourWords: a fifth word makes a local Send and Recv slower.
func TestValueHasFourWords(t *testing.T) {
	if n := reflect.TypeFor[rendezvous.Value]().Size() / reflect.TypeFor[uintptr]().Size(); n != 4 {
		t.Errorf("a Value has %d words", n)
	}
}
