package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// The files of a publication may be replaced. The catalog holds the published ones open, so the
// publication stays as it is until other files are taken:
//
//	other files are renamed onto all names ─ watch sees them twice, Settle apart ─┐
//	SIGHUP ─ Reload ─ the files have not changed for Settle ──────────────────────┴─► reload
//
// reload reads the files anew and computes their digests. The result takes the place of the old
// publication, which is retired. Pulls of it go on, except for files that were written in place:
// their published content is lost. It is closed when it has had no pull for linger, by the watch or,
// if Settle is negative, at the next Reload.

// Reload reads the files of all publications again, and takes what has changed, also files that
// were written in place. Each changed publication gets a new version. Pulls in progress go on with
// the old files, except with those that were written in place: they get FailedPrecondition. A
// publication that cannot be read, or whose files change meanwhile, stays as it is and is named in
// the error. Reload logs how many have changed, also if none has.
func (c *Catalog) Reload(ctx context.Context) error {
	var errs []error
	all, changed := c.current(), 0
	for _, p := range all {
		anew, err := c.reload(ctx, p, false)
		if anew {
			changed++
		}
		if err != nil {
			if ctx.Err() != nil {
				return errors.Join(append(errs, err)...)
			}
			err = wrap("publishing "+quote(p.manifest.Name)+" again", err)
			c.o.Logger.Warn("the old version stays published; correct its files and send SIGHUP again", "publication", p.manifest.Name, "version", p.manifest.Version, "reason", err)
			errs = append(errs, err)
		}
	}
	c.dropIdle(time.Now())
	c.o.Logger.Info("read all publications again", "changed", changed, "unchanged", len(all)-changed-len(errs), "failed", len(errs))
	return errors.Join(errs...)
}

// current returns the publications of files, sorted by name.
func (c *Catalog) current() []*publication {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*publication
	for _, p := range c.publications {
		if p != nil && len(p.paths) > 0 {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *publication) int { return byName(a.manifest.Publication, b.manifest.Publication) })
	return all
}

// reload publishes the files of old again, and reports whether their content is another one. settled
// means that they have not changed for a while.
func (c *Catalog) reload(ctx context.Context, old *publication, settled bool) (changed bool, err error) {
	select {
	case c.reloading <- struct{}{}: // one at a time, for the disk and the processors
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-c.reloading }()
	begin := time.Now()
	p, err := c.fromFiles(old.manifest.Name, old.paths)
	if err != nil {
		return false, err
	}
	if p.sameFiles(old) {
		p.close()
		return false, nil
	}
	if !settled {
		err = c.settle(ctx, p)
	}
	if err == nil {
		err = c.complete(ctx, p)
	}
	if err == nil {
		err = p.steady()
	}
	if err == nil {
		err = c.replace(old, p)
	}
	if err != nil {
		p.close()
		return false, err
	}
	if p.manifest.Version == old.manifest.Version {
		c.o.Logger.Debug("the files have the same content", "publication", p.manifest.Name, "version", p.manifest.Version)
		return false, nil
	}
	c.logPublished(p, begin, "replaces", old.manifest.Version)
	return true, nil
}

