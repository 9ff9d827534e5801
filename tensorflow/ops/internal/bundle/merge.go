package bundle

import (
	"context"
	"errors"
	"io/fs"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// merger makes one bundle of several.
type merger struct {
	to      Prefix
	entries map[string]*tfpb.BundleEntryProto
	memory  budget
	// shards are the data files, which are renamed, with their numbers in the merged bundle.
	shards map[place]int32
	files  []file // by number
}

// Merge makes one bundle of several below the same root: it renames their data files, writes one index, and removes
// the others. Without an error the merged bundle is on the disk. It returns TensorFlow's errors. What the indexes
// take in memory is reserved in the allocator. With allowMissing at least one of the bundles must exist.
func Merge(ctx context.Context, from []Prefix, to Prefix, allowMissing bool, memory tensor.Allocator) error {
	m := &merger{to: to, entries: map[string]*tfpb.BundleEntryProto{}, shards: map[place]int32{}, memory: budget{from: memory}}
	defer m.memory.release()
	if err := m.memory.take(bufferSize); err != nil {
		return err
	}
	if err := to.directory().makeDirectory(); err != nil {
		return err
	}
	var found []Prefix
	for _, p := range from {
		if p.Root != to.Root {
			return unsupported("%s and %s are below different directories for files: a file cannot be renamed from one to the other", p.Name, to.Name)
		}
		exists, err := p.Exists()
		switch {
		case err != nil:
			return err
		case !exists && !allowMissing:
			return invalid("allow_missing_files was set to false and %s did not exist", p.Name)
		case exists:
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return invalid("At least one prefix checkpoint file must exist, but none existed.")
	}
	for _, p := range found {
		if err := m.read(ctx, p, memory); err != nil {
			return err
		}
	}
	if err := m.rename(ctx); err != nil {
		return err
	}
	if err := writeIndex(ctx, to, header(int32(len(m.files))), m.entries); err != nil { //nolint:gosec // as in add
		return err
	}
	for _, p := range found {
		if p.index().place() != to.index().place() {
			_ = p.Root.Remove(p.index().path) // as in TensorFlow; the merged bundle is complete
		}
	}
	return nil
}

// read adds the entries of a bundle.
func (m *merger) read(ctx context.Context, p Prefix, memory tensor.Allocator) error {
	r, err := Open(p, memory)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.table.each(ctx, func(key, value []byte) error {
		if len(key) == 0 {
			return nil // the header
		}
		if err := m.memory.take(entryBytes + int64(len(key)) + entryGrowth*int64(len(value))); err != nil {
			return err
		}
		e := new(tfpb.BundleEntryProto)
		if err := parseMessage(r.table.name, string(key), value, e); err != nil {
			return err
		}
		return m.add(r, string(key), e)
	})
}

// add adds an entry of the bundle that r reads.
func (m *merger) add(r *Reader, key string, e *tfpb.BundleEntryProto) error {
	if _, err := entryOf(r.table.name, key, e); err != nil {
		return err
	}
	if have := m.entries[key]; have != nil {
		switch {
		case len(have.GetSlices()) == 0:
			return invalid("Duplicate tensor keyed by %s encountered, when merging prefix: %s", quote(key), r.prefix.Name)
		case len(e.GetSlices()) == 0:
			return status.Errorf(status.Internal, "Duplicate tensor keyed by %s; attempting to merge in a non-slice bundle entry", quote(key))
		case len(have.GetSlices())+len(e.GetSlices()) > maxSlices:
			return invalid("key %s has more than %d parts, when merging prefix: %s", quote(key), maxSlices, r.prefix.Name)
		}
		if err := checkParts(key, have, int32(e.GetDtype()), e.GetShape()); err != nil {
			return err
		}
		have.Slices = append(have.Slices, e.GetSlices()...)
		return nil
	}
	m.entries[key] = e
	if len(e.GetSlices()) > 0 { // nothing of it is in a data file
		return nil
	}
	if e.GetShardId() >= r.shards {
		return damaged("%s: key %s is in data file %d of %d", r.table.name, quote(key), e.GetShardId(), r.shards)
	}
	at := r.prefix.data(e.GetShardId(), r.shards)
	id, ok := m.shards[at.place()]
	if !ok {
		if err := m.memory.take(int64(entryBytes + 2*len(at.path) + 2*len(at.name))); err != nil {
			return err
		}
		id = int32(len(m.files)) //nolint:gosec // each takes entryBytes
		m.shards[at.place()], m.files = id, append(m.files, at)
	}
	e.ShardId = id
	return nil
}

// rename gives the data files their new names. It begins when all are there.
func (m *merger) rename(ctx context.Context) error {
	for i, f := range m.files {
		if err := ctx.Err(); err != nil {
			return status.From(err)
		}
		to := m.to.data(int32(i), int32(len(m.files))) //nolint:gosec // as in add
		if id, ok := m.shards[to.place()]; ok && int(id) != i {
			return invalid("%s is a data file of a bundle to merge, and the name of another one in the merged bundle; merge into another prefix", to.name)
		}
		if _, err := f.root.Stat(f.path); err != nil {
			return f.failed(err)
		}
	}
	for i, f := range m.files {
		if err := f.root.Rename(f.path, m.to.data(int32(i), int32(len(m.files))).path); err != nil { //nolint:gosec // as in add
			return f.failed(err)
		}
	}
	return nil
}

// RemoveDirectory removes the directory of a bundle if it is empty, and is not that of another one.
func RemoveDirectory(of, not Prefix) error {
	d := of.directory()
	if d.place() == not.directory().place() || d.place().path == "." {
		return nil
	}
	info, err := d.root.Lstat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return d.failed(err)
	case !info.IsDir(): // a link stays, as in TensorFlow
		return status.Errorf(status.FailedPrecondition, "%s; Not a directory", d.name)
	}
	if err := d.root.Remove(d.path); err != nil {
		return d.failed(err)
	}
	return nil
}
