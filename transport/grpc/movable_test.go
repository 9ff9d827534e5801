package grpctransport

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// TestConnectionsFollowTheCluster: those to a task that moved go to its new address, also for a caller that has them;
// those that nobody uses are closed, and those that tasks share go on.
func TestConnectionsFollowTheCluster(t *testing.T) {
	spec := func(text string) *cluster.Spec {
		s, err := cluster.ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	task := func(i int) cluster.Task { return cluster.Task{Job: "w", Index: i} }
	c := NewConns(ConnsOptions{Spec: spec("w=h0:1,h1:1,h1:1,h3:1"), Self: task(0)})
	defer c.Close()
	var peers [4]*peerConn
	for i := range peers {
		p, err := c.peer(task(i))
		if err != nil {
			t.Fatal(err)
		}
		peers[i] = p
	}
	closed := channelOf(t, peers[3])
	if err := c.SetSpec(spec("w=h0:1,h1:2,h1:1")); err != nil {
		t.Fatal(err)
	}
	if at := peers[1].channel.at(); at != "h1:2" {
		t.Errorf("task 1 is at %s", at)
	}
	if p, err := c.peer(task(2)); err != nil || p != peers[2] || p.channel.at() != "h1:1" {
		t.Errorf("task 2 has other connections, %v", err)
	}
	if _, err := c.peer(task(3)); status.CodeOf(err) != status.NotFound {
		t.Errorf("task 3: %v", err)
	}
	if n := len(c.Tasks()); n != 3 || len(c.channels) != 3 || len(c.Peers()) != 3 {
		t.Errorf("%d tasks, %d channels, %d peers", n, len(c.channels), len(c.Peers()))
	}
	if err := closed.conns[0].Close(); err == nil {
		t.Error("the connections to task 3 were not closed")
	}
	if c.Addressed(task(3).String()) || !c.Addressed(task(1).String()) {
		t.Error("the wrong tasks have addresses")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.SetSpec(spec("w=h0:1")); status.CodeOf(err) != status.Cancelled {
		t.Errorf("after Close: %v", err)
	}
}
