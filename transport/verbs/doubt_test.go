package verbstransport

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/transport"
)

// connected counts the requesters that the cache of an end has a connection with.
func (p *leftPair) connected(i int) int { return p.kept[i].Stats().Connected }

// wantConnected waits until the cache of an end has n requesters with a connection.
func (p *leftPair) wantConnected(t *testing.T, i, n int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(stepLimit); p.connected(i) != n; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%d requesters are connected, want %d", p.connected(i), n)
		}
	}
}

// TestGoneRequesterIsNotConnected: a peer that vanishes while its channel is idle counts as
// connected only until its gRPC connection has ended. The channel gives its memory back. Nothing is
// outstanding, so without CheckPeer the channel would stay.
func TestGoneRequesterIsNotConnected(t *testing.T) {
	p := newLeftPair(t)
	l := p.up(t, 1)
	p.wantConnected(t, 1, 1)
	p.fabric.Wires(p.tasks[0].String(), p.tasks[1].String()).Cut()
	p.ends[1].CheckPeer(p.tasks[0])
	p.wantConnected(t, 1, 0)
	if l.isOpen() {
		t.Error("the channel is open")
	}
}

// TestPeerWithoutConnectionKeepsItsChannel: the end of a gRPC connection alone ends no channel.
func TestPeerWithoutConnectionKeepsItsChannel(t *testing.T) {
	p := newLeftPair(t)
	l := p.up(t, 1)
	p.wantConnected(t, 1, 1)
	p.ends[1].CheckPeer(p.tasks[0])
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(stepLimit); ; { // until it was probed
		l.mu.Lock()
		done := l.doubted.IsZero()
		l.mu.Unlock()
		if done {
			break
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("the peer was not probed")
		}
	}
	if !l.isOpen() || p.connected(1) != 1 {
		t.Errorf("open %v, %d requesters are connected", l.isOpen(), p.connected(1))
	}
	p.ends[1].CheckPeer(p.tasks[1]) // there is no such peer
	if s := (transport.CacheStats{Requesters: 1, Connected: 1}); p.kept[1].Stats() != s {
		t.Errorf("%+v", p.kept[1].Stats())
	}
}
