package grpctransport

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
)

// attempts repeats attempts as gRPC does, and returns how many begin within a time.
func attempts(p *pace, within time.Duration) (n int) {
	var own turn
	for end := time.Now().Add(within); time.Now().Before(end); n++ {
		if p.await(context.Background(), &own) != nil {
			return -1
		}
		time.Sleep(reconnectMax) // virtual time
	}
	return n
}

// TestAttemptsThatNoCallNeedsAreRare: a peer that is gone is tried again and again only while calls need it.
func TestAttemptsThatNoCallNeedsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		p.begin()
		if n, all := attempts(&p, time.Minute), int(time.Minute/reconnectMax); n != all {
			t.Errorf("a call is under way, and there are %d attempts in a minute, want %d", n, all)
		}
		p.end()
		if n, most := attempts(&p, time.Minute), int(neededFor/reconnectMax+time.Minute/unneededMax)+4; n > most || n < int(time.Minute/unneededMax)/2 {
			t.Errorf("no call is under way, and there are %d attempts in a minute, want at most %d", n, most)
		}
	})
}

// TestEachConnectionHasItsTurn: of several connections to a peer that is gone each is tried again, as often as one alone.
func TestEachConnectionHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				var own turn
				for range 100 {
					began := time.Now()
					if err := p.await(t.Context(), &own); err != nil || time.Since(began) > unneededMax {
						t.Errorf("an attempt has waited for %v: %v", time.Since(began), err)
						return
					}
					time.Sleep(reconnectMax) // virtual time
				}
			})
		}
		all.Wait()
	})
}

// TestACallEndsThePauseOfAnAttempt at once. So does the end of the connection.
func TestACallEndsThePauseOfAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, name := range []string{"a call", "the end"} {
			end := map[string]func(){"a call": func() { p.begin() }, "the end": cancel}[name]
			began, done := time.Now(), make(chan error)
			go func() { done <- p.await(ctx, new(turn)) }()
			synctest.Wait()
			if p.waiting.Load() != 1 {
				t.Errorf("%s: no attempt waits", name)
			}
			end()
			if err := <-done; errors.Is(err, context.Canceled) != (name == "the end") || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			if name == "a call" {
				p.end()
				time.Sleep(neededFor) // virtual time
			}
		}
	})
}

// TestAPeerThatComesBackIsReachedByACall: nothing has needed it for a while, so the attempt of gRPC waits, and the peer
// counts as not being connected to. A call ends that pause.
func TestAPeerThatComesBackIsReachedByACall(t *testing.T) {
	c := new(testCluster)
	server := c.start(t, 0, nodeOptions{listener: listenAgain(t)})
	server.close()
	ch, err := dial(server.address, DialOptions{}, newFramePool(0), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ch.close() //nolint:errcheck // a test
	hello := func() error {
		return ch.Invoke(t.Context(), trystgrpc.Peers_Hello_FullMethodName, new(trystpb.HelloRequest), new(trystpb.HelloResponse))
	}
	if err := hello(); err == nil {
		t.Fatal("nobody answers, and a call succeeds")
	}
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for ; ch.pace.waiting.Load() == 0; <-ticks.C {
		ch.pace.used.Store(0)
	}
	if s := ch.state(); s.Connecting || s.Err == nil {
		t.Errorf("the attempt waits, and the state is %+v", s)
	}
	listener, err := net.Listen("tcp", server.address)
	if err != nil {
		t.Fatal(err)
	}
	back := c.start(t, 0, nodeOptions{listener: listener})
	if err := hello(); err != nil {
		t.Error("the first call: ", err)
	}
	if s := ch.state(); !s.Up {
		t.Errorf("%v answers, and the state is %+v", back.address, s)
	}
}
