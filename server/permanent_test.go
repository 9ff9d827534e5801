package server

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	"github.com/tryst-rdma/tryst/status"
)

// tensorFlowOnly serves WorkerService as a TensorFlow server does that has nothing to say: no Peers, no VerbsService.
func tensorFlowOnly(t *testing.T, address string) {
	t.Helper()
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tensorflowgrpc.RegisterWorkerServiceServer(g, tensorflowgrpc.UnimplementedWorkerServiceServer{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(lis)
	}()
	t.Cleanup(func() { g.Stop(); <-served })
}

// TestRequiredVerbsFailAtOnceAtAPeerWithoutThem: a receive that may take nothing but verbs does not wait for
// peer-timeout at a peer that has gRPC alone, be it Tryst or TensorFlow, with one device here or several. The
// error says who, why and what to do.
func TestRequiredVerbsFailAtOnceAtAPeerWithoutThem(t *testing.T) {
	for name, provider := range map[string]string{"a device in memory": "", "fixed devices": "tcp,shm"} {
		t.Run(name, func(t *testing.T) {
			w := newVerbsTown(t, 3)
			c, o := w.settings(0, func(c *Config) { c.Fallback, c.PeerTimeout, c.Provider = "none", time.Hour, provider }), Options{}
			if provider == "" {
				o.Provider = w.provider(0)
			}
			s := start(t, c, o)
			start(t, w.settings(1, func(c *Config) { c.Transport = "grpc" }), Options{})
			address, _ := w.spec.Address(w.spec.Tasks()[2])
			tensorFlowOnly(t, address)
			for _, peer := range []string{"/job:worker/replica:0/task:1", "/job:worker/replica:0/task:2"} {
				got := wait(t, s.recv(1, peer, "x"), peer)
				wantError(t, got.err, status.FailedPrecondition, peer+" does not serve verbs", "start it with the setting transport auto or verbs", "the setting fallback is none")
			}
		})
	}
}

// TestRequiredVerbsAreThoseOfTheProcessThatIsThere: that a peer has served no verbs refuses nothing once a process with them
// has taken its place, and that it has served them lets nothing wait once a process without them has.
func TestRequiredVerbsAreThoseOfTheProcessThatIsThere(t *testing.T) {
	for name, provider := range map[string]string{"a device in memory": "", "fixed devices": "tcp"} {
		t.Run(name, func(t *testing.T) {
			w := newVerbsTown(t, 2)
			at := func(i int, change func(*Config)) *Server {
				c, o := w.settings(i, func(c *Config) { c.PeerTimeout, c.Provider = time.Hour, provider }, change), Options{}
				if provider == "" && c.Transport != TransportGRPC {
					o.Provider = w.provider(i)
				}
				return start(t, c, o)
			}
			plain := func(c *Config) { c.Transport, c.Provider = TransportGRPC, "" }
			lazy := func(c *Config) { c.Transport = TransportAuto } // it does not call s
			s := at(0, func(c *Config) { c.Fallback = FallbackNone })
			const peer = "/job:worker/replica:0/task:1"
			for step, serves := range []bool{false, true, false} {
				p := at(1, map[bool]func(*Config){true: lazy, false: plain}[serves])
				x := float(t, float32(step))
				if err := p.Send(int64(step), s.Task().String(), "x", x, false); err != nil {
					t.Fatal(err)
				}
				x.Release()
				got := wait(t, s.recv(int64(step), peer, "x"), "the outcome")
				if serves {
					wantFloat(t, got, float32(step))
				} else {
					wantError(t, got.err, status.FailedPrecondition, peer+" does not serve verbs")
				}
				if err := p.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
