package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/internal/logtest"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs"
)

// auto are settings of a worker with the transport auto.
func (w *verbsTown) auto(i int, change ...func(*Config)) Config {
	return w.settings(i, append([]func(*Config){func(c *Config) { c.Transport, c.RDMA.Timeout = TransportAuto, 0 }}, change...)...)
}

// TestAutoTakesTheBestRouteThatBothHave: with the transport auto each peer is reached over shared memory, or over TCP
// where one side has no other, and over gRPC if it has no verbs. The links say which it was, and why it was gRPC.
// Nothing of it is a warning.
func TestAutoTakesTheBestRouteThatBothHave(t *testing.T) {
	needsSharedMemory(t)
	attempts(t, takesTheBestRoute)
}

func takesTheBestRoute(t *testing.T) error {
	w := newVerbsTown(t, 4)
	var log logtest.Log
	one := &VerbsServer{start(t, w.auto(0), Options{Logger: log.Logger()})}
	peers := []*VerbsServer{
		{start(t, w.auto(1), Options{})},
		{start(t, w.auto(2, func(c *Config) { c.SHM = SHMOff }), Options{})},
		{start(t, w.settings(3, func(c *Config) { c.Transport = TransportGRPC }), Options{})},
	}
	for i, want := range []Link{
		{Route: "verbs", Over: "shm"}, {Route: "verbs", Over: "tcp"},
		{Route: "grpc", Reason: "Unimplemented: /job:worker/replica:0/task:3 does not serve verbs: its setting transport is grpc, or it is not Tryst"},
	} {
		w.exchange(1, peers[i], one, float32(i))
		w.exchange(2, one, peers[i], float32(i))
		linked(t, one.Links, peers[i].Task().String(), "as it should be", func(l Link) bool {
			return l.State == LinkUp && l.Route == want.Route && l.Over == want.Over && l.Reason == want.Reason
		})
	}
	if n := one.Received(); n["verbs"] != 2 || n["grpc"] != 1 {
		return fmt.Errorf("received %v, want 2 over verbs and 1 over grpc: the first value of a peer waits for its channel", n)
	}
	if log.Count("level=WARN ")+log.Count("level=ERROR") != log.Count("without TLS") {
		t.Errorf("auto warns:\n%s", log.String())
	}
	wantMetrics(t, one, `tryst_route{peer="/job:worker/replica:0/task:3",reason="optional",transport="grpc"} 1`)
	return nil
}

// TestAutoDoesNotWaitForAPeerWithoutVerbs: the first receive from a peer that has gRPC alone, be it Tryst or TensorFlow,
// waits for no handshake.
func TestAutoDoesNotWaitForAPeerWithoutVerbs(t *testing.T) { attempts(t, doesNotWait) }

func doesNotWait(t *testing.T) error {
	w := newVerbsTown(t, 3)
	one := start(t, w.auto(0), Options{})
	plain := start(t, w.settings(1, func(c *Config) { c.Transport = TransportGRPC }), Options{})
	address, _ := w.spec.Address(w.spec.Tasks()[2])
	tensorFlowOnly(t, address)
	value := float(t, 7)
	defer value.Release()
	if err := plain.Send(1, one.Task().String(), "x", value, false); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	wantFloat(t, wait(t, one.recv(1, plain.Task().String(), "x"), "the value"), 7)
	tryst := time.Since(began)
	began = time.Now()
	got := wait(t, one.recv(1, "/job:worker/replica:0/task:2", "x"), "TensorFlow's answer")
	tensorFlow := time.Since(began)
	wantError(t, got.err, status.Unimplemented, "not implemented")
	t.Logf("the first receive: %v from Tryst, %v from TensorFlow", tryst, tensorFlow)
	const handshake = 900 * time.Millisecond // a receive waits for the first channel for a second
	if tryst > handshake || tensorFlow > handshake {
		return fmt.Errorf("the first receive took %v from Tryst, %v from TensorFlow", tryst, tensorFlow)
	}
	return nil
}

