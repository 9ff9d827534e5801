package roce

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// staleHost delays the result of one listing.
type staleHost struct {
	*memoryHost
	hold   atomic.Bool
	listed chan struct{}
	goOn   chan struct{}
}

func (h *staleHost) interfaces() ([]netif, error) {
	list, err := h.memoryHost.interfaces()
	if h.hold.CompareAndSwap(true, false) {
		close(h.listed)
		<-h.goOn
	}
	return list, err
}

// meanwhile runs f while a listing is delayed: until f blocks, and then to its end.
func (h *staleHost) meanwhile(p *Provider, f func()) {
	h.hold.Store(true)
	listing, changing := make(chan struct{}), make(chan struct{})
	go func() { defer close(listing); _, _ = p.Devices() }()
	<-h.listed
	go func() { defer close(changing); f() }()
	select {
	case <-changing:
	case <-time.After(100 * time.Millisecond): // f waits for the listing
	}
	close(h.goOn)
	<-listing
	<-changing
}

// TestListingsAreSerialized: a listing from before a change must not be applied after
// it.
func TestListingsAreSerialized(t *testing.T) {
	f := newFabric()
	h := &staleHost{memoryHost: f.host(hostA), listed: make(chan struct{}), goOn: make(chan struct{})}
	p := newProvider(Options{}, h)
	x := newTestEnd(t, p, "roce-eth0", netip.MustParseAddr(hostA), 4096)
	h.meanwhile(p, func() { // an address is added, and the watcher reports it
		h.change(func(ifs []netif) []netif {
			ifs[0].addrs = append(ifs[0].addrs[:1:1], netip.MustParseAddr("10.0.0.77"))
			return ifs
		})
	})
	if n := len(must(x.dev.GIDs(onlyPort))(t)); n != 2 {
		t.Errorf("the table has %d addresses, want 2", n)
	}
}

// TestOldListingDoesNotRemoveADevice that was opened after the listing.
func TestOldListingDoesNotRemoveADevice(t *testing.T) {
	f := newFabric()
	h := &staleHost{memoryHost: f.host(hostA), listed: make(chan struct{}), goOn: make(chan struct{})}
	all := h.ifs
	h.ifs = nil // the interface does not exist yet
	p := newProvider(Options{}, h)
	var d verbs.Device
	var err error
	h.meanwhile(p, func() {
		h.change(func([]netif) []netif { return all }) // now it exists
		d, err = p.Open("roce-eth0")
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if e, err := d.NextEvent(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the interface is there, and the device reports %v: %v", e.Kind, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// lateHost changes between the first listing and the beginning of the watch.
type lateHost struct {
	*memoryHost
	before func()
}

func (h *lateHost) watch(changed func()) (func(), error) {
	h.before()
	return h.memoryHost.watch(changed)
}

// TestChangeBeforeTheWatchIsNoticed, although the watch does not report it.
func TestChangeBeforeTheWatchIsNoticed(t *testing.T) {
	f := newFabric()
	h := &lateHost{memoryHost: f.host(hostA)}
	h.before = func() { h.change(func([]netif) []netif { return nil }) }
	p := newProvider(Options{}, h)
	d := must(p.Open("roce-eth0"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if e, err := d.NextEvent(ctx); e.Kind != verbs.EventDeviceFatal || err != nil {
		t.Errorf("the interface vanished before the watch began, and the device reports %v: %v", e.Kind, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
