package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// groupOf enters all servers into a group.
func groupOf(t *testing.T, key int32, servers []*Server) []*collective.Group {
	t.Helper()
	groups := make([]*collective.Group, len(servers))
	errs := together(len(servers), func(i int) (err error) {
		groups[i], err = servers[i].collective.NewGroup(t.Context(), collective.GroupOptions{Key: key, Size: len(servers)})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return groups
}

// together runs f for each number at once.
func together(n int, f func(int) error) []error {
	errs := make([]error, n)
	var w sync.WaitGroup
	for i := range n {
		w.Go(func() { errs[i] = f(i) })
	}
	w.Wait()
	return errs
}

// TestCollectivesOverEveryRoute: four servers reduce, gather and broadcast over gRPC, RoCEv2, TCP and
// shared memory, small tensors and large ones.
func TestCollectivesOverEveryRoute(t *testing.T) {
	for _, route := range []string{"grpc", "roce", "tcp", "shm"} {
		t.Run(route, func(t *testing.T) {
			switch route {
			case "roce":
				needsLoopback(t, "127.0.0.1")
			case "shm":
				needsSharedMemory(t)
			}
			w := newVerbsTown(t, 4)
			servers := make([]*Server, 4)
			for i := range servers {
				if route == "grpc" {
					servers[i] = start(t, w.settings(i, func(c *Config) {
						c.Transport, c.CollectiveLeader = "grpc", "/job:worker/task:3"
					}), Options{})
				} else {
					servers[i] = startRoute(t, w.settings(i, func(c *Config) { c.Provider, c.RDMA.Timeout, c.Fallback = route, 0, "none" })).Server
				}
			}
			groups := groupOf(t, 1, servers)
			for _, elements := range []int64{1, 1000, 1 << 20} {
				errs := together(4, func(i int) error { return collectiveRound(t, servers[i], groups[i], elements) })
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range servers {
				got := s.Received()
				if carried := "verbs"; route != "grpc" && (got[carried] == 0 || got["grpc"] != 0) || route == "grpc" && got["grpc"] == 0 {
					t.Errorf("received %v over %s", got, route)
				}
			}
		})
	}
}

// collectiveRound runs each operation once and checks its result.
func collectiveRound(t *testing.T, s *Server, g *collective.Group, elements int64) error {
	in, err := tensor.Make[float32](s.allocator, elements)
	if err != nil {
		return err
	}
	defer in.Release()
	values, err := tensor.Values[float32](in)
	if err != nil {
		return err
	}
	for i := range values {
		values[i] = float32(i%100 + 1000*g.Rank())
	}
	sum, err := g.AllReduce(t.Context(), in, collective.Add)
	if err != nil {
		return err
	}
	defer sum.Release()
	all, err := g.Gather(t.Context(), in)
	if err != nil {
		return err
	}
	defer all.Release()
	if err := in.Buffer().WaitUnique(t.Context()); err != nil { // peers have what they read of it
		return err
	}
	if err := g.Broadcast(t.Context(), 2, in); err != nil {
		return err
	}
	sums, _ := tensor.Values[float32](sum)
	gathered, _ := tensor.Values[float32](all)
	for i := range values {
		at := i % 100
		if want := float32(4*at + 6000); sums[i] != want {
			return fmt.Errorf("rank %d: element %d of the sum is %v, want %v", g.Rank(), i, sums[i], want)
		}
		if want := float32(at + 2000); values[i] != want || gathered[2*int(elements)+i] != want {
			return fmt.Errorf("rank %d: element %d of rank 2 is %v and %v, want %v", g.Rank(), i, values[i], gathered[2*int(elements)+i], want)
		}
	}
	return nil
}

// TestAGroupNamesWhoIsAbsent: two of three servers enter, and give up. Both name the third, which was never
// started: the leader knows, and the other asks it.
func TestAGroupNamesWhoIsAbsent(t *testing.T) {
	w := newVerbsTown(t, 3)
	servers := make([]*Server, 2)
	for i := range servers {
		servers[i] = start(t, w.settings(i, func(c *Config) { c.Transport = "grpc" }), Options{})
	}
	const want = "2 of 3 members have joined, not /job:worker/replica:0/task:2"
	// A machine may be so busy that one gives up before the other has entered.
	for key, timeout := int32(7), 500*time.Millisecond; ; key, timeout = key+1, 4*timeout {
		ctx, stop := context.WithTimeout(t.Context(), timeout)
		errs := together(2, func(i int) error {
			_, err := servers[i].collective.NewGroup(ctx, collective.GroupOptions{Key: key, Size: 3})
			return err
		})
		stop()
		absent := 0
		for i, err := range errs {
			if status.CodeOf(err) != status.DeadlineExceeded {
				t.Fatalf("server %d: %v; want %q", i, err, want)
			}
			if strings.Contains(err.Error(), want) {
				absent++
			}
		}
		if absent == len(errs) {
			return
		}
		if timeout > soon/4 {
			t.Fatalf("within %v: %v; want %q", timeout, errs, want)
		}
	}
}

// TestCollectivesWithASmallResponseCache: a buffer that finds no space among the kept responses is there
// for its peer when there is space.
func TestCollectivesWithASmallResponseCache(t *testing.T) {
	w := newVerbsTown(t, 2)
	servers := make([]*Server, 2)
	for i := range servers {
		servers[i] = start(t, w.settings(i, func(c *Config) { c.Transport, c.Limits.KeptPerPeer = "grpc", 1<<20 }), Options{})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const groups, elements = 6, 1 << 20
	errs := together(groups, func(k int) error {
		members := groupOf(t, int32(k+1), servers) //nolint:gosec // small
		return errors.Join(together(len(servers), func(i int) error {
			in, err := tensor.Make[float32](servers[i].allocator, elements)
			if err != nil {
				return err
			}
			defer in.Release()
			for range 5 {
				sum, err := members[i].AllReduce(ctx, in, collective.Add)
				if err != nil {
					return err
				}
				sum.Release()
			}
			return nil
		})...)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestAGroupWhoseMemberDies: the others get Unavailable within a bounded time.
func TestAGroupWhoseMemberDies(t *testing.T) {
	for _, route := range []string{"grpc", "tcp"} {
		t.Run(route, func(t *testing.T) {
			w := newVerbsTown(t, 4)
			servers := make([]*Server, 4)
			for i := range servers {
				c := w.settings(i, func(c *Config) {
					c.Transport, c.Provider, c.RDMA.Timeout, c.PeerTimeout = "verbs", route, 0, time.Second
				})
				var err error
				if route == "grpc" {
					c.Transport, c.Provider = "grpc", "auto"
					servers[i], err = Start(t.Context(), c, Options{})
				} else {
					var v *VerbsServer
					if v, err = StartVerbs(t.Context(), c, Options{}); err == nil {
						servers[i] = v.Server
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = servers[i].Close(context.Background()) })
			}
			groups := groupOf(t, 1, servers)
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			errs := together(4, func(i int) error {
				if i == 2 {
					servers[2].grpc.Stop() // without a word
					if route != "grpc" {
						_ = servers[2].parts.stop(gone)
					}
					return nil
				}
				in, err := tensor.FromSlice(tensor.Vector(1000), make([]float32, 1000))
				if err != nil {
					return err
				}
				_, err = groups[i].AllReduce(t.Context(), in, collective.Add)
				return err
			})
			for i, err := range errs {
				said := route != "grpc" && (status.CodeOf(err) == status.Aborted || status.CodeOf(err) == status.Cancelled)
				if i != 2 && status.CodeOf(err) != status.Unavailable && !said { // a peer of this route may say that it ends
					t.Errorf("rank %d ended with %v", i, err)
				}
			}
		})
	}
}

// TestCollectivesOfSeveralDevices: each of two servers is in the group with two CPU devices.
func TestCollectivesOfSeveralDevices(t *testing.T) {
	w := newVerbsTown(t, 2)
	groups := make([]*collective.Group, 4)
	servers := make([]*Server, 2)
	for i := range servers {
		servers[i] = start(t, w.settings(i, func(c *Config) { c.Transport, c.CPUDevices = "grpc", 2 }), Options{})
	}
	errs := together(4, func(i int) (err error) {
		d := servers[i/2].Device()
		d.Index = i % 2
		groups[i], err = servers[i/2].collective.NewGroup(t.Context(), collective.GroupOptions{Key: 1, Size: 4, Device: d})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	errs = together(4, func(i int) error { return collectiveRound(t, servers[i/2], groups[i], 1000) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