// TestAutoDoesNothingBeforeItIsNeeded: a server has registered no memory and called no peer when it has started.
func TestAutoDoesNothingBeforeItIsNeeded(t *testing.T) {
	w := newKindsTown(t, 2)
	all := func(i int) Options {
		o := w.options(i)
		o.Provider = nil
		o.rows = append(o.rows, w.kernel(i, nil))
		return o
	}
	one, two := &VerbsServer{start(t, w.auto(0), all(0))}, &VerbsServer{start(t, w.auto(1), all(1))}
	if over := one.rdma.Selections(); len(over) != 3 {
		t.Fatalf("it has %v", over)
	}
	if m := one.Memory(); m.Sending.Registered != 0 || m.Receiving.Registered != 0 || m.Slots != 0 {
		t.Errorf("it has registered %+v", m)
	}
	if l := one.Links(); len(l) != 1 || l[0].Reason != "neither side has asked for a channel" || l[0].State != LinkDown {
		t.Errorf("the links are %+v", l)
	}
	w.exchange(1, one, two, 3)
	w.up(two, one.Task())
}

// kernel is the row of libibverbs, with a device of the fabric, or with an error of its devices.
func (w *kindsTown) kernel(i int, err error) providers.Row {
	row, _ := providers.Of(ProviderLibibverbs)
	row.New = func(providers.Options) verbs.Provider { return namedProvider{w.provider(i), ProviderLibibverbs, err} }
	row.Inventory = nil
	return row
}

