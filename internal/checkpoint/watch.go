package checkpoint

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// watch decides for a watcher which version it takes next, as a value: what the server announces, how pulls end
// and the time go in.
//
//	announced ─► newest ─ is it newer than taken? ─► wanted ─► pull ─ came ───► taken
//	                                                   ▲         └─ failed ─┐
//	                                                   └─── after a pause ──┘
//
// Within an epoch numbers ascend, and what is not above the taken one is passed over. Another epoch is
// another life of the publication: its server has restarted, or the publication was withdrawn and published
// again. Its versions are taken whatever their numbers are, and those of the epochs before never again: when
// one comes back, two servers answer at one address, and the watch ends. What was requested before the epoch
// was left, and comes late, is no such sign: each stream and each pull has the era in which it began.
//
// A server that does not number versions has only their content: each other one is newer.
type watch struct {
	taken  Publication // the last one that came whole; without a Version before the first
	newest Publication // the last one that was announced; without a Version if there is none

	epoch uint64 // of the last version that was announced or came; 0 before the first
	left  []left // the epochs before, the last maxEpochs of them
	era   uint64 // how many epochs were left

	pause  time.Duration // after the last failure
	resume time.Time     // when the next pull may begin; zero for at once
}

// left is an epoch that was left, as the one with the number at.
type left struct{ epoch, at uint64 }

// returned looks for an epoch that was left. late means that this was after the given era.
func (w *watch) returned(epoch, era uint64) (again, late bool) {
	for _, l := range w.left {
		if l.epoch == epoch {
			return true, l.at > era
		}
	}
	return false, false
}

// twoServers is the error for a version of an epoch that was left.
func (w *watch) twoServers(p Publication) error {
	return status.Errorf(status.FailedPrecondition,
		"two servers at one address have a publication %s: after version %s (number %d) of one, and one of another, comes %s (number %d) of the first again",
		quote(p.Name), w.taken.Version, w.taken.Number, p.Version, p.Number)
}

// enters takes note of the epoch of a version.
func (w *watch) enters(epoch uint64) {
	if epoch == w.epoch {
		return
	}
	if w.epoch != 0 {
		w.era++
		w.left = append(w.left, left{w.epoch, w.era})
		w.left = w.left[max(len(w.left)-maxEpochs, 0):]
	}
	w.epoch = epoch
}

// announced is the event that the server says which version is current; one without a Version for none. era is that
// in which the stream began.
func (w *watch) announced(p Publication, era uint64) error {
	if p.Version == "" {
		w.newest = p
		return nil
	}
	if again, late := w.returned(p.Epoch, era); again && !late {
		return w.twoServers(p)
	} else if again {
		return nil
	}
	if p.Epoch == w.newest.Epoch && p.Number < w.newest.Number {
		return nil // a server goes back in number
	}
	w.enters(p.Epoch)
	w.newest = p
	return nil
}

// wanted returns the version to pull now; ok is false if there is none. at is when to ask again; zero for at the
// next event.
func (w *watch) wanted(now time.Time) (p Publication, ok bool, at time.Time) {
	if w.newest.Version == "" || !w.newer(w.newest) {
		return Publication{}, false, time.Time{}
	}
	if now.Before(w.resume) {
		return Publication{}, false, w.resume
	}
	return w.newest, true, time.Time{}
}

// newer reports whether p may follow what was taken.
func (w *watch) newer(p Publication) bool {
	switch {
	case w.taken.Version == "", p.Epoch != w.taken.Epoch:
		return true
	case p.Epoch == 0:
		return p.Version != w.taken.Version
	}
	return p.Number > w.taken.Number
}

// came is the event that a version came whole: the one that was wanted, or one of the same content, if the server
// has restarted since. era is that in which the pull began. It reports whether the caller may have it.
func (w *watch) came(p Publication, era uint64) (ok bool, err error) {
	again, late := w.returned(p.Epoch, era)
	if again && !late {
		return false, w.twoServers(p)
	}
	w.pause, w.resume = 0, time.Time{}
	if !w.newer(p) {
		return false, nil
	}
	if !again && (p.Epoch != w.newest.Epoch || p.Number > w.newest.Number) {
		w.enters(p.Epoch)
		w.newest = p
	}
	w.taken = p
	return true, nil
}

// failed is the event that a pull has failed. It returns the error that ends the watch; nil if it goes on after a
// pause.
func (w *watch) failed(now time.Time, err error, jitter func(time.Duration) time.Duration) error {
	if !watchPasses(err) {
		return err
	}
	w.pause = min(max(2*w.pause, retryMin), retryMax)
	w.resume = now.Add(w.pause/2 + jitter(w.pause))
	return nil
}

// watchPasses reports whether a watch goes on after an error. A version may be gone, or its server may be
// another process since.
func watchPasses(err error) bool {
	e := status.From(err)
	_, newer := e.Payload(changedKey)
	return newer || e.Code() == status.NotFound || mayPass(err)
}
