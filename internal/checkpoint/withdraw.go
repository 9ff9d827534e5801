package checkpoint

import (
	"context"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Withdraw ends a publication, with its old versions: their pulls end with NotFound. Lent says when the memory of
// all of them is its owner's again. An unknown name is NotFound. If ctx has ended, the publication stays.
func (c *Catalog) Withdraw(ctx context.Context, name string) (*Lent, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap("withdrawing "+quote(name), status.From(err))
	}
	c.mu.Lock()
	p, err := c.findLocked(name, "")
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	l := c.lineLocked(name)
	delete(c.publications, name)
	c.listed = nil
	told := c.endLocked(l, l.withdraw(time.Now(), newEpoch()))
	lent := c.lentLocked(l, p)
	told = append(told, c.endFilesLocked(name, p)...)
	l.deltas.clear()
	l.changedLocked()
	c.forgetLocked(l)
	c.mu.Unlock()
	c.tell(told)
	c.o.Logger.Info("withdrawn", "publication", name, "version", p.manifest.Version)
	return lent, nil
}

// lentLocked returns what says when all memory of the line is back, p being its last version.
func (c *Catalog) lentLocked(l *line, p *publication) *Lent {
	all := make([]*Lent, 0, maxHeld)
	for _, v := range l.old {
		all = append(all, v.of.lent)
	}
	return allLent(p.manifest.Publication, all)
}

// endFilesLocked takes the publications of files with a name from the catalog, as endLocked does: p, if it is one,
// and those that were replaced.
func (c *Catalog) endFilesLocked(name string, p *publication) (told []*publication) {
	if !p.inMemory {
		told = append(told, p)
	}
	c.old = slices.DeleteFunc(c.old, func(old *publication) bool {
		if old.manifest.Name == name {
			told = append(told, old)
		}
		return old.manifest.Name == name
	})
	for _, p := range told {
		p.why, p.endedAt = c.whyLocked(p), time.Now()
		c.removeLocked(p)
	}
	return told
}
