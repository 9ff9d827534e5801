package verbstransport_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/verbs"
)

// lossy is a device that never completes what is posted behind the break of a queue pair,
// as one whose firmware has stopped.
type lossy struct {
	verbs.Device
	took chan<- time.Duration // time from a queue pair's break to its close
}

func (d lossy) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return lossyPD{pd, d.took}, err
}

type lossyPD struct {
	verbs.PD
	took chan<- time.Duration
}

func (p lossyPD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	qp, err := p.PD.CreateQP(c)
	return &lossyQP{QP: qp, took: p.took}, err
}

type lossyQP struct {
	verbs.QP
	took  chan<- time.Duration
	broke time.Time // guarded by link.mu
}

func (q *lossyQP) ToErr() error {
	q.broke = time.Now()
	return q.QP.ToErr()
}

func (q *lossyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if !q.broke.IsZero() {
		return len(wrs), nil
	}
	return q.QP.PostSend(wrs)
}

func (q *lossyQP) Close() error {
	if !q.broke.IsZero() {
		q.took <- time.Since(q.broke)
	}
	return q.QP.Close()
}

// TestDrainEndsAfterASecond: the wait for missing completions ends after 1 s
// (ARCHITECTURE.md section 6, rule b), and only then is the receive requested again.
func TestDrainEndsAfterASecond(t *testing.T) {
	took := make(chan time.Duration, 10)
	o := clusterOptions{parallel: true, wrap: func(task cluster.Task, d verbs.Device) verbs.Device {
		if task.Index == 1 {
			return lossy{d, took}
		}
		return d
	}}
	s := newStage(t, o)
	from, to := s.pair()
	k := from.key(to, "v")
	r := to.recv(1, k)
	from.waiting(1)
	to.nic().PortDown(1)
	from.sendsBlob(1, k, 1, 100*kib)
	r.isBlob(1, 100*kib)
	if d := <-took; d < time.Second || d > 5*time.Second {
		t.Errorf("the queue pair was kept for %v, want a second and a little", d)
	}
	to.nic().PortUp(1)
}
