package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/logtest"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// nic is the device of a host.
func (w *verbsTown) nic(i int) *verbstest.NIC {
	return w.fabric.Host(fmt.Sprintf("host%d", i)).NIC("mem0")
}

// startLogging is start with a log and a memory allocator of the test.
func (w *verbsTown) startLogging(i int, log *logtest.Log, change ...func(*Config)) *Server {
	w.t.Helper()
	s, err := Start(w.t.Context(), w.settings(i, change...), Options{Provider: w.provider(i), Allocator: tensortest.NewAllocator(w.t), Logger: log.Logger()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			w.t.Errorf("Close: %v", err)
		}
	})
	return s
}

// until waits until ok is true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); !ok(); <-ticks.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not so after %v", what, soon)
		}
	}
}

// TestDeviceGoesAndComesBack: when the device of a server is removed, tensors go over gRPC
// at once, also those that it allocates then; those in memory of the device stay readable.
// When the device is back, verbs carries tensors again.
func TestDeviceGoesAndComesBack(t *testing.T) {
	w := newVerbsTown(t, 2)
	log := new(logtest.Log)
	a, b := &VerbsServer{w.startLogging(0, log)}, w.start(1)
	w.up(a, b.Task())
	w.exchange(1, a, b, 1)
	allocator := a.SendAllocator()
	before, err := allocator.Allocate(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	before.Bytes()[1<<19] = 7

	w.nic(0).Remove()
	until(t, "the device is known to be gone", func() bool {
		_, ok := a.Verbs()
		return !ok && a.rdma.Finder.Lost() == 1
	})
	wantMetrics(t, a, "tryst_verbs_device_up 0", "tryst_verbs_devices_lost_total 1")
	if before.Bytes()[1<<19] != 7 {
		t.Error("memory of the device has lost its content")
	}
	before.Release()
	after, err := allocator.Allocate(1 << 20)
	if err != nil {
		t.Fatalf("without the device: %v", err)
	}
	after.Release()
	w.exchange(2, a, b, 2)
	w.exchange(3, b, a, 3)
	if n := a.Memory().Sending.Registered; n != 0 {
		t.Errorf("%d bytes are registered without a device", n)
	}

	w.nic(0).Insert()
	w.up(a, b.Task())
	w.up(b, a.Task())
	w.exchange(4, a, b, 4)
	w.exchange(5, b, a, 5)
	wantMetrics(t, a, "tryst_verbs_device_up 1", "tryst_verbs_devices_lost_total 1",
		`tryst_received_tensors_total{peer="/job:worker/replica:0/task:1",transport="verbs"} 1`)
	if n := a.Memory().Sending.Registered; n == 0 {
		t.Error("nothing is registered with the device that is back")
	}
	for words, want := range map[string]int{"the RDMA device is lost": 1, "msg=verbs ": 2} {
		if n := log.Count(words); n != want {
			t.Errorf("%d log lines have %q, want %d:\n%s", n, words, want, log.String())
		}
	}
}

// TestPullsGoOnWithoutTheDevice: pulls of a publication work while the device of the
// server, or of the client, is gone.
func TestPullsGoOnWithoutTheDevice(t *testing.T) {
	for _, gone := range []int{0, 1} {
		t.Run([]string{"server", "client"}[gone], func(t *testing.T) {
			w := newVerbsTown(t, 1)
			v := w.start(0)
			shape, err := tensor.NewShape(64 << 10)
			if err != nil {
				t.Fatal(err)
			}
			x, err := tensor.Allocate(v.SendAllocator(), tensor.Uint8, shape)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.Catalog().PublishTensors(t.Context(), "p", x.Named("x")); err != nil {
				t.Fatal(err)
			}
			x.Release()
			cfg := w.settings(0).ForClient()
			cfg.Cluster = nil
			cl, err := Dial(t.Context(), cfg, v.Addr().String(), Options{Provider: w.provider(1), Allocator: tensortest.NewAllocator(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close(context.Background())
			pull := func() {
				t.Helper()
				for x, err := range cl.Puller().Pull(t.Context(), checkpoint.PullRequest{Publication: "p"}) {
					if err != nil {
						t.Fatal(err)
					}
					x.Release()
				}
			}
			pull()
			w.nic(gone).Remove()
			for range 5 {
				pull()
			}
			verbsBefore := cl.Received()["verbs"]
			w.nic(gone).Insert()
			until(t, "pulls go over verbs again", func() bool {
				pull()
				return cl.Received()["verbs"] > verbsBefore
			})
		})
	}
}

// TestDeviceThatComesAfterTheStart: a server without a device starts, and takes one when it
// comes.
func TestDeviceThatComesAfterTheStart(t *testing.T) {
	w := newVerbsTown(t, 2)
	w.nic(0).Remove()
	log := new(logtest.Log)
	a := &VerbsServer{w.startLogging(0, log)}
	b := w.start(1)
	if _, ok := a.Verbs(); ok {
		t.Fatal("it says that it has a device")
	}
	w.exchange(1, a, b, 1)
	w.exchange(2, b, a, 2)
	w.nic(0).Insert()
	w.up(a, b.Task())
	w.up(b, a.Task())
	w.exchange(3, b, a, 3)
	if n := log.Count("verbs cannot be used"); n != 1 {
		t.Errorf("%d lines say that there is no device, want 1", n)
	}
}

// TestNamedDeviceWithoutALink: a device that the settings name and whose link is down does not
// stop the start, and is used when the link is up.
func TestNamedDeviceWithoutALink(t *testing.T) {
	w := newVerbsTown(t, 2)
	w.nic(0).PortDown(1)
	named := func(c *Config) { c.RDMA.Device = "mem0" }
	alone := w.settings(0, named, func(c *Config) { c.Fallback = "none" })
	if _, err := Start(t.Context(), alone, Options{Provider: w.provider(0)}); err == nil || !strings.Contains(err.Error(), "DOWN") {
		t.Fatalf("without a fallback: %v, want that the port is down", err)
	}
	a := &VerbsServer{w.startLogging(0, new(logtest.Log), named)}
	b := w.start(1)
	w.exchange(1, a, b, 1)
	w.nic(0).PortUp(1)
	w.up(a, b.Task())
}

// TestAddressThatMovesToAnotherDevice: when the address of a server moves, for example to a
// bridge, verbs follows it.
func TestAddressThatMovesToAnotherDevice(t *testing.T) {
	w := newVerbsTown(t, 2, verbstest.DeviceOptions{}, verbstest.DeviceOptions{})
	a, b := w.start(0), w.start(1)
	w.up(a, b.Task())
	was := a.Choice()
	other := w.fabric.Host("host0").NIC("mem1")
	w.nic(0).SetGID(1, was.GIDIndex, verbs.GID{})
	other.SetGID(1, was.GIDIndex, was.GID)
	until(t, "the server uses the other device", func() bool {
		_, ok := a.Verbs()
		return ok && a.Choice().Device == "mem1" && a.Choice().GID == was.GID
	})
	w.up(a, b.Task())
	w.exchange(1, a, b, 1)
}

// TestCloseWhileTheDeviceGoes: Close at any moment of the removal and the return ends all.
func TestCloseWhileTheDeviceGoes(t *testing.T) {
	for i := range 20 {
		w := newVerbsTown(t, 2)
		a, b := w.start(0), w.start(1)
		w.up(a, b.Task())
		w.nic(0).Remove()
		if i%2 == 1 {
			w.nic(0).Insert()
		}
		if i%4 > 1 {
			until(t, "the device is gone", func() bool { return a.rdma.Finder.Lost() == 1 })
		}
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.fabric.Counts(); n != (verbs.Counts{}) {
			t.Fatalf("open on the fabric: %+v", n)
		}
	}
}
