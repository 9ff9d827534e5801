package worker

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Which process may receive what: under mutual TLS the one that the destination of the key is.

// CheckReceiver returns PermissionDenied if the value of a key is not for a caller. covers reports
// what the caller has proven (transport.Caller); nil accepts every caller. The answer may depend on the
// session that the step of the request runs in, which is not known before the step begins: then the
// request is accepted if some session allows it, and the Guard decides. It changes nothing and waits
// for nothing but the lock of the sessions.
func (w *Worker) CheckReceiver(key rendezvous.Key, covers func(cluster.Place) error) (rendezvous.Guard, error) {
	if covers == nil {
		return nil, nil
	}
	err := w.checkReceiver(w.session, &key, covers)
	if w.sessions == nil || w.sessions.renamed.Load() == 0 || ofNoStep(&key) {
		return nil, err
	}
	return w.guardReceiver(key, covers, err)
}

// guardReceiver is CheckReceiver while there are sessions with clusters of their own. err is the answer
// for the cluster of the process.
func (w *Worker) guardReceiver(key rendezvous.Key, covers func(cluster.Place) error, err error) (rendezvous.Guard, error) {
	allows := func(s *rendezvous.Session) error { return w.checkReceiver(s, &key, covers) }
	if err != nil && !w.sessions.anyPlace(func(s *rendezvous.Session) bool {
		return (key.SrcEmpty() || s.Task == key.Src().Task) && allows(s) == nil
	}) {
		return nil, err
	}
	return allows, nil
}

// checkReceiver is CheckReceiver for a step that runs in a session.
func (w *Worker) checkReceiver(s *rendezvous.Session, key *rendezvous.Key, covers func(cluster.Place) error) error {
	task := key.Dst().Task
	place, own := s.Places[task]
	if !own {
		if task.Job == cluster.ClientJob && !strings.HasPrefix(key.Edge(), rendezvous.PublicationPrefix) {
			return status.Errorf(status.PermissionDenied, "RecvTensor of %s: %w", key.Describe(),
				cluster.NotProven("every certificate covers the names of clients, so a client receives published tensors only; send to a task of the cluster"))
		}
		place = w.cluster().Place(task)
	}
	if err := covers(place); err != nil {
		return status.From(err).WithPrefix("RecvTensor of " + key.Describe())
	}
	return nil
}

// ofNoStep reports whether a key is answered without the step of its request: by a publication or a
// collective operation. Both use the names of the process's cluster.
func ofNoStep(key *rendezvous.Key) bool {
	return strings.HasPrefix(key.Edge(), rendezvous.PublicationPrefix) || strings.HasPrefix(key.Edge(), rendezvous.BufferPrefix)
}

// cluster returns the present cluster of the process.
func (w *Worker) cluster() *cluster.Spec {
	if w.opts.Cluster == nil {
		return nil
	}
	return w.opts.Cluster()
}

// checkLeft refuses a value that is for a task which has left the cluster.
func (w *Worker) checkLeft(key *rendezvous.Key) error {
	if task := key.Dst().Task; w.opts.Left != nil && w.opts.Left(task) {
		return status.Errorf(status.Aborted, "RecvTensor of %s: %v has left the cluster", key.Describe(), task).WithKind(status.ErrTaskLeft)
	}
	return nil
}

// Names reports whether some session has a cluster of its own with a task: under a name of that cluster, or of the
// process's.
func (w *Worker) Names(task cluster.Task) bool {
	if w.sessions == nil || w.sessions.renamed.Load() == 0 {
		return false
	}
	return w.sessions.anyPlace(func(s *rendezvous.Session) bool {
		for name, place := range s.Places {
			if name == task || place.Task == task {
				return true
			}
		}
		return false
	})
}

// checkDevice returns PermissionDenied if a caller must not act as the process of a device.
func (w *Worker) checkDevice(ctx context.Context, method, device string) error {
	covers := transport.CallerOf(ctx).Covers
	if covers == nil {
		return nil
	}
	d, err := cluster.ParseDevice(device)
	switch {
	case err != nil:
	case d.Task.Job == cluster.ClientJob:
		err = status.Errorf(status.PermissionDenied, "%w", cluster.NotProven("every certificate covers the names of clients, so a client is in no group"))
	default:
		err = covers(w.cluster().Place(d.Task))
	}
	if err != nil {
		return status.From(err).WithPrefix(method + " for the device " + device)
	}
	return nil
}

// aborts returns what the cancel of a plain request does: it aborts the step. A request that its Guard
// has not allowed must have no effect.
func (w *Worker) aborts(step int64, guard rendezvous.Guard) (rendezvous.Guard, func()) {
	abort := func() { w.opts.Manager.AbortStepLater(step) }
	if guard == nil {
		return nil, abort
	}
	var allowed atomic.Bool
	return func(s *rendezvous.Session) error {
			err := guard(s)
			allowed.Store(err == nil)
			return err
		}, func() {
			if allowed.Load() {
				abort()
			}
		}
}
