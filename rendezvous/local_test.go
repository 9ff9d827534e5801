package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

var errBoom = status.New(status.Internal, "boom")

// kinds are the rendezvous that keep R4 to R16 alike.
func kinds(t *testing.T, test func(t *testing.T, r rendezvous.Rendezvous, c *tensors)) {
	for name, make := range map[string]func(t *testing.T) interface {
		rendezvous.Rendezvous
		Close()
	}{
		"Local": func(*testing.T) interface {
			rendezvous.Rendezvous
			Close()
		} {
			return rendezvous.NewLocal()
		},
		"IntraProcess": func(*testing.T) interface {
			rendezvous.Rendezvous
			Close()
		} {
			return rendezvous.NewIntraProcess(nil)
		},
		"BaseRemote": func(t *testing.T) interface {
			rendezvous.Rendezvous
			Close()
		} {
			b := rendezvous.NewBaseRemote(1, nil)
			if err := b.Initialize(session(t)); err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := counted(t)
			r := make(t)
			defer r.Close()
			test(t, r, c)
		})
	}
}

func TestR4SendRecv(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		c.mustSend(t, r, key(t, "a"), 1)
		mustRecv(t, r, key(t, "a"), 1)
		c.mustSend(t, r, key(t, "a"), 2)
		recvAsync(t.Context(), r, key(t, "a")).mustGet(t, 2)
	})
}

// The waiting receive's callback runs on the sender's goroutine: it has run
// when Send returns.
func TestR5RecvSend(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		p := recvAsync(t.Context(), r, key(t, "a"))
		if !p.waits() {
			t.Fatal("done ran before a value came")
		}
		c.mustSend(t, r, key(t, "a"), 1)
		if p.waits() {
			t.Fatal("done did not run before Send returned")
		}
		p.mustGet(t, 1)

		var wg sync.WaitGroup
		wg.Go(func() { mustRecv(t, r, key(t, "b"), 2) })
		c.mustSend(t, r, key(t, "b"), 2)
		wg.Wait()
	})
}

func TestR6PingPong(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		const rounds = 1000
		ping, pong := key(t, "ping"), key(t, "pong")
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range rounds {
				mustRecv(t, r, ping, i)
				c.mustSend(t, r, pong, -i)
			}
		})
		for i := range rounds {
			c.mustSend(t, r, ping, i)
			mustRecv(t, r, pong, -i)
		}
		wg.Wait()
	})
}

func TestR7CancelBeforeRecv(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.mustSend(t, r, key(t, "a"), 1)
		o := recvAsync(ctx, r, key(t, "a")).wait(t)
		mustBeDerived(t, o.err, status.Cancelled, "RecvAsync of edge ")
		_, err := r.Recv(ctx, key(t, "a"), noArgs)
		mustBeDerived(t, err, status.Cancelled, "Recv of edge ")
		if !errors.Is(err, context.Canceled) {
			t.Error("the error is not context.Canceled")
		}
		mustRecv(t, r, key(t, "a"), 1) // nothing was consumed
	})
}

func TestR8CancelAfterRecv(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		p := recvAsync(ctx, r, key(t, "a"))
		var blocked error
		var wg sync.WaitGroup
		wg.Go(func() { _, blocked = r.Recv(ctx, key(t, "b"), noArgs) })
		cancel()
		mustBeDerived(t, p.wait(t).err, status.Cancelled, "RecvAsync of edge ")
		wg.Wait()
		mustBeDerived(t, blocked, status.Cancelled, "Recv of edge ")

		// Both left their queues: the next receives get the values.
		c.mustSend(t, r, key(t, "a"), 1)
		c.mustSend(t, r, key(t, "b"), 2)
		mustRecv(t, r, key(t, "a"), 1)
		mustRecv(t, r, key(t, "b"), 2)
	})
}

func TestDeadlineIsDeadlineExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kindsInBubble(t, func(r rendezvous.Rendezvous) {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := recvAsync(ctx, r, key(t, "a"))
			_, err := r.Recv(ctx, key(t, "a"), noArgs)
			mustBe(t, err, status.DeadlineExceeded, key(t, "a").Describe())
			mustBe(t, p.wait(t).err, status.DeadlineExceeded, key(t, "a").Describe())
			if time.Since(start) != time.Minute {
				t.Error("ended after", time.Since(start))
			}
		})
	})
}

// kindsInBubble is kinds for tests that cannot have subtests.
func kindsInBubble(t *testing.T, test func(r rendezvous.Rendezvous)) {
	l, p := rendezvous.NewLocal(), rendezvous.NewIntraProcess(nil)
	defer l.Close()
	defer p.Close()
	test(l)
	test(p)
}

func TestR9CancelEmptyQueue(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		p := recvAsync(ctx, r, key(t, "a"))
		c.mustSend(t, r, key(t, "a"), 1)
		cancel()
		p.mustGet(t, 1)
		c.mustSend(t, r, key(t, "a"), 2)
		mustRecv(t, r, key(t, "a"), 2)
	})
}

