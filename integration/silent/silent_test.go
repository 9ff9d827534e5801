//go:build linux

package silent

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/internal/top"
	"github.com/tryst-rdma/tryst/internal/transporttest"
)

// The limits. Only the time in which this process had the processor counts, so that they hold on a busy machine: a pause
// between two looks counts lookMost at most.
const (
	within   = 2 * time.Second // the state shows
	look     = 50 * time.Millisecond
	lookMost = 150 * time.Millisecond
	patience = time.Minute // for what has no limit
	looks    = 30          // at a peer that is not to be silent
)

// observer is the process whose status is read.
type observer struct {
	*tryst.Server
	t       *testing.T
	metrics string // its metrics address
	client  top.Client
}

// start starts the observer and its peer, and returns when values take the route.
func start(t *testing.T, route, load string) (*observer, *process) {
	t.Helper()
	addresses := transporttest.FreeAddresses(t, 3)
	transport := new(http.Transport)
	ctx, cancel := context.WithCancel(context.Background())
	var s *tryst.Server
	var work sync.WaitGroup
	t.Cleanup(func() { // the peer is killed
		cancel()
		transport.CloseIdleConnections()
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s != nil {
			_ = s.Close(closing)
		}
		work.Wait()
	})
	p := startPeer(t, route, load, addresses[:2]) // first, so that the observer connects to it at once: only then it can be asked
	c := config(route, 0, addresses[:2])
	c.MetricsAddress = addresses[2]
	var err error
	s, err = tryst.Serve(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	switch load {
	case exchanging:
		work.Go(func() { _ = exchange(ctx, s, 0, 1) })
	case idle:
		work.Go(func() { _, _ = s.Step(1).Recv(ctx, name(1), "never") })
	}
	o := &observer{s, t, addresses[2], top.Client{HTTP: &http.Client{Transport: transport}}}
	o.untilUp(route)
	return o, p
}

// untilUp waits until the peer is up over the route, without a look at the status.
func (o *observer) untilUp(route string) {
	o.t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for begin := time.Now(); ; <-tick.C {
		links := o.Links()
		i := slices.IndexFunc(links, func(l tryst.Link) bool { return l.Task == name(1) })
		if i >= 0 && links[i].State == "up" && (links[i].Over == route || links[i].Route == route) {
			return
		}
		if time.Since(begin) > patience {
			o.t.Fatalf("not up over %s: %+v", route, links)
		}
	}
}

func (o *observer) status() *statusapi.Status {
	o.t.Helper()
	f := o.client.Fetch(o.t.Context(), o.metrics)
	if f.Err != nil {
		o.t.Fatal(f.Err)
	}
	return f.Status
}

func (o *observer) peer() statusapi.Peer {
	o.t.Helper()
	for _, p := range o.status().Peers {
		if p.Task == name(1) {
			return p
		}
	}
	o.t.Fatal("the peer is not in the status")
	return statusapi.Peer{}
}

// shows waits until the peer has a state, and checks how long that takes.
func (o *observer) shows(state string) statusapi.Peer {
	o.t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	var took time.Duration
	for begin, last := time.Now(), time.Now(); ; <-tick.C {
		p := o.peer()
		now := time.Now()
		took += min(now.Sub(last), lookMost)
		last = now
		if p.State == state {
			o.t.Logf("%s after %v (counted %v)", state, now.Sub(begin).Round(time.Millisecond), took.Round(time.Millisecond))
			if took > within {
				o.t.Errorf("%s after %v, want %v", state, took, within)
			}
			return p
		}
		if now.Sub(begin) > patience {
			o.t.Fatalf("not %s: %+v", state, p)
		}
	}
}

// loadsOf returns the loads over a route with which a peer that stops is found out. One that only asks over gRPC is not: this process has
// no connection to it, and a look makes none.
func loadsOf(route string) []string {
	if route == "grpc" {
		return []string{exchanging, idle}
	}
	return []string{exchanging, idle, asking}
}

// TestStoppedPeerIsSilentInTheStatus: within two seconds of SIGSTOP, on every route, whether it exchanged values, was asked or asks
// itself (loadsOf). It is up again within two seconds of SIGCONT. Before and after that it is never silent, although a receive waits.
func TestStoppedPeerIsSilentInTheStatus(t *testing.T) {
	for _, route := range []string{"shm", "tcp", "grpc"} {
		for _, load := range loadsOf(route) {
			t.Run(route+"/"+load, func(t *testing.T) {
				t.Parallel()
				o, p := start(t, route, load)
				o.shows("up")
				o.staysUp()
				p.stop()
				silent := o.shows(statusapi.PeerSilent)
				if !strings.Contains(silent.Error, "SIGSTOP") || time.Since(silent.Since) > patience {
					t.Errorf("%+v", silent)
				}
				if load == idle {
					o.waitSays("does not answer")
				}
				p.goOn()
				o.shows("up")
				o.staysUp()
			})
		}
	}
}

// staysUp looks at the peer. One look may find it without an answer, on a machine that gave it no processor for so long.
func (o *observer) staysUp() {
	o.t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	silent := 0
	for range looks {
		if p := o.peer(); p.State != "up" {
			o.t.Logf("%s: %s", p.State, p.Error)
			silent++
		}
		<-tick.C
	}
	if silent > looks/3 {
		o.t.Errorf("not up in %d of %d looks", silent, looks)
	}
}

// waitSays checks the detail of the receive that waits.
func (o *observer) waitSays(want string) {
	o.t.Helper()
	for _, w := range o.status().Waits.Oldest {
		if w.Key == "never" {
			if !strings.Contains(w.Detail, want) {
				o.t.Errorf("%+v", w)
			}
			return
		}
	}
	o.t.Error("the receive is not in the status")
}

// TestTopOnceShowsAStoppedPeer: it asks once, and nobody has looked before.
func TestTopOnceShowsAStoppedPeer(t *testing.T) {
	for _, route := range []string{"shm", "tcp", "grpc"} {
		for _, load := range loadsOf(route)[1:] {
			t.Run(route+"/"+load, func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					o, p := start(t, route, load)
					p.stop()
					begin := time.Now()
					lines := top.Once(t.Context(), o.client, []string{o.metrics}).Once(160)
					took := time.Since(begin).Round(time.Millisecond)
					i := slices.IndexFunc(lines, func(l string) bool {
						return strings.Contains(l, "worker:1") && strings.Contains(l, statusapi.PeerSilent)
					})
					switch {
					case i >= 0:
						t.Logf("after %v: %s", took, lines[i])
						return
					case n == 3: // a machine may be so busy that the server answers before it knows
						t.Fatalf("after %v:\n%s", took, strings.Join(lines, "\n"))
					}
				}
			})
		}
	}
}

// TestAReaderMakesNoConnection: not even to a peer that asks this process, and has an address in the cluster.
func TestAReaderMakesNoConnection(t *testing.T) {
	t.Parallel()
	o, _ := start(t, "grpc", asking)
	o.staysUp()
	for _, l := range o.Links() {
		if l.Dialed != "" {
			t.Errorf("%+v", l)
		}
	}
}
