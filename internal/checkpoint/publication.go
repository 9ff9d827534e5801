package checkpoint

import (
	"context"
	"hash"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// publication is a published manifest with the sources of its tensors.
type publication struct {
	manifest Manifest
	entries  []*entry // as Manifest.Entries
	byName   map[string]*entry
	files    []*file  // as Manifest.Files
	paths    []string // that the files were found by; nil for tensors in memory

	// described is the manifest as a message. It is made and encoded at the first call, and shared by all
	// calls, so that a call costs neither a copy nor the time to encode it.
	described func() *trystpb.DescribeResponse

	refused atomic.Bool // a pull was refused, which is logged once

	lent *Lent // the memory of tensors in memory; without any for files

	gone chan struct{} // closed when its pulls end
	why  *status.Error // with which they end; set before gone is closed

	// All below are guarded by the catalog's lock.
	life
	opens   map[*opened]struct{} // its pulls
	endedAt time.Time            // when it was taken from the catalog; zero before
}

// newPublication returns a publication without tensors.
func newPublication(name string) *publication {
	p := &publication{
		manifest: Manifest{Publication: Publication{Name: name}},
		lent:     newLent(), gone: make(chan struct{}), opens: make(map[*opened]struct{}),
	}
	p.of = p
	p.described = sync.OnceValue(p.manifest.encoded)
	return p
}

// entry is the source of one published tensor: memory or a file.
type entry struct {
	info *TensorInfo
	at   int            // index in publication.entries
	held *tensor.Tensor // with a reference of the publication; nil for a tensor that is read
	file *file          // nil for a tensor that was published from memory

	edgeLength int // of the edge name of its key; set before the catalog has it

	withdrawn bool // guarded by the loader's lock
	doubted   bool // it was compared since a puller reported it as damaged; guarded by the file's mu
}

// read reads the tensor from its file. The caller releases it.
func (e *entry) read(a tensor.Allocator) (*tensor.Tensor, error) { return e.file.readTensor(e.info, a) }

// fromTensors returns the publication of tensors in memory, each with a
// reference of its own, without digests.
func fromTensors(name string, tensors []*tensor.Tensor) (*publication, error) {
	p := newPublication(name)
	for i, t := range tensors {
		if t == nil {
			return nil, status.Errorf(status.InvalidArgument, "tensor %d is nil", i)
		}
		p.manifest.Entries = append(p.manifest.Entries, TensorInfo{
			Name: t.Name(), DType: t.DType(), Shape: t.Shape(), Bytes: t.Size(),
		})
	}
	if err := p.index(); err != nil {
		return nil, err
	}
	for i, t := range tensors {
		p.entries[i].held = p.lent.take(t)
	}
	p.inMemory = true
	return p, nil
}

// fromFiles returns the publication of the files behind paths, without digests.
func (c *Catalog) fromFiles(name string, paths []string) (*publication, error) {
	var f found
	for _, path := range paths {
		if err := f.discover(path); err != nil {
			return nil, err
		}
	}
	if err := f.distinct(); err != nil {
		return nil, err
	}
	p := newPublication(name)
	p.paths = paths
	headers := make(map[string]*safetensors.Header)
	for i, path := range f.files {
		file, entries, err := inspect(path, c.o.MMap, c.comparisons)
		if err != nil {
			p.close()
			return nil, err
		}
		for _, e := range entries {
			if f.elsewhere(path, e.Name) {
				file.info.Header = nil // a puller writes a header without this tensor
				continue
			}
			e.File = i
			p.manifest.Entries = append(p.manifest.Entries, e)
		}
		p.files = append(p.files, file)
		p.manifest.Files = append(p.manifest.Files, file.info)
		if file.header != nil {
			headers[path] = file.header
		}
	}
	err := f.check(headers)
	if err == nil {
		err = p.index()
	}
	if err == nil {
		err = p.mapTensors()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// index makes the entries of the manifest. It refuses invalid and repeated names.
func (p *publication) index() error {
	m := &p.manifest
	p.byName = make(map[string]*entry, len(m.Entries))
	for i := range m.Entries {
		e := &entry{info: &m.Entries[i], at: i}
		if len(p.files) > 0 {
			e.file = p.files[e.info.File]
		}
		if err := checkName("tensor", e.info.Name); err != nil {
			return err
		}
		if other := p.byName[e.info.Name]; other != nil {
			where := ""
			if e.file != nil {
				where = ": in " + filepath.Base(other.file.path) + " and in " + filepath.Base(e.file.path)
			}
			return status.Errorf(status.AlreadyExists, "there are two tensors %s%s", quote(e.info.Name), where)
		}
		p.byName[e.info.Name] = e
		p.entries = append(p.entries, e)
	}
	return nil
}

// mapTensors sets the tensors of mapped files.
func (p *publication) mapTensors() (err error) {
	for _, e := range p.entries {
		if e.file.mapped == nil {
			continue
		}
		if e.held, err = e.file.mappedTensor(e.info.Name); err != nil {
			return err
		}
	}
	return nil
}

// close releases the tensors and files of the publication. It is called once.
func (p *publication) close() {
	defer p.lent.returned()
	for _, e := range p.entries {
		if e.held != nil {
			e.held.Release()
		}
	}
	for _, f := range p.files {
		f.close()
	}
}

// isRead reports whether anything beside the publication refers to its tensors in memory.
func (p *publication) isRead() bool {
	return slices.ContainsFunc(p.entries, func(e *entry) bool { return e.held != nil && !e.held.Buffer().Unique() })
}

// digest reads all tensors and sets their digests in the manifest. It uses one goroutine for
// each processor.
func (p *publication) digest(ctx context.Context, newHash func() hash.Hash, a tensor.Allocator, report func(done, total int64)) error {
	count := &counter{report: report}
	for _, e := range p.entries {
		count.total += e.info.Bytes
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range p.entries {
		g.Go(func() error {
			sum, err := e.digest(ctx, newHash(), a, count)
			if err != nil {
				return err
			}
			e.info.Digest = sum
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// From now on a file that was touched is compared with these.
	for _, f := range p.files {
		f.newHash, f.tensors = newHash, []*TensorInfo{}
	}
	for _, e := range p.entries {
		if e.file != nil {
			e.file.tensors = append(e.file.tensors, e.info)
		}
	}
	return nil
}

func (e *entry) digest(ctx context.Context, h hash.Hash, a tensor.Allocator, count *counter) (sum []byte, err error) {
	each := func(n int64) error {
		count.add(n)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	if ctx.Err() != nil {
		return nil, status.From(context.Cause(ctx))
	}
	if e.held != nil {
		defer count.add(e.info.Bytes)
		return digestOf(h, e.held), nil
	}
	buf, err := a.Allocate(digestChunk)
	if err != nil {
		return nil, err
	}
	defer buf.Release()
	err = e.file.read(func(r *os.File) (err error) {
		sum, err = e.file.digest(r, e.info, h, buf.Bytes()[:digestChunk], a, each)
		return err
	})
	if err != nil {
		return nil, wrap("tensor "+quote(e.info.Name), err)
	}
	return sum, nil
}
