//go:build linux

package storm_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// What a publisher does.
const (
	// updatePause is the mean pause between two Updates of a name.
	updatePause = 350 * time.Millisecond
	// withdraws, drops, chosen and hastyUpdates are shares of the Updates: a Withdraw in their place, with UpdateDrop, with
	// UpdateNumber, with a context that ends soon.
	withdraws    = 0.06
	drops        = 0.25
	chosen       = 0.3
	hastyUpdates = 0.2
	// rewrites is the share of versions that differ from the one before everywhere, and repeats that of those with the
	// same content.
	rewrites = 0.3
	repeats  = 0.08
	// comesBack is how long after Close the memory of versions may be away.
	comesBack = 3 * time.Second
	// settles is for how many looks, a millisecond or more apart, Done may be behind the room for the next version. It is no
	// time: a process that was stopped or had to wait for a processor goes on with a look at what is by then.
	settles = 200
)

// updater makes the versions of a name.
type updater struct {
	n       *node
	name    string
	last    stamp // of the last version; its Gen is that of the publication
	content stamp // of the content of the last version
	is      bool  // the name is published

	mu   sync.Mutex
	lent map[int]*checkpoint.Lent // of versions whose memory is not back, by serial
}

func newUpdater(n *node, name string) *updater {
	return &updater{n: n, name: name, last: stamp{Name: name, Task: n.Task, Life: n.Life}, lent: make(map[int]*checkpoint.Lent)}
}

// run makes versions until ctx ends.
func (u *updater) run(ctx context.Context) {
	for pause(ctx, time.Duration(rand.ExpFloat64()*float64(updatePause))) {
		if u.is && rand.Float64() < withdraws {
			u.withdraw()
			continue
		}
		u.update(ctx)
	}
}

// still makes the last version, logs which it is, and returns it.
func (u *updater) still() newest {
	ctx, cancel := context.WithTimeout(u.n.ctx, updateTime)
	defer cancel()
	p, err := u.try(ctx, checkpoint.UpdateOptions{}, "")
	r := record{Kind: kindStill, Name: u.name, Peer: u.n.Task, Number: p.Number, Epoch: p.Epoch}
	if err != nil {
		r.Code = status.CodeOf(err).String()
	}
	u.n.log.write(r)
	return newest{u.n.Task, u.name, p.Number, p.Epoch}
}

// update makes a version in one of many ways.
func (u *updater) update(ctx context.Context) {
	o := checkpoint.UpdateOptions{Drop: rand.Float64() < drops}
	wrong := ""
	if rand.Float64() < chosen {
		o.Number = u.number() + 1 + rand.Uint64N(5)
		if u.is && rand.IntN(8) == 0 {
			o.Number, wrong = 1+rand.Uint64N(u.last.Number), wrongNumber
		}
	}
	if rand.Float64() < hastyUpdates {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(100*time.Millisecond))
		defer cancel()
	}
	_, _ = u.try(ctx, o, wrong) // the log has the error
}

// number is that of the last version of the publication.
func (u *updater) number() uint64 {
	if !u.is {
		return 0
	}
	return u.last.Number
}

// next returns the stamp of the next version with a number.
func (u *updater) next(number uint64) stamp {
	s := u.last
	s.Number = number
	u.last.Serial++ // a call that fails has one, too
	s.Serial = u.last.Serial
	if !u.is {
		s.Gen++
	}
	if s.Base == 0 || rand.Float64() < rewrites {
		s.Base = s.Serial
	}
	return s
}

