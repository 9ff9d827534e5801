package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// line is the lineage of one name with those who wait for its changes: updates and watchers. It is guarded
// by the catalog's lock, except turn.
type line struct {
	lineage
	name     string
	turn     chan struct{}           // holds a value while a version is being made
	changed  chan struct{}           // closed, and replaced, when a version has entered, has left, or is back, or updates need not wait for deltas
	users    int                     // of the line; it is forgotten when there are none, and no version
	watching map[*listening]struct{} // the streams of Watch
	left     time.Time               // when the last of them ended
	numbers  numbers
	deltas   deltas
	timer    *time.Timer // calls tick; nil before the first use
}

// newEpoch returns the random number of a new life of a publication.
func newEpoch() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never returns an error
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// lineLocked returns the line of a name, a new one if there is none.
func (c *Catalog) lineLocked(name string) *line {
	l := c.lines[name]
	if l == nil {
		l = &line{
			lineage: lineage{bound: c.o.ReplacedPulls, epoch: newEpoch()}, name: name,
			turn: make(chan struct{}, 1), changed: make(chan struct{}),
		}
		c.lines[name] = l
	}
	return l
}

// use returns the line of a name, which stays until leave.
func (c *Catalog) use(name string) *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lineLocked(name)
	l.users++
	return l
}

func (c *Catalog) leave(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.users--
	c.forgetLocked(l)
}

// forgetLocked removes a line that nobody needs.
func (c *Catalog) forgetLocked(l *line) {
	if l.users == 0 && l.forgotten() && c.lines[l.name] == l {
		delete(c.lines, l.name)
	}
}

// changedLocked tells those who wait.
func (l *line) changedLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// UpdateOptions are the options of Catalog.Update.
type UpdateOptions struct {
	// Number is the number of the version, such as that of a training step. It must be above that of the
	// version before; 0 means the next one.
	Number uint64
	// Drop replaces the version before, if no pull of it has begun, where Update would otherwise wait for
	// memory.
	Drop bool
}

// Update makes the next version of a publication of tensors in memory, atomically, or its first one. It takes
// references of its own, and returns when the digests are computed and there is room: at most two versions of a
// name are in memory, the current one and the one before, until the memory of the latter is back. While deltas between
// the two are made, for deltasWithin at most, it is not.
// Pulls of the version before go on for CatalogOptions.ReplacedPulls at most, and then end with an error.
// Lent says when the memory of these tensors is the caller's again. After an error, also that of ctx, the
// publication is as it was.
func (c *Catalog) Update(ctx context.Context, name string, tensors []*tensor.Tensor, o UpdateOptions) (*Lent, error) {
	begin := time.Now()
	what := "updating " + quote(name)
	if err := checkName("publication", name); err != nil {
		return nil, err
	}
	l := c.use(name)
	defer c.leave(l)
	select {
	case l.turn <- struct{}{}: // so that versions enter in the order of the calls
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, wrap(what, status.From(context.Cause(ctx)))
	}
	epoch, err := c.mayUpdate(l, o.Number)
	if err != nil {
		return nil, wrap(what, err)
	}
	p, err := fromTensors(name, tensors)
	if err != nil {
		return nil, wrap(what, err)
	}
	if err = c.complete(ctx, p); err == nil {
		err = c.waitForRoom(ctx, l, func() ([]*life, bool, error) { return c.updateLocked(l, p, epoch, o) })
	}
	if err != nil {
		p.close()
		return nil, wrap(what, err)
	}
	c.logPublished(p, begin, "number", p.number)
	return p.lent, nil
}

// mayUpdate checks what can be checked before the digests are computed. It returns the epoch of the
// publication; 0 if there is none.
func (c *Catalog) mayUpdate(l *line, number uint64) (epoch uint64, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return 0, errClosed()
	}
	p, reserved := c.publications[l.name]
	switch {
	case p == nil && reserved:
		return 0, status.Errorf(status.Unavailable, "the first version is being prepared; try again")
	case p != nil && !p.inMemory:
		return 0, status.New(status.FailedPrecondition, "it was published from files, whose new content Reload takes; withdraw it first")
	case p != nil:
		epoch = l.epoch
	}
	_, err = l.next(number)
	return epoch, err
}

