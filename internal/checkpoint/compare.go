package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A published file whose modification time has changed may only have been touched. Then its content
// is compared with what was published. A writer may set the modification time back, so a new pull looks at
// the time of the inode, too: what a pull has found damaged, the next one finds here. Where that time is
// the same as well, only a puller's report shows it.
//
//	examine ─ in the published state? ───────────────────────► nil
//	  └─ of another size, or found to be damaged? ───────────► error
//	       └─ comparison, one goroutine for each file ─► wait ─► nil or error
//	doubt ─ comparison of one tensor, once ────────────► wait ─► nil or error
//
// A large file takes minutes. Meanwhile no lock and no reader of the loader is held.

// comparisons are those of one catalog.
type comparisons struct {
	slots   chan struct{}   // holds a value for each comparison that reads
	closing <-chan struct{} // when it is closed, comparisons end early
	all     sync.WaitGroup
}

// newComparisons returns comparisons of which as many read at once as there are processors.
func newComparisons(closing <-chan struct{}) *comparisons {
	return &comparisons{slots: make(chan struct{}, runtime.GOMAXPROCS(0)), closing: closing}
}

// comparison is a comparison of a file's content in progress. It is an error to readers: they must
// wait for it and read again.
type comparison struct {
	state   fs.FileInfo   // of the file when the comparison began
	tensors []*TensorInfo // of the file: all, or the one that a puller reports as damaged
	done    chan struct{}
	err     error // set before done is closed; nil if the content is the published one
}

func (*comparison) Error() string { return "the content is being compared with what was published" }

// wait returns the result.
func (c *comparison) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return status.From(context.Cause(ctx))
	}
}

// pending returns the comparison that err is, or nil.
func pending(err error) *comparison {
	var c *comparison
	_ = errors.As(err, &c)
	return c
}

// check returns an error if the content of the file is not the published one any more. If only the
// content can tell, the error is a comparison. It does not read the content itself.
func (f *file) check() error {
	f.open.RLock()
	defer f.open.RUnlock()
	return f.examine(true)
}

// examine is check for callers that hold open. Only a strict one looks at the time of the inode: that
// changes when another file gets the name of a published one, and each read would then be a comparison.
func (f *file) examine(strict bool) error {
	if f.r == nil {
		return f.withdrawn()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.r.Stat()
	switch {
	case err != nil:
		return f.failed(err)
	case f.isDamagedLocked(now):
		return f.changedLocked(now)
	case sameState(now, f.stat) && (!strict || sameChange(now, f.stat)):
		return nil
	case f.tensors == nil:
		return beingWritten(f.info.Name)
	case now.Size() != f.stat.Size():
		return f.changedLocked(now)
	}
	if f.comparing == nil {
		f.beginLocked(now, f.tensors)
	}
	return f.comparing
}

// doubt begins a comparison of one tensor, which a puller reports as damaged, although nothing shows that
// the file was written: some file systems and writes through a mapping leave all times as they are. It
// compares each tensor once, so that no puller makes the server read for ever. It returns the comparison
// of the file that is in progress, or nil.
func (f *file) doubt(e *entry) *comparison {
	f.open.RLock()
	defer f.open.RUnlock()
	if f.r == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.doubted || f.comparing != nil {
		return f.comparing
	}
	if now, err := f.r.Stat(); err == nil && f.isPublishedLocked(now) { // else check finds it, and one tensor is not enough
		e.doubted = true
		f.beginLocked(now, []*TensorInfo{e.info})
	}
	return f.comparing
}

// beginLocked begins a comparison of tensors. The caller holds open, too.
func (f *file) beginLocked(now fs.FileInfo, tensors []*TensorInfo) {
	c, r := &comparison{state: now, tensors: tensors, done: make(chan struct{})}, f.r
	f.comparing = c
	f.comparisons.all.Go(func() { f.compare(r, c) })
}

// compare does a comparison. It reads r without open, so that close does not wait for it: reading a
// closed file is an error.
func (f *file) compare(r *os.File, c *comparison) {
	same, err := f.sameContent(r, c.tensors)
	f.mu.Lock()
	c.err = f.concludeLocked(r, c.state, same, err)
	f.comparing = nil
	f.mu.Unlock()
	close(c.done)
}

func (f *file) concludeLocked(r *os.File, state fs.FileInfo, same bool, err error) error {
	var after fs.FileInfo
	if err == nil {
		after, err = r.Stat()
	}
	switch {
	case errors.Is(err, os.ErrClosed):
		return f.withdrawn()
	case err != nil:
		return f.failed(err)
	case !sameState(state, after) || !sameChange(state, after): // it is being written
		return f.changedLocked(after)
	case !same:
		f.damaged = state
		return f.changedLocked(state)
	}
	f.stat = state
	return nil
}

// sameContent reads the header and tensors of the file and compares them with what is published.
func (f *file) sameContent(r *os.File, tensors []*TensorInfo) (bool, error) {
	select {
	case f.comparisons.slots <- struct{}{}:
		defer func() { <-f.comparisons.slots }()
	case <-f.comparisons.closing:
		return false, errClosed()
	}
	head, err := headDigest(r, f.headSize)
	if err != nil || head != f.head {
		return false, err
	}
	buf := make([]byte, digestChunk)
	for _, e := range tensors {
		sum, err := f.digest(r, e, f.newHash(), buf, tensor.Heap{}, func(int64) error {
			select {
			case <-f.comparisons.closing:
				return errClosed()
			default:
				return nil
			}
		})
		if err != nil || !bytes.Equal(sum, e.Digest) {
			return false, err
		}
	}
	return true, nil
}

// unchanged checks that the files of the given entries have not changed, and waits for their
// comparisons, and for that of the entry that a puller reports as damaged; nil for none.
func unchanged(ctx context.Context, entries []*entry, damaged *entry) error {
	var all []*comparison
	var last *file
	for _, e := range entries {
		if e.file == nil || e.file == last {
			continue // checked already: the entries of a file are consecutive
		}
		last = e.file
		if ctx.Err() != nil {
			return status.From(context.Cause(ctx))
		}
		err := e.file.check()
		if c := pending(err); c != nil {
			all = append(all, c)
		} else if err != nil {
			return err
		}
	}
	if damaged != nil && damaged.file != nil {
		if c := damaged.file.doubt(damaged); c != nil {
			all = append(all, c)
		}
	}
	for _, c := range all {
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
