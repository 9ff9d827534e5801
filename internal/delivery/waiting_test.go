package delivery

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
)

// TestWaitingReceivesOldestFirst: of all peers, without watches, and at most as many as the caller wants.
func TestWaitingReceivesOldestFirst(t *testing.T) {
	r := NewRequester(RequesterOptions{})
	defer r.stop()
	begin := time.Now()
	for i := range 3 {
		task := cluster.Task{Job: "w", Index: i}
		p := &peer{requester: r, task: task, machine: newRequests(task.String(), time.Second, 1)}
		p.missed = errors.New("refused")
		for j := range 4 {
			name := fmt.Sprintf("%d", 3*j+i)
			if j == 3 {
				name = rendezvous.BufferPrefix + "0:x:watch:1"
			}
			key, err := rendezvous.NewKey(cluster.DeviceOf(task), 1, cluster.DeviceOf(cluster.Task{Job: "me"}), name, rendezvous.FrameIter{})
			if err != nil {
				t.Fatal(err)
			}
			tr := &Transfer{Receive: transport.Receive{Request: transport.Request{ID: uint64(j + 1), Step: int64(j), Key: key}}, asked: begin.Add(time.Duration(3*j+i) * time.Second), tries: j}
			p.machine.transfers[tr.ID] = tr
		}
		if i == 0 {
			p.machine.conn = connUp
		}
		r.peers[task] = p
	}
	skip := func(string) bool { return true }
	all, total, complete := r.Waiting(100, 100, skip)
	if len(all) != 9 || total != 9 || !complete {
		t.Fatalf("%d of %d, %t", len(all), total, complete)
	}
	for i, w := range all {
		if w.Key.Edge() != fmt.Sprint(i) || w.Task.Index != i%3 || w.Step != int64(i/3) || w.Requests != i/3 || (w.Why == nil) != (i%3 == 0) {
			t.Errorf("%d: %+v", i, w)
		}
	}
	if some, total, complete := r.Waiting(2, 100, skip); len(some) != 2 || some[0].Key.Edge() != "0" || some[1].Key.Edge() != "1" || total != 9 || !complete {
		t.Errorf("%+v, %d, %t", some, total, complete)
	}
	if _, total, complete := r.Waiting(100, 5, func(string) bool { return false }); total > 5 || complete {
		t.Errorf("%d, %t", total, complete)
	}
	clear(r.peers)
}