// updateLocked lets p enter if there is room.
func (c *Catalog) updateLocked(l *line, p *publication, epoch uint64, o UpdateOptions) (ended []*life, ok bool, err error) {
	current, taken := c.publications[l.name]
	switch {
	case epoch != 0 && (current == nil || l.epoch != epoch):
		return nil, false, status.New(status.FailedPrecondition, "it was withdrawn meanwhile")
	case epoch == 0 && taken:
		return nil, false, alreadyExists()
	}
	number, err := l.next(o.Number)
	if err != nil {
		return nil, false, err
	}
	return c.admitLocked(l, p, number, o.Drop)
}

// admitLocked lets p enter as the version with a number, if there is room.
func (c *Catalog) admitLocked(l *line, p *publication, number uint64, drop bool) (ended []*life, ok bool, err error) {
	if drop && l.full(&p.life) && l.unbegun() {
		drop = c.droppableLocked(l)
	}
	ended, ok = l.update(time.Now(), &p.life, number, drop)
	if !ok {
		return nil, false, nil
	}
	c.enteredLocked(l, p)
	return ended, true, nil
}

// droppableLocked reports whether nothing reads the current version, which no pull has begun. Deltas to a version that is
// dropped are not needed, so it ends their making, which reads it too. Pulls of an older version with the same content read
// it as well, since it has their keys.
func (c *Catalog) droppableLocked(l *line) bool {
	current := c.publications[l.name]
	if m := l.deltas.fresh; m != nil && m.to == current {
		m.stop()
	}
	return !current.isRead()
}

// waitForRoom calls enter with the lock held until it reports ok or an error, each time that a version has left,
// or that the making of deltas has ended.
func (c *Catalog) waitForRoom(ctx context.Context, l *line, enter func() ([]*life, bool, error)) error {
	waits := false
	defer func() {
		if waits {
			c.mu.Lock()
			l.gaveUp()
			c.mu.Unlock()
		}
	}()
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return errClosed()
		}
		before := c.publications[l.name]
		ended, ok, err := enter()
		if !ok && err == nil && !waits {
			waits = true
			ended = l.wait(time.Now())
		}
		changed := l.changed
		told := c.endLocked(l, ended)
		var asked []*opened
		if ok && before != nil && !before.ended {
			asked = before.pullsLocked()
		}
		c.mu.Unlock()
		c.tell(told)
		for _, o := range asked {
			o.versionReplaced()
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c.noRoom(ctx, l)
		}
	}
}

// noRoom is the error of a version that waited for memory.
func (c *Catalog) noRoom(ctx context.Context, l *line) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	pulls := 0
	for _, v := range l.old {
		pulls += v.pulls
	}
	return status.Errorf(status.CodeOf(ctx.Err()), "%d versions are in memory, the most at a time, and the older one is still read: %d pulls of it are under way", l.held(), pulls)
}

// enteredLocked makes p, which has entered its line, the one that pullers find.
func (c *Catalog) enteredLocked(l *line, p *publication) {
	m := &p.manifest
	m.Number, m.Epoch = p.number, p.epoch
	if p.inMemory {
		p.lent.Publication = m.Publication
		p.lent.whenBack(func() { c.back(l, p) })
		p.lent.want = func() func() { return c.want(l, p) }
	}
	before := c.publications[m.Name]
	if before != nil {
		c.old = append(c.old, before)
	}
	c.deltasLocked(l, before, p)
	l.numbers.entered(p.epoch, p.number)
	c.publications[m.Name], c.listed = p, nil
	for _, e := range p.entries {
		edge := EdgeName(m.Name, m.Version, e.info.Name)
		c.edges[edge], e.edgeLength = e, len(edge)
	}
	c.watchFilesLocked(p)
	l.changedLocked()
}

// want is called when the owner of the memory of p waits for it, and what it returns when he waits no more.
func (c *Catalog) want(l *line, p *publication) (unwant func()) {
	c.mu.Lock()
	ended := l.want(time.Now(), &p.life)
	if c.closed { // Close gives the memory back
		c.mu.Unlock()
		return func() {}
	}
	told := c.endLocked(l, ended)
	c.mu.Unlock()
	c.tell(told)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.unwant(&p.life)
		c.setTimerLocked(l)
	}
}

// back is called when nothing refers to the memory of p any more.
func (c *Catalog) back(l *line, p *publication) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.back(&p.life)
	c.o.Returned(time.Since(p.endedAt))
	l.changedLocked()
	c.forgetLocked(l)
}

// endLocked takes versions that have ended from the catalog. The caller passes them to tell when it has
// released the lock.
func (c *Catalog) endLocked(l *line, ended []*life) []*publication {
	told := make([]*publication, 0, len(ended))
	for _, v := range ended {
		p := v.of
		p.why, p.endedAt = c.whyLocked(p), time.Now()
		c.removeLocked(p)
		c.old = slices.DeleteFunc(c.old, func(o *publication) bool { return o == p })
		told = append(told, p)
		l.deltas.endedLocked(p)
	}
	c.setTimerLocked(l)
	return told
}

