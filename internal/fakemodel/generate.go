// Package fakemodel writes checkpoints for trials: the names, types and shapes of known models, with content
// from a seed.
package fakemodel

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// Options are the options of Generate.
type Options struct {
	// Model is one of Models; Default when empty.
	Model string
	// Seed determines the content: the same model and seed give the same bytes on all
	// machines.
	Seed uint64
	// Shards is the number of files; 0 means the number of the original.
	Shards int
	// Force replaces files that exist.
	Force bool
	// Progress, if not nil, is called a few times a second with the number of bytes of the
	// tensors that are written.
	Progress func(done, total int64)
}

// Generated is the result of Generate.
type Generated struct {
	Model   string
	Tensors int
	Bytes   int64    // of the tensors' content
	Files   []string // paths; the index last
	// Unsynced is that of checkpoint.Summary.
	Unsynced error
}

// Generate writes a checkpoint with the layout of a known model and content from a seed. With
// several shards, or if path is a directory or ends in a slash, the files have their usual names
// in the directory path, which is created if necessary. Otherwise path is the file. Files are
// renamed to their names when they are complete, as with checkpoint.Puller.Save.
func Generate(ctx context.Context, path string, o Options) (*Generated, error) {
	m, err := model(o.Model)
	if err != nil {
		return nil, err
	}
	if o.Shards == 0 {
		o.Shards = m.Shards
	}
	if o.Shards < 1 || o.Shards > len(m.Specs) {
		return nil, status.Errorf(status.InvalidArgument, "%s cannot be split into %d shards: it has %d tensors", m.Name, o.Shards, len(m.Specs))
	}
	dir, err := checkpoint.IsDir(path)
	if err != nil {
		return nil, err
	}
	var above error // why a directory above the new ones could not be synced
	if dir || o.Shards > 1 {
		if above, err = checkpoint.MakeDir(path); err != nil {
			return nil, err
		}
	}
	outputs, err := m.outputs(path, dir, o.Shards)
	if err != nil {
		return nil, err
	}
	made := &Generated{Model: m.Name, Tensors: len(m.Specs), Bytes: m.Bytes}
	var files []checkpoint.NewFile
	for _, out := range outputs {
		files = append(files, out.NewFile)
		made.Files = append(made.Files, out.Path)
	}
	to, err := checkpoint.Create(files, checkpoint.CreateOptions{Force: o.Force, Total: m.Bytes, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	defer to.Discard()
	if err := m.write(ctx, outputs, to, o.Seed); err != nil {
		return nil, err
	}
	unsynced, err := to.Commit()
	if err != nil {
		return nil, err
	}
	made.Unsynced = cmp.Or(above, unsynced)
	return made, nil
}

// ext is the end of the names of checkpoints.
const ext = ".safetensors"

// blockSize is how many bytes are made and written at once.
const blockSize = 1 << 20

// output is a file to write, with the tensors in it.
type output struct {
	checkpoint.NewFile
	tensors []int   // indexes into Specs
	offsets []int64 // of these tensors in the file
}

// outputs plans the files of a model, in the directory path if dir is set or there are several shards.
func (m *Model) outputs(path string, dir bool, shards int) ([]*output, error) {
	if !dir && shards == 1 && !strings.HasSuffix(path, ext) {
		return nil, status.Errorf(status.InvalidArgument, "%s: the name of a checkpoint ends in %s", path, ext)
	}
	if shards == 1 {
		if dir {
			path = filepath.Join(path, "model"+ext)
		}
		out, err := m.output(path, 0, len(m.Specs))
		return []*output{out}, err
	}
	index := &safetensors.Index{TotalSize: m.Bytes, WeightMap: make(map[string]string)}
	var outputs []*output
	begin, written := 0, int64(0)
	for n := range shards {
		// Enough tensors for this shard's part of the bytes, but at least one for this
		// shard and one for each that follows.
		end := begin
		for end < len(m.Specs)-(shards-n-1) && (end == begin || n == shards-1 || written < m.Bytes*int64(n+1)/int64(shards)) {
			written += specBytes(m.Specs[end])
			end++
		}
		name := fmt.Sprintf("model-%05d-of-%05d%s", n+1, shards, ext)
		for _, s := range m.Specs[begin:end] {
			index.WeightMap[s.Name] = name
		}
		out, err := m.output(filepath.Join(path, name), begin, end)
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, out)
		begin = end
	}
	var b bytes.Buffer
	if _, err := index.WriteTo(&b); err != nil {
		return nil, err
	}
	return append(outputs, &output{NewFile: checkpoint.NewFile{Path: filepath.Join(path, safetensors.IndexName), Head: b.Bytes(), Size: int64(b.Len())}}), nil
}

func specBytes(s safetensors.Spec) int64 { return s.Shape.Elements() * int64(s.DType.Size()) }

// output plans a file with the tensors from begin to end.
func (m *Model) output(path string, begin, end int) (*output, error) {
	var head bytes.Buffer
	w, err := safetensors.NewWriter(&head, m.Specs[begin:end], map[string]string{"format": "pt"})
	if err != nil {
		return nil, status.From(err).WithPrefix(path)
	}
	out := &output{NewFile: checkpoint.NewFile{Path: path, Head: head.Bytes(), Size: w.Size()}}
	for n, info := range w.Tensors() {
		out.tensors = append(out.tensors, begin+n)
		out.offsets = append(out.offsets, info.Offset)
	}
	return out, nil
}

// write generates and writes the content of all files, in blocks, on all processors.
func (m *Model) write(ctx context.Context, outputs []*output, to *checkpoint.NewFiles, seed uint64) error {
	g, ctx := errgroup.WithContext(ctx)
	workers := runtime.GOMAXPROCS(0)
	g.SetLimit(workers)
	buffers := make(chan []byte, workers)
	for range workers {
		buffers <- make([]byte, blockSize)
	}
	for n, out := range outputs {
		for k, i := range out.tensors {
			spec := m.Specs[i]
			f := newFiller(seed, spec.Name, spec.DType)
			for at := int64(0); at < specBytes(spec); at += blockSize {
				size := min(specBytes(spec)-at, blockSize)
				g.Go(func() error {
					if ctx.Err() != nil {
						return status.Errorf(status.CodeOf(ctx.Err()), "generating %s was stopped before its end", m.Name)
					}
					buf := <-buffers // as many as goroutines
					defer func() { buffers <- buf }()
					f.fill(buf[:size], at)
					return to.WriteAt(n, buf[:size], out.offsets[k]+at)
				})
			}
		}
	}
	return g.Wait()
}
