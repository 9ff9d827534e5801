package server

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/bootstrap"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestFallbackNoneKnowsAnotherProcessOfThePeer: what an earlier process could do says nothing of the one after it. With
// nothing in common its receives fail at once, as if it had been the first.
func TestFallbackNoneKnowsAnotherProcessOfThePeer(t *testing.T) {
	needsSharedMemory(t)
	w := newVerbsTown(t, 2)
	s := start(t, w.settings(0, func(c *Config) { c.Fallback, c.PeerTimeout, c.Provider = FallbackNone, 30*time.Second, "tcp" }), Options{})
	for step, provider := range []string{"shm", "tcp", "shm"} {
		p := start(t, w.auto(1, func(c *Config) { c.Provider = provider }), Options{})
		x := float(t, float32(step))
		if err := p.Send(int64(step), s.Task().String(), "x", x, false); err != nil {
			t.Fatal(err)
		}
		x.Release()
		switch r := wait(t, s.recv(int64(step), p.Task().String(), "x"), "the outcome"); provider {
		case "tcp":
			wantFloat(t, r, float32(step))
		default:
			wantError(t, r.err, status.FailedPrecondition, "has tcp", "has shm", "the setting fallback is none")
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestFallbackNoneBelievesNoStranger: calls in the name of a peer that is still starting say that it has no device. The
// receive waits for the peer's own word.
func TestFallbackNoneBelievesNoStranger(t *testing.T) {
	w := newVerbsTown(t, 2)
	s := start(t, w.settings(0, func(c *Config) { c.Fallback, c.PeerTimeout, c.Provider = FallbackNone, time.Minute, "tcp" }), Options{})
	conn, err := grpc.NewClient("passthrough:///"+s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stranger := bootstrap.NewExchanger(func(cluster.Task) (grpc.ClientConnInterface, error) { return conn, nil })
	forged := handshake.Introduction(handshake.Offer{Task: cluster.Task{Job: "worker", Index: 1}, Incarnation: 99, Version: handshake.Version})
	forged.Inventory = &handshake.Inventory{TLS: handshake.NoTLS}
	call := func(ctx context.Context) error {
		_, err := stranger.Exchange(ctx, s.Task(), forged)
		return err
	}
	got := s.recv(1, "/job:worker/replica:0/task:1", "x")
	for range 100 {
		if err := call(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for every := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil && call(ctx) == nil; <-every.C {
		}
	}()
	p := start(t, w.auto(1, func(c *Config) { c.Provider = "tcp" }), Options{})
	x := float(t, 3)
	if err := p.Send(1, s.Task().String(), "x", x, false); err != nil {
		t.Fatal(err)
	}
	x.Release()
	wantFloat(t, wait(t, got, "the value"), 3)
	cancel()
	<-done
}

// lateProvider has no device before up is set.
type lateProvider struct {
	verbs.Provider
	up *atomic.Bool
}

func (lateProvider) Name() string { return ProviderLibibverbs }

func (p lateProvider) Devices() ([]verbs.DeviceInfo, error) {
	if !p.up.Load() {
		return nil, &verbs.Error{Op: "list", Err: verbs.ErrUnavailable}
	}
	return p.Provider.Devices()
}

// TestFallbackNoneWaitsForThePortOfThisHost: it may come up some seconds after the process, and the peer has one.
func TestFallbackNoneWaitsForThePortOfThisHost(t *testing.T) {
	w := newKindsTown(t, 2)
	var up atomic.Bool
	at := func(i int, fabric verbs.Provider, change func(*Config)) *VerbsServer {
		o := w.options(i)
		o.Provider = nil
		row, _ := providers.Of(ProviderLibibverbs)
		row.New = func(providers.Options) verbs.Provider { return fabric }
		row.Inventory = nil
		o.rows = append(o.rows, row)
		return &VerbsServer{start(t, w.settings(i, change), o)}
	}
	a := at(0, lateProvider{w.provider(0), &up}, func(c *Config) {
		c.Fallback, c.PeerTimeout, c.Provider = FallbackNone, time.Minute, ProviderLibibverbs+","+ProviderSHM
	})
	b := at(1, namedProvider{w.provider(1), ProviderLibibverbs, nil}, func(c *Config) { c.Provider = ProviderLibibverbs })
	x := float(t, 3)
	if err := b.Send(1, a.Task().String(), "x", x, false); err != nil {
		t.Fatal(err)
	}
	x.Release()
	got := a.recv(1, b.Task().String(), "x")
	linked(t, a.Links, b.Task().String(), "without a device in common", func(l Link) bool { return l.Reason != "" })
	up.Store(true)
	wantFloat(t, wait(t, got, "the value"), 3)
}
