package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// files is the sink of a pull that writes files. A part is written to its place and recorded in
// the journal when it has come; when a tensor is whole, its digest is checked:
//
//	part ─► digest, if it is the next one ─► .part ─► journal ─► digest, as far as the tensor has come without gaps
//
// A whole tensor has been checked before it comes here.
type files struct {
	pl      *pull
	targets []*target     // of the files to write
	spots   map[int]*spot // by tensor
	left    []string      // .part files that stay after a failure
	reserve reserve       // of targets
}

// spot is the place of one tensor.
type spot struct {
	*target
	*TensorInfo
	out *output
	i   int   // index in Manifest.Entries
	off int64 // of the content in the file

	assembly
	earlier int64 // of its bytes, from an earlier pull and not sent again; guarded by mu
}

func newFiles(pl *pull) *files {
	return &files{pl: pl, spots: make(map[int]*spot, len(pl.chosen))}
}

// write opens the files, pulls what is missing in them, and gives them their names.
func (fs *files) write(ctx context.Context, outputs []*output, o SaveOptions) (*Summary, error) {
	pl := fs.pl
	if err := fs.openAll(ctx, outputs, o); err != nil {
		return nil, err
	}
	pl.limit(min(pl.req.InflightBytes, resentBytes))
	if err := pl.fetch(ctx, fs); err != nil {
		return nil, err
	}
	unsynced, err := commitAll(fs.targets)
	if err != nil {
		return nil, err
	}
	sum := pl.summary()
	sum.Unsynced = cmp.Or(pl.unsynced, unsynced)
	for _, out := range outputs {
		sum.Files = append(sum.Files, out.path)
	}
	return &sum, nil
}

// openAll opens the files and verifies what an earlier pull has written. Nothing is overwritten
// before all files are locked, and those that exist are found to be finished.
func (fs *files) openAll(ctx context.Context, outputs []*output, o SaveOptions) error {
	outputs, exist, err := fs.split(outputs, o)
	if err != nil {
		return err
	}
	found := make([][]claim, len(outputs))
	anew := make([]error, len(outputs))
	count := &counter{report: o.Verifying}
	for n, out := range outputs {
		t, claims, why, err := fs.open(out, o)
		if err != nil {
			return err
		}
		t.reserve = &fs.reserve
		slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Compare(a.off, b.off) })
		fs.targets, found[n], anew[n] = append(fs.targets, t), claims, why
		fs.place(t, out)
		for _, i := range out.entries {
			count.total += rangesOf(fs.spots[i].claimed(claims)).size()
		}
	}
	for _, out := range exist {
		fs.place(nil, out)
		for _, i := range out.entries {
			count.total += fs.spots[i].Bytes
		}
	}
	for _, out := range exist {
		if err := fs.finished(ctx, out, count, o.Found); err != nil {
			return err
		}
	}
	sizes := make([]int64, len(outputs))
	for n, out := range outputs {
		sizes[n] = out.size
	}
	if err := checkSpace(fs.targets, sizes); err != nil {
		return err
	}
	for n, out := range outputs {
		if err := fs.prepare(fs.targets[n], out); err != nil {
			return err
		}
	}
	for n, out := range outputs {
		if err := fs.resume(ctx, out, found[n], anew[n], count, o.Found); err != nil {
			return err
		}
	}
	return nil
}

// place makes the places of the tensors of an output in its target.
func (fs *files) place(t *target, out *output) {
	for _, i := range out.entries {
		fs.spots[i] = &spot{target: t, TensorInfo: &fs.pl.manifest.Entries[i], out: out, i: i, off: out.offsets[i]}
	}
}

// open opens the target of an output.
func (fs *files) open(out *output, o SaveOptions) (t *target, claims []claim, anew, err error) {
	if o.NoResume || !out.resumable() {
		t, err = lockTarget(out.path, o.Force)
		return t, nil, nil, err
	}
	return openTarget(out.path, o.Force, o.older, fs.pl.manifest.planOf(out))
}

// resumable reports whether a later pull can go on with the file: only if its layout is known.
func (o *output) resumable() bool { return len(o.entries) > 0 && o.head != nil && o.array == nil }

// prepare begins the file unless an earlier pull did.
func (fs *files) prepare(t *target, out *output) error {
	m := fs.pl.manifest
	if !t.ours {
		var p *plan
		if out.resumable() {
			p = new(plan)
			*p = m.planOf(out)
		}
		if err := t.begin(out.size, p); err != nil {
			return err
		}
	}
	return t.writeAt(out.head, 0)
}

// close closes the targets that have not got their names.
func (fs *files) close() {
	for _, t := range fs.targets {
		if t.leave() {
			fs.left = append(fs.left, t.path+partExt)
		}
	}
	fs.targets = nil
}