// try calls Update.
func (u *updater) try(ctx context.Context, o checkpoint.UpdateOptions, wrong string) (checkpoint.Publication, error) {
	number := o.Number
	if number == 0 {
		number = u.number() + 1
	}
	s := u.next(number)
	content := s
	if u.is && rand.Float64() < repeats {
		content = u.content
	}
	tensors, err := u.memory(content)
	if err != nil {
		return checkpoint.Publication{}, err // memory is bounded
	}
	r := record{Kind: kindUpdate, Name: u.name, Peer: u.n.Task, Gen: s.Gen, Number: number, Seq: s.Serial, Stamp: &content, Sort: wrong}
	u.n.log.write(r)
	lent, err := u.n.server.Catalog().Update(ctx, u.name, tensors, o)
	r.Kind, r.Stamp = kindUpdated, nil
	if err != nil {
		releaseAll(tensors)
		r.Code, r.Text = status.CodeOf(err).String(), err.Error()
		if c := ctx.Err(); c != nil {
			r.Ctx = c.Error()
		}
		u.n.log.write(r)
		return checkpoint.Publication{}, err
	}
	u.is, u.content = true, content
	u.last.Gen, u.last.Number, u.last.Base = s.Gen, number, s.Base
	p := lent.Publication
	r.Epoch, r.Held = p.Epoch, u.lend(s.Serial, lent, tensors)
	u.n.log.write(u.n.changed(r))
	return p, nil
}

// memory makes a version in registered or in other memory.
func (u *updater) memory(s stamp) ([]*tensor.Tensor, error) {
	a := u.n.server.SendAllocator()
	if rand.IntN(2) == 0 {
		a = u.n.pool
	}
	tensors, err := s.tensors(a)
	if status.CodeOf(err) == status.ResourceExhausted { // registered memory is bounded
		return s.tensors(u.n.pool)
	}
	return tensors, err
}

// lend waits in the background until the memory of a version is back, and then writes to it. It returns how many versions
// are not back.
func (u *updater) lend(serial int, lent *checkpoint.Lent, tensors []*tensor.Tensor) int {
	u.mu.Lock()
	u.lent[serial] = lent
	u.mu.Unlock()
	u.n.work.Go(func() {
		defer releaseAll(tensors)
		select {
		case <-lent.Done():
		case <-u.n.closed:
			if !returned(lent) {
				u.n.log.write(record{Kind: kindMem, Name: u.name, Text: "the memory of a version is not back after Close"})
				return
			}
		}
		for _, t := range tensors {
			b := t.Bytes()
			for i := range b {
				b[i] = poison
			}
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.lent, serial)
	})
	held := u.held()
	for look := 0; held > maxVersions && look < settles; look++ {
		<-time.After(time.Millisecond)
		held = u.held()
	}
	return held
}

// returned waits until the memory of a version is back after Close. What gRPC dropped when it stopped comes back with a
// garbage collection.
func returned(lent *checkpoint.Lent) bool {
	for late := time.After(comesBack); ; runtime.GC() {
		select {
		case <-lent.Done():
			return true
		case <-late:
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// held returns how many versions have not given their memory back.
func (u *updater) held() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	held := 0
	for _, l := range u.lent {
		select {
		case <-l.Done():
		default:
			held++
		}
	}
	return held
}

// withdraw ends the publication.
func (u *updater) withdraw() {
	r := record{Kind: kindWithdraw, Name: u.name, Peer: u.n.Task, Gen: u.last.Gen, Number: u.last.Number}
	u.n.log.write(r)
	_, err := u.n.server.Catalog().Withdraw(u.n.ctx, u.name)
	u.is = false
	r.Kind = kindWithdrawn
	if err != nil {
		r.Code, r.Text = status.CodeOf(err).String(), err.Error()
	}
	u.n.log.write(r)
}

// publish begins to make versions.
func (n *node) publish() {
	var ctx context.Context
	ctx, n.still = context.WithCancel(n.ctx)
	for _, name := range []string{weights, shapes} {
		u := newUpdater(n, name)
		n.updaters = append(n.updaters, u)
		n.updates.Go(func() { u.run(ctx) })
	}
}

// endUpdates makes the last versions and answers.
func (n *node) endUpdates() {
	n.still()
	n.updates.Wait()
	a := answer{Op: opStill}
	for _, u := range n.updaters {
		a.Newest = append(a.Newest, u.still())
	}
	n.answer(a)
}

// heldVersions returns how many versions have not given their memory back.
func (n *node) heldVersions() int {
	held := 0
	for _, u := range n.updaters {
		held += u.held()
	}
	return held
}

// endVersions withdraws what is published.
func (n *node) endVersions() {
	for _, u := range n.updaters {
		if u.is {
			u.withdraw()
		}
	}
}