// removeLocked removes the keys of a publication, unless they are those of another one with the
// same content. An older one with it, whose pulls go on, gets them back.
func (c *Catalog) removeLocked(p *publication) {
	heir := slices.IndexFunc(c.old, func(o *publication) bool {
		return o != p && o.manifest.Name == p.manifest.Name && o.manifest.Version == p.manifest.Version
	})
	for _, e := range p.entries {
		switch edge := EdgeName(p.manifest.Name, p.manifest.Version, e.info.Name); {
		case c.edges[edge] != e:
		case heir >= 0:
			c.edges[edge] = c.old[heir].byName[e.info.Name]
		default:
			delete(c.edges, edge)
		}
	}
}

// whyLocked is the error with which pulls of p end.
func (c *Catalog) whyLocked(p *publication) *status.Error {
	m := &p.manifest
	now := c.publications[m.Name]
	if now == nil {
		return status.Errorf(status.NotFound, "publication %s was withdrawn", quote(m.Name))
	}
	return changed(status.Errorf(status.FailedPrecondition, "publication %s has a newer version: %s (number %d) took the place of %s (number %d) %v ago; pull it again",
		quote(m.Name), now.manifest.Version, now.number, m.Version, m.Number, time.Since(p.retired).Round(time.Second/10)))
}

// tell ends the pulls of publications that are not in the catalog any more, and gives their memory back.
func (c *Catalog) tell(ended []*publication) {
	for _, p := range ended {
		close(p.gone)
		c.mu.RLock()
		open := p.pullsLocked()
		c.mu.RUnlock()
		for _, o := range open {
			o.versionGone()
		}
		p.lent.readers.versionGone()
		c.endKeys(p)
		c.o.Logger.Debug("the old version is not here any more", "publication", p.manifest.Name, "version", p.manifest.Version, "pulls", len(open))
	}
	c.end(ended)
}

// endKeys has what is kept of a version from memory released. A puller need not use the step of its Open.
func (c *Catalog) endKeys(p *publication) {
	if !p.inMemory || c.o.EndKeys == nil {
		return
	}
	m := &p.manifest
	c.mu.RLock()
	now := c.publications[m.Name]
	again := now != nil && now.manifest.Version == m.Version || slices.ContainsFunc(c.old, func(o *publication) bool {
		return o.manifest.Name == m.Name && o.manifest.Version == m.Version
	})
	c.mu.RUnlock()
	if again { // another one has the same keys
		return
	}
	c.o.EndKeys(func(key rendezvous.Key) bool {
		name, version, _, _, ok := parseEdge(key.Edge())
		return ok && name == m.Name && version == m.Version
	})
}

// pullsLocked returns the pulls of p.
func (p *publication) pullsLocked() []*opened { return slices.Collect(maps.Keys(p.opens)) }

// setTimerLocked lets tick run when the line needs it.
func (c *Catalog) setTimerLocked(l *line) {
	at := l.wake()
	switch {
	case at.IsZero() || c.closed:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(at), func() { c.tick(l) })
	default:
		l.timer.Reset(time.Until(at))
	}
}

// tick ends the versions of a line whose time is over.
func (c *Catalog) tick(l *line) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	told := c.endLocked(l, l.tick(time.Now()))
	c.mu.Unlock()
	c.tell(told)
}

// begin finds a publication and counts a pull of it. The caller calls end with its end.
func (c *Catalog) begin(name, version string, o *opened) (p *publication, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, err = c.findLocked(name, version); err != nil {
		return nil, nil, err
	}
	l := c.lineLocked(name)
	l.begin(&p.life)
	p.opens[o] = struct{}{}
	if p.inMemory && !p.retired.IsZero() {
		o.versionReplaced()
	}
	return p, func() {
		c.mu.Lock()
		delete(p.opens, o)
		if c.closed { // Close gives the memory back
			c.mu.Unlock()
			return
		}
		told := c.endLocked(l, l.end(time.Now(), &p.life))
		c.mu.Unlock()
		c.tell(told)
	}, nil
}

// Held returns how many versions of tensors in memory have not given their memory back: the current ones, and those that
// pullers still read.
func (c *Catalog) Held() (current, old int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, l := range c.lines {
		old += len(l.old)
		current += l.held() - len(l.old)
	}
	return current, old
}