// settle waits for Settle and returns an error if the files have changed meanwhile.
func (c *Catalog) settle(ctx context.Context, p *publication) error {
	if c.o.Settle > 0 {
		t := time.NewTimer(c.o.Settle)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return p.steady()
}

// steady returns an error if a file has changed since it was opened.
func (p *publication) steady() error {
	for _, f := range p.files {
		now, err := os.Stat(f.path)
		if err != nil {
			return wrap(f.path, bare(err))
		}
		if !sameState(now, f.published()) {
			return beingWritten(f.path)
		}
	}
	return nil
}

// sameFiles reports whether two publications have the same files in the same state, in the same
// directories, and those of old have not been found damaged in it.
func (p *publication) sameFiles(old *publication) bool {
	return slices.EqualFunc(p.files, old.files, func(a, b *file) bool {
		return a.path == b.path && b.isPublished(a.published()) && os.SameFile(a.dir, b.dir)
	})
}

// replacement is what has the names of a publication's files now.
type replacement struct {
	states []fs.FileInfo // of all files
	old    []string      // the tensor files that must be replaced before the others are taken
}

// replaced returns what has the names of p's files now, if it is not all the published ones. It
// returns nil while a file is missing.
//
// Files that are renamed one after another must not meet in one version. So all tensor files must be
// replaced, or the directory that has them. An index that was replaced after all of them, as
// programs write it, says that the others of its directory stay.
func (p *publication) replaced() *replacement {
	r := &replacement{}
	anew := make([]bool, len(p.files)) // another file has the name, or another directory has the file
	indexed := make(map[string]time.Time)
	var last time.Time // when the last tensor file was replaced
	for i, f := range p.files {
		now, err := os.Stat(f.path)
		if err != nil || !now.Mode().IsRegular() {
			return nil
		}
		dir, err := os.Stat(filepath.Dir(f.path))
		if err != nil {
			return nil
		}
		r.states = append(r.states, now)
		other := !os.SameFile(now, f.published())
		anew[i] = other || !os.SameFile(dir, f.dir)
		if at, ok := changeTime(now); ok && other {
			if f.info.Format == FormatIndex {
				indexed[filepath.Dir(f.path)] = at
			} else if at.After(last) {
				last = at
			}
		}
	}
	if !slices.Contains(anew, true) {
		return nil
	}
	for i, f := range p.files {
		at, ok := indexed[filepath.Dir(f.path)]
		if !anew[i] && f.info.Format != FormatIndex && (!ok || at.Before(last)) {
			r.old = append(r.old, f.info.Name)
		}
	}
	return r
}

// successor is what the watch knows of the files that have the names of a publication's files now.
type successor struct {
	states  []fs.FileInfo // when they were last seen
	since   time.Time     // when they were first seen in this state
	waits   bool          // it was logged that some files are old
	refused time.Time     // when they could last not be taken; zero if they were not tried
	reason  string        // that was logged
}

// watch looks at the files of all publications every Settle, until ctx ends.
func (c *Catalog) watch(ctx context.Context) {
	seen := make(map[*publication]successor)
	tick := time.NewTicker(c.o.Settle)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		last := seen
		seen = make(map[*publication]successor)
		for _, p := range c.current() {
			if now := p.replaced(); now != nil {
				seen[p] = c.look(ctx, p, now, last[p])
			}
		}
		c.dropIdle(time.Now())
	}
}

// look takes the files that have the names of p's files now, unless they have changed since the last
// look: they may still be written. What was refused is tried again later, since a new index may come
// before its files.
func (c *Catalog) look(ctx context.Context, p *publication, now *replacement, last successor) successor {
	seen := successor{states: now.states, since: time.Now(), waits: last.waits, reason: last.reason}
	if !slices.EqualFunc(now.states, last.states, sameState) {
		return seen
	}
	if len(now.old) > 0 {
		return c.wait(p, now.old, last)
	}
	if !last.refused.IsZero() && time.Since(last.refused) < refusedPause {
		return last
	}
	_, err := c.reload(ctx, p, true)
	switch {
	case err == nil || ctx.Err() != nil:
		return successor{}
	case status.CodeOf(err) == status.FailedPrecondition: // it was written meanwhile
		return seen
	case err.Error() != last.reason:
		c.o.Logger.Warn("another file has the name of a published one, and cannot be taken; the old version stays published until it is correct",
			"publication", p.manifest.Name, "version", p.manifest.Version, "reason", err)
	}
	seen.refused, seen.reason = time.Now(), err.Error()
	return seen
}

// wait logs once which files are old, when the others have stood still for longer than a copy of the
// next file usually takes.
func (c *Catalog) wait(p *publication, old []string, last successor) successor {
	if last.waits || time.Since(last.since) < refusedPause {
		return last
	}
	last.waits = true
	c.o.Logger.Warn("some files of a publication were replaced, and others are old; the old version stays published until all are replaced, or SIGHUP",
		"publication", p.manifest.Name, "version", p.manifest.Version, "old", len(old), "of", len(p.files),
		"files", strings.Join(old[:min(len(old), suggestions)], ", "))
	return last
}

// replace puts p in the place of old, which is retired.
func (c *Catalog) replace(old, p *publication) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed()
	case c.publications[old.manifest.Name] != old:
		return status.New(status.FailedPrecondition, "it was withdrawn meanwhile")
	}
	l := c.lineLocked(p.manifest.Name)
	number := l.number
	if p.manifest.Version != old.manifest.Version {
		number++
	}
	l.enter(time.Now(), &p.life, number, false) // files hold no memory, so there is room, and nothing ends
	c.enteredLocked(l, p)
	return nil
}

// dropIdle closes the retired publications of files that have had no pull for linger. The watch and Reload
// call it.
func (c *Catalog) dropIdle(now time.Time) {
	var idle []*publication
	c.mu.Lock()
	c.old = slices.DeleteFunc(c.old, func(p *publication) bool {
		if p.inMemory || p.pulls > 0 || now.Sub(p.retired) < linger || now.Sub(p.idle) < linger {
			return false
		}
		idle = append(idle, p)
		c.removeLocked(p)
		return true
	})
	c.mu.Unlock()
	c.end(idle)
	for _, p := range idle {
		c.o.Logger.Debug("the old version is not here any more", "publication", p.manifest.Name, "version", p.manifest.Version)
	}
}