// TestAutoGoesWithoutWhatAHostLacks: no device is needed, none that is missing is a warning, and a device in user space
// that listens on a port of its own is not opened. A device or a provider that the settings name has to exist, not one
// whose details they have, and without the fallback some device has to.
func TestAutoGoesWithoutWhatAHostLacks(t *testing.T) {
	w := newKindsTown(t, 2)
	missing := errors.New("there is none here")
	options := func(broken ...string) Options {
		for _, name := range broken {
			w.broken[name] = missing
		}
		o := w.options(0)
		o.Provider = nil
		software, _ := providers.Of(ProviderRoCE)
		software.New = func(providers.Options) verbs.Provider {
			t.Error("RDMA in user space is opened, and nobody has named it")
			return namedProvider{w.provider(0), ProviderRoCE, missing}
		}
		o.rows = append(o.rows, w.kernel(0, missing), software)
		return o
	}
	for _, broken := range [][]string{nil, {ProviderSHM}, {ProviderSHM, ProviderTCP}} {
		var log logtest.Log
		o := options(broken...)
		o.Logger = log.Logger()
		s, err := Start(t.Context(), w.auto(0), o)
		if err != nil {
			t.Fatalf("without %v: %v", broken, err)
		}
		if n := len(s.rdma.Selections()); n != 2-len(broken) {
			t.Errorf("without %v it has %d devices", broken, n)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "level=WARN") {
			t.Errorf("without %v:\n%s", broken, log.String())
		}
	}
	for name, change := range map[string]func(*Config){
		"an index of an address": func(c *Config) { c.RDMA.GIDIndex = new(3) },
		"a port":                 func(c *Config) { c.RDMA.Port = 2 },
	} {
		var log logtest.Log
		o := options(ProviderSHM, ProviderTCP)
		o.Logger = log.Logger()
		s, err := Start(t.Context(), w.auto(0, change), o)
		if err != nil {
			t.Errorf("with %s and no device: %v", name, err)
			continue
		}
		if log.Count("there is no RDMA device for now") != 1 {
			t.Errorf("with %s and no device:\n%s", name, log.String())
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(*Config){
		"fallback none":  func(c *Config) { c.Fallback = FallbackNone },
		"a provider":     func(c *Config) { c.Provider = ProviderTCP },
		"the RDMA kind":  func(c *Config) { c.Provider = "libibverbs,tcp,shm" },
		"an RDMA device": func(c *Config) { c.RDMA.Device, c.Provider = "mlx5_0", ProviderLibibverbs },
	} {
		if _, err := Start(t.Context(), w.auto(0, change), options(ProviderSHM, ProviderTCP)); status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), missing.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAutoWithoutAnRDMADeviceThatWorks: a device that opens, and that no transport can be made over, is left out.
func TestAutoWithoutAnRDMADeviceThatWorks(t *testing.T) {
	w := newKindsTown(t, 2)
	o := w.options(0)
	row := w.kernel(0, nil)
	row.New = func(providers.Options) verbs.Provider {
		return brokenDevices{namedProvider{w.provider(0), ProviderLibibverbs, nil}}
	}
	o.Provider, o.rows = nil, append(o.rows, row)
	s := &VerbsServer{start(t, w.auto(0), o)}
	if over := s.rdma.Selections(); len(over) != 2 {
		t.Errorf("it has %v", over)
	}
	_, err := Start(t.Context(), w.auto(1, func(c *Config) { c.Provider = ProviderLibibverbs }), o)
	wantError(t, err, status.ResourceExhausted, "no locked memory is left")
}

// brokenDevices has devices over which no transport can be made.
type brokenDevices struct{ verbs.Provider }

func (p brokenDevices) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return brokenDevice{d}, err
}

type brokenDevice struct{ verbs.Device }

func (brokenDevice) AllocPD() (verbs.PD, error) {
	return nil, status.New(status.ResourceExhausted, "no locked memory is left")
}

// TestAutoUnderTLSSendsNothingInTheClear: RDMA is never encrypted, so a process with TLS opens no RDMA device that no
// setting names; values go over TCP with TLS, or within the host.
func TestAutoUnderTLSSendsNothingInTheClear(t *testing.T) {
	a := certtest.New(t)
	w := newKindsTown(t, 2)
	for i := range 2 {
		a.MakeFor(cluster.Task{Job: "worker", Index: i}.String(), certificateOf(i), certtest.Loopback)
	}
	for name, secure := range map[string]bool{"without": false, "with TLS": true} {
		t.Run(name, func(t *testing.T) {
			var both [2]*VerbsServer
			for i := range both {
				o := w.options(i)
				o.Provider, o.rows, o.Allocator = nil, []providers.Row{w.kernel(i, nil)}, tensortest.NewAllocator(t)
				tcp, _ := providers.Of(ProviderTCP)
				o.rows = append(o.rows, tcp)
				both[i] = &VerbsServer{start(t, w.auto(i, func(c *Config) {
					if secure {
						c.TLS, c.TLS.RequireClientCert = TLS(a.Pair(certificateOf(i))), true
					}
				}), o)}
			}
			want := "rdma"
			if secure {
				want = "tcp"
			}
			w.exchange(1, both[0], both[1], 1)
			linked(t, both[1].Links, both[0].Task().String(), "over "+want, func(l Link) bool { return l.Over == want })
			if rdma := slices.ContainsFunc(both[0].rdma.Selections(), func(s Selection) bool { return s.Name() == ProviderLibibverbs }); rdma == secure {
				t.Errorf("has an RDMA device: %v", rdma)
			}
			for _, s := range both {
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAutoOfAClient: a client pulls over the best route that the server has, too, and its link says what it was.
func TestAutoOfAClient(t *testing.T) {
	for server, want := range map[string]Link{
		TransportAuto: {Route: "verbs", Over: "tcp"}, TransportVerbs: {Route: "verbs", Over: "tcp"},
		TransportGRPC: {Route: "grpc", Reason: "Unimplemented: /job:worker/replica:0/task:0 does not serve verbs: its setting transport is grpc, or it is not Tryst"},
	} {
		pulls := func(t *testing.T) error {
			s := start(t, settings(func(c *Config) { c.Transport, c.SHM = server, SHMOff }), Options{})
			n := publishSome(t, s)
			cl := dial(t, Config{Transport: TransportAuto}, s.Addr().String())
			pullAll(t, cl)
			if got := cl.Received(); got[want.Route] != n || len(got) != 1 {
				return fmt.Errorf("received %v, want %d over %s", got, n, want.Route)
			}
			if l := cl.Links(); len(l) != 1 || l[0].Route != want.Route || l[0].Over != want.Over || l[0].Reason != want.Reason {
				return fmt.Errorf("the links are %+v", l)
			}
			return nil
		}
		t.Run(server, func(t *testing.T) { attempts(t, pulls) })
	}
}

// TestAutoAllocatesBeyondRegisteredMemory: nobody has asked for registered memory, so its limit is none for the tensors of
// a program, and larger ones arrive over gRPC.
func TestAutoAllocatesBeyondRegisteredMemory(t *testing.T) {
	w := newVerbsTown(t, 2)
	change := func(c *Config) { c.RDMA.Arena, c.RDMA.ArenaLimit = 1<<20, 4<<20 }
	one, two := start(t, w.auto(0, change), Options{}), start(t, w.auto(1, change), Options{})
	const size = 5 << 20
	for _, alloc := range []tensor.Allocator{one.Allocator(), one.SendAllocator()} {
		x, err := tensor.Allocate(alloc, tensor.Uint8, tensortest.Shape(t, size))
		if err != nil {
			t.Fatal(err)
		}
		if err := one.Send(1, two.Task().String(), "x", x, false); err != nil {
			t.Fatal(err)
		}
		x.Release()
		got := wait(t, two.recv(1, one.Task().String(), "x"), "the value")
		if got.err != nil || got.v.Tensor.Size() != size {
			t.Fatalf("%+v", got)
		}
		got.v.Tensor.Release()
	}
}