// kept closes the targets, and adds to the error of the pull what stays on the disk, and what the
// same pull will do with it.
func (fs *files) kept(err error) error {
	all, named := len(fs.targets), 0
	for _, t := range fs.targets {
		if t.named {
			named++
		}
	}
	fs.close()
	fs.left = slices.DeleteFunc(fs.left, func(path string) bool { // gone with its directory, for instance
		_, err := os.Lstat(path)
		return err != nil
	})
	if len(fs.left) == 0 {
		return err
	}
	what := fs.left[0]
	if n := len(fs.left); n > 1 {
		what = fmt.Sprintf("%d files like %s", n, what)
	}
	e := status.From(err)
	next := ": the same pull goes on with it, --no-resume begins anew"
	if _, ok := e.Payload(changedKey); ok {
		next = ", which is of the version before: --no-resume begins anew"
	} else if named > 0 {
		next = fmt.Sprintf(": %d of %d files have their names; the same pull goes on with the rest", named, all)
		if fs.pl.newHash == nil { // it cannot recognise them
			next += " and needs --force"
		}
	}
	return e.WithSuffix("; what has come is in " + what + next + "; to give up, remove it and its " + journalExt[1:])
}

func (fs *files) missing() (missing []int) {
	for _, i := range fs.pl.chosen {
		s := fs.spots[i]
		s.mu.Lock()
		if !s.done {
			missing = append(missing, i)
		}
		s.mu.Unlock()
	}
	return missing
}

func (fs *files) has(p part) bool {
	s := fs.spots[p.i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done || !p.whole() && s.have.covers(p.piece)
}

// weight returns what a part takes in memory until it is written.
func (fs *files) weight(p part) int64 {
	if p.whole() {
		return fs.pl.share(fs.spots[p.i].Bytes)
	}
	return fs.pl.share(p.n)
}

func (fs *files) begin(part) {}

func (fs *files) lost(p part) int64 { return fs.weight(p) }

// into returns nil: a part is written to the file from memory of the transport.
func (fs *files) into(context.Context, part) (*rendezvous.Into, error) { return nil, nil }

func (fs *files) take(p part, t *tensor.Tensor) (again bool, err error) {
	defer fs.pl.window.Release(fs.weight(p))
	defer t.Release()
	s := fs.spots[p.i]
	if s.journal == nil {
		if err := s.wrap("writing", s.out.encode(io.NewOffsetWriter(s.file, int64(len(s.out.head))), t)); err != nil {
			return false, err
		}
		s.finish()
		fs.pl.came(p.i, s.Bytes, true)
		return false, nil
	}
	b := t.Bytes()
	// All hashes come before the write, while the processor's cache has the content.
	if !p.whole() {
		fs.pl.ahead(&s.assembly, p.piece, b)
	}
	record := claim{piece{s.off + p.off, int64(len(b))}, fs.pl.sum(p, b)}
	if err := s.writeAt(b, record.off); err != nil {
		return false, err
	}
	if len(b) > 0 {
		s.journal.record(record)
	}
	if p.whole() {
		n := s.finish()
		fs.sentAgain(s)
		fs.pl.came(p.i, n, true)
		return false, nil
	}
	fs.pl.came(p.i, p.n, false)
	switch made, err := fs.pl.add(&s.assembly, s.TensorInfo, p.piece, b, s.read); { // reads from the kernel's cache
	case err != nil:
		return false, err
	case made == complete:
		fs.pl.came(p.i, 0, true)
	case made == anew:
		fs.sentAgain(s)
		fs.pl.came(p.i, -s.Bytes, false)
		return true, nil
	}
	return false, nil
}

// patch implements sink. For deltas the base is read from its file into the memory in which the tensor is made.
func (fs *files) patch(ctx context.Context, p part, deltas []*tensor.Tensor) (ok bool, err error) {
	if fs.copies(p) {
		return fs.copy(ctx, p)
	}
	s := fs.spots[p.i]
	t, made := fs.make(p, s, deltas)
	if t == nil || !made || s.journal == nil {
		if t != nil {
			t.Release()
		}
		fs.pl.window.Release(fs.weight(p))
		return false, nil
	}
	_, err = fs.take(p, t)
	return err == nil, err
}

// make makes a tensor in memory.
func (fs *files) make(p part, s *spot, deltas []*tensor.Tensor) (t *tensor.Tensor, made bool) {
	if p.way == nil || p.way.read == nil {
		return nil, false
	}
	t, err := tensor.Allocate(fs.pl.p.o.Allocator, s.DType, s.Shape)
	if err != nil || p.way.read(t.Bytes(), 0) != nil {
		return t, false
	}
	p.way.base = t
	return t, fs.pl.make(p, t.Bytes(), deltas)
}

// sentAgain takes note that nothing of a tensor counts that an earlier pull wrote.
func (fs *files) sentAgain(s *spot) {
	s.mu.Lock()
	n := s.earlier
	s.earlier = 0
	s.mu.Unlock()
	fs.pl.mu.Lock()
	fs.pl.resumed -= n
	fs.pl.mu.Unlock()
}

// finish marks a tensor that has come as a whole. It returns how many of its bytes are new.
func (s *spot) finish() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.Bytes - s.have.size()
	s.done = true
	return n
}

// read writes a piece of the tensor, as it is in the file, to a hash.
func (s *spot) read(h hash.Hash, p piece) error { return s.readEach(h, p, nil) }

// readEach is read that calls each, if not nil, as hashRange does.
func (s *spot) readEach(h hash.Hash, p piece, each func(n int64) error) error {
	return s.wrap("reading", hashRange(h, s.file, piece{s.off + p.off, p.n}, make([]byte, min(p.n, digestChunk)), each))
}