func TestR10CancelMultiple(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		var p [4]*pending
		for i := range p {
			with := t.Context()
			if i == 1 || i == 2 {
				with = ctx
			}
			p[i] = recvAsync(with, r, key(t, "a"))
		}
		cancel()
		p[1].mustFail(t, context.Canceled)
		p[2].mustFail(t, context.Canceled)
		c.mustSend(t, r, key(t, "a"), 1)
		c.mustSend(t, r, key(t, "a"), 2)
		p[0].mustGet(t, 1)
		p[3].mustGet(t, 2)
	})
}

func TestR11RandomSendRecv(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		const n = 100
		var wg sync.WaitGroup
		for i := range n {
			k := key(t, fmt.Sprint("k", i))
			wg.Go(func() {
				time.Sleep(rand.N(2 * time.Millisecond))
				c.mustSend(t, r, k, i)
			})
			wg.Go(func() {
				time.Sleep(rand.N(2 * time.Millisecond))
				mustRecv(t, r, k, i)
			})
		}
		wg.Wait()
	})
}

func TestR12MultiSends(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		for i := range 100 {
			c.mustSend(t, r, key(t, "a"), i)
		}
		for i := range 100 {
			mustRecv(t, r, key(t, "a"), i)
		}
		var p [100]*pending
		for i := range p {
			p[i] = recvAsync(t.Context(), r, key(t, "a"))
		}
		for i := range p {
			c.mustSend(t, r, key(t, "a"), i)
		}
		for i := range p {
			p[i].mustGet(t, i)
		}
	})
}

func TestR13RecvAbort(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := recvAsync(context.Background(), r, key(t, "a"))
		q := recvAsync(ctx, r, key(t, "a"))
		r.Abort(errBoom)
		p.mustFail(t, errBoom)
		q.mustFail(t, errBoom)
	})
}

func TestR14RecvSleepAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kindsInBubble(t, func(r rendezvous.Rendezvous) {
			time.AfterFunc(time.Second, func() { r.Abort(errBoom) })
			start := time.Now()
			if _, err := r.Recv(t.Context(), key(t, "a"), noArgs); !errors.Is(err, errBoom) {
				t.Errorf("got %v", err)
			}
			if time.Since(start) != time.Second {
				t.Error("ended after", time.Since(start))
			}
		})
	})
}

func TestR15AbortThenRecvOrSend(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		c.mustSend(t, r, key(t, "a"), 1) // dropped by the abort
		r.Abort(errBoom)
		r.Abort(status.New(status.DataLoss, "the second error does not replace the first"))
		if err := c.send(r, key(t, "a"), 2); !errors.Is(err, errBoom) {
			t.Errorf("Send: %v", err)
		}
		if _, err := r.Recv(t.Context(), key(t, "a"), noArgs); !errors.Is(err, errBoom) {
			t.Errorf("Recv: %v", err)
		}
		recvAsync(t.Context(), r, key(t, "b")).mustFail(t, errBoom)
	})
}

func TestR16TransferDeviceContext(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		sent := rendezvous.Args{Device: "sender's stream"}
		mine := rendezvous.Args{Device: "receiver's stream"}
		ran := 0
		check := func(v rendezvous.Value, args rendezvous.Args, err error) {
			if ran++; err != nil {
				t.Fatal(err)
			}
			if v.SendArgs != sent || args != mine {
				t.Errorf("got the sender's %v and the receiver's %v", v.SendArgs, args)
			}
			take(v)
		}
		send := func() {
			x := c.make(1)
			defer x.Release()
			if err := r.Send(key(t, "a"), sent, x, false); err != nil {
				t.Fatal(err)
			}
		}
		send()
		r.RecvAsync(t.Context(), key(t, "a"), mine, check)
		r.RecvAsync(t.Context(), key(t, "a"), mine, check)
		send()
		if ran != 2 {
			t.Errorf("done ran %d times, want 2", ran)
		}
		send()
		v, err := r.Recv(t.Context(), key(t, "a"), mine)
		if err != nil || v.SendArgs != sent {
			t.Errorf("Recv: %v, %v", v.SendArgs, err)
		}
		take(v)
	})
}

func TestDeadValues(t *testing.T) {
	kinds(t, func(t *testing.T, r rendezvous.Rendezvous, c *tensors) {
		if err := r.Send(key(t, "a"), noArgs, nil, true); err != nil {
			t.Fatal(err)
		}
		v, err := r.Recv(t.Context(), key(t, "a"), noArgs)
		if err != nil || !v.Dead {
			t.Fatalf("dead %v, %v", v.Dead, err)
		}
		if v.Tensor.DType() != tensor.Float32 || v.Tensor.Shape().String() != "[0]" {
			t.Errorf("a dead value without a tensor gave %v", v.Tensor)
		}
		v.Tensor.Release()

		x := c.make(5)
		defer x.Release()
		if err := r.Send(key(t, "a"), noArgs, x, true); err != nil {
			t.Fatal(err)
		}
		if o := recvAsync(t.Context(), r, key(t, "a")).wait(t); !o.dead || o.n != 5 {
			t.Errorf("got %v, dead %v", o, o.dead)
		}
		mustBe(t, r.Send(key(t, "a"), noArgs, nil, false), status.InvalidArgument, "no tensor")
	})
}
