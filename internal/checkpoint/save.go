package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// SaveOptions are the options of Save.
type SaveOptions struct {
	// Out is a file or a directory.
	//
	//   - An existing directory, or a path that ends in a slash: Save writes the files of the
	//     publication under their names, and the index if one was published. Tensors that
	//     were published from memory are written to NAME.safetensors.
	//   - A path that ends in .npy: Save writes one tensor.
	//   - Any other path: Save writes one safetensors file. Tensors of several files are
	//     in the order of safetensors.Sort, with the metadata of all files. Where metadata
	//     contradicts, the first file counts.
	//
	// If all tensors of a safetensors file, and no others, are written to a file, that file
	// has the same bytes.
	Out string
	// Force replaces files that exist.
	Force bool
	// NoResume begins files anew although an earlier pull has left a part of them, of whatever
	// version.
	NoResume bool
	// Found, if not nil, is called for each file of which an earlier pull has left a part,
	// before anything is transferred.
	Found func(Found)
	// Verifying, if not nil, is called while what an earlier pull has left is read and compared,
	// ten times a second, with the bytes that were read and all that will be.
	Verifying func(done, total int64)
	// older begins files anew of which an earlier pull of another version has left a part.
	older bool
}

// Found is what an earlier pull has left of a file.
type Found struct {
	Path  string // of the .part, or of a file that is finished
	Bytes int64  // of its tensors; these are not transferred again
	// Err says why nothing of it can be used; nil if it is used.
	Err error
}

// output is a file to write.
type output struct {
	path    string
	entries []int  // indexes in Manifest.Entries
	head    []byte // what stands before the first tensor; nil for strings whose array has no header yet
	offsets map[int]int64
	size    int64 // of the file
	// array encodes the elements of an .npy file that are not written as a tensor has them;
	// nil for others.
	array *npy.File
}

// Save pulls tensors into files. It writes each file as PATH.part while tensors arrive, in any
// order, and renames it when it is complete and on the disk. If the pull fails, or the process is
// killed, the .part and its journal PATH.part.journal stay. A later Save of the same version to
// the same path verifies what is there and transfers only the rest. Of several files some may be
// finished: those that exist and have the right digests stay. Before anything is
// transferred, Save returns AlreadyExists for any other existing file without Force, FailedPrecondition
// if another process writes the same file, or if an earlier pull of another version or of other
// tensors has left a part of it, and ResourceExhausted for a full disk.
func (p *Puller) Save(ctx context.Context, req PullRequest, o SaveOptions) (*Summary, error) {
	if len(req.Into) > 0 {
		return nil, status.New(status.InvalidArgument, "a pull into files has no use for memory (Into): Pull receives into it")
	}
	dir, err := isDir(o.Out)
	if err == nil && !dir {
		err = mayBeRight(o.Out, o.Force, req.SkipDigests) // before any request to the server
	}
	if err != nil {
		return nil, err
	}
	pl, err := p.start(ctx, req)
	if err != nil {
		return nil, err
	}
	var outputs []*output
	if dir {
		outputs, err = pl.directory(o.Out)
	} else {
		outputs, err = pl.single(o.Out)
	}
	if err != nil {
		return nil, err
	}
	return pl.save(ctx, outputs, o)
}

func isDir(path string) (bool, error) {
	if path == "" {
		return false, status.New(status.InvalidArgument, "no path to write to")
	}
	if strings.HasSuffix(path, string(filepath.Separator)) {
		return true, nil
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir(), nil
}

// makeDir makes a directory and those above it. It syncs each that got a new one; unsynced says why one
// could not be.
func makeDir(path string, sync func(dir string) error) (unsynced, err error) {
	var above []string // of new directories
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(p) == p {
			break
		}
		above = append(above, filepath.Dir(p))
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, wrap("creating "+path, bare(err))
	}
	for _, dir := range above {
		if err := sync(dir); err != nil && unsynced == nil {
			unsynced = err
		}
	}
	return unsynced, nil
}

// save writes the outputs. An output without tensors has all its content in head.
func (pl *pull) save(ctx context.Context, outputs []*output, o SaveOptions) (*Summary, error) {
	to := newFiles(pl)
	defer to.close()
	sum, err := to.write(ctx, outputs, o)
	if err != nil {
		return nil, to.kept(err)
	}
	pl.req.shelf.fill(pl.manifest, outputs)
	if pl.req.Summary != nil {
		*pl.req.Summary = *sum
	}
	return sum, nil
}

// single plans one file for all chosen tensors.
func (pl *pull) single(path string) ([]*output, error) {
	m := pl.manifest
	if strings.HasSuffix(path, npyExt) {
		if len(pl.chosen) != 1 {
			return nil, status.Errorf(status.InvalidArgument, "%s: an .npy file holds one tensor; %d are chosen", path, len(pl.chosen))
		}
		out, err := m.npyOutput(path, pl.chosen[0])
		return []*output{out}, err
	}
	var out *output
	var err error
	if first, one := m.oneFile(pl.chosen); one {
		out, err = m.fileOutput(path, first, pl.chosen)
	} else {
		out, err = m.mixedOutput(path, pl.chosen)
	}
	return []*output{out}, err
}

// directory plans the files of the publication that have chosen tensors, and their indexes.
func (pl *pull) directory(dir string) (outputs []*output, err error) {
	m := pl.manifest
	if pl.unsynced, err = makeDir(dir, syncDir); err != nil {
		return nil, err
	}
	if len(m.Files) == 0 {
		name := m.Name + safetensorsExt
		if checkFileName(name, safetensorsExt) != nil {
			name = "model" + safetensorsExt
		}
		out, err := m.mixedOutput(filepath.Join(dir, name), pl.chosen)
		return []*output{out}, err
	}
	byFile := make(map[int][]int)
	for _, i := range pl.chosen {
		byFile[m.Entries[i].File] = append(byFile[m.Entries[i].File], i)
	}
	for n, f := range m.Files {
		entries, ok := byFile[n]
		if !ok && m.perFile[n] > 0 { // a file without tensors is written, too
			continue
		}
		path := filepath.Join(dir, f.Name)
		var out *output
		switch f.Format {
		case FormatIndex:
			out, err = m.indexOutput(path, &f, pl.chosen)
		case FormatNPY:
			if len(entries) != 1 {
				return nil, status.Errorf(status.Internal, "the server says that %s holds %d tensors; an .npy file holds one", quote(f.Name), len(entries))
			}
			out, err = m.npyOutput(path, entries[0])
		default:
			out, err = m.fileOutput(path, n, entries)
		}
		if err != nil {
			return nil, err
		}
		if out != nil {
			outputs = append(outputs, out)
		}
	}
	return outputs, nil
}

// indexOutput plans an index: with the same bytes if all tensors are chosen, otherwise with the
// chosen tensors. It returns nil for an index of which no tensor is chosen.
func (m *Manifest) indexOutput(path string, f *FileInfo, chosen []int) (*output, error) {
	whole := &output{path: path, head: f.Header, size: f.Bytes}
	if len(chosen) == len(m.Entries) {
		return whole, nil
	}
	x, err := safetensors.ParseIndex(f.Header)
	if err != nil {
		return nil, wrap("the server's index "+quote(f.Name), err)
	}
	files := x.WeightMap
	x.TotalSize, x.WeightMap = 0, make(map[string]string)
	for _, i := range chosen {
		e := &m.Entries[i]
		if file, ok := files[e.Name]; ok {
			x.WeightMap[e.Name] = file
			x.TotalSize += e.Bytes
		}
	}
	switch len(x.WeightMap) {
	case 0:
		return nil, nil
	case len(files):
		return whole, nil
	}
	var b bytes.Buffer
	if _, err := x.WriteTo(&b); err != nil {
		return nil, wrap("the server's index "+quote(f.Name), err)
	}
	return &output{path: path, head: b.Bytes(), size: int64(b.Len())}, nil
}

// oneFile returns the safetensors file that has all chosen tensors.
func (m *Manifest) oneFile(chosen []int) (file int, ok bool) {
	if len(m.Files) == 0 {
		return 0, false
	}
	if len(chosen) == 0 { // an index has at least one file before it
		return 0, m.Files[0].Format == FormatSafetensors && !slices.ContainsFunc(m.Files[1:], func(f FileInfo) bool { return f.Format != FormatIndex })
	}
	file = m.Entries[chosen[0]].File
	for _, i := range chosen {
		if m.Entries[i].File != file {
			return 0, false
		}
	}
	return file, m.Files[file].Format == FormatSafetensors
}

// fileOutput plans a file with tensors of one file of the publication. With all its tensors the
// written file has the same bytes.
func (m *Manifest) fileOutput(path string, file int, entries []int) (*output, error) {
	f := &m.Files[file]
	if f.Header != nil && m.perFile[file] == len(entries) {
		return m.foreignOutput(path, f, entries)
	}
	return m.newOutput(path, entries, f.Metadata)
}

// foreignOutput plans a file with the header of the original.
func (m *Manifest) foreignOutput(path string, f *FileInfo, entries []int) (*output, error) {
	h, err := safetensors.ReadHeader(bytes.NewReader(f.Header), f.Bytes)
	if err != nil {
		return nil, wrap("the server's header of "+quote(f.Name), err)
	}
	out := &output{path: path, entries: entries, head: f.Header, offsets: make(map[int]int64), size: f.Bytes}
	begin := f.Bytes
	for n, info := range h.Tensors() {
		if n >= len(entries) || m.Entries[entries[n]].Name != info.Name ||
			m.Entries[entries[n]].DType != info.DType || !m.Entries[entries[n]].Shape.Equal(info.Shape) || !m.Entries[entries[n]].Packed.Equal(info.Packed) {
			return nil, status.Errorf(status.Internal, "the server's header of %s does not fit its tensor %s", quote(f.Name), quote(info.Name))
		}
		out.offsets[entries[n]] = info.Offset
		begin = min(begin, info.Offset)
	}
	if len(h.Tensors()) != len(entries) || begin != int64(len(f.Header)) {
		return nil, status.Errorf(status.Internal, "the server's header of %s does not fit its %d tensors", quote(f.Name), len(entries))
	}
	return out, nil
}

// mixedOutput plans a file with tensors from several files, or from memory.
func (m *Manifest) mixedOutput(path string, chosen []int) (*output, error) {
	metadata := make(map[string]string)
	for _, f := range slices.Backward(m.Files) { // backward, so that the first file's metadata remains
		maps.Copy(metadata, f.Metadata)
	}
	specs := m.specs(chosen)
	byName := make(map[string]int, len(chosen))
	for n, i := range chosen {
		byName[specs[n].Name] = i
	}
	safetensors.Sort(specs)
	sorted := make([]int, len(specs))
	for n, s := range specs {
		sorted[n] = byName[s.Name]
	}
	return m.newOutput(path, sorted, metadata)
}

// newOutput plans a file with a new header.
func (m *Manifest) newOutput(path string, entries []int, metadata map[string]string) (*output, error) {
	var head bytes.Buffer
	w, err := safetensors.NewWriter(&head, m.specs(entries), metadata)
	if err != nil {
		return nil, wrap(path, err)
	}
	out := &output{path: path, entries: entries, head: head.Bytes(), offsets: make(map[int]int64), size: w.Size()}
	for n, info := range w.Tensors() {
		out.offsets[entries[n]] = info.Offset
	}
	return out, nil
}

func (m *Manifest) specs(entries []int) []safetensors.Spec {
	specs := make([]safetensors.Spec, len(entries))
	for n, i := range entries {
		e := &m.Entries[i]
		specs[n] = safetensors.Spec{Name: e.Name, DType: e.DType, Shape: e.Shape, Packed: e.Packed}
	}
	return specs
}

// npyOutput plans a file with one array. If it was published as an .npy file, the written file has
// the same bytes. The size of other strings on the disk is not known before they are received.
func (m *Manifest) npyOutput(path string, i int) (*output, error) {
	e := &m.Entries[i]
	out := &output{path: path, entries: []int{i}}
	if e.File < len(m.Files) && m.Files[e.File].Format == FormatNPY {
		if f := &m.Files[e.File]; f.Header != nil {
			return out, m.asPublished(out, f, e)
		}
	}
	if e.DType == tensor.String {
		return out, nil
	}
	if e.Packed.Type != "" {
		return nil, status.Errorf(status.InvalidArgument, "%s: NumPy has no elements of type %s; write safetensors", path, e.Packed.Type)
	}
	head, err := npy.Header(e.DType, e.Shape)
	if err != nil {
		return nil, status.Errorf(status.InvalidArgument, "%s: NumPy has no elements of type %v; write safetensors", path, e.DType)
	}
	out.head, out.size = head, int64(len(head))+e.Bytes
	out.offsets = map[int]int64{i: int64(len(head))}
	return out, nil
}

// asPublished plans a file with the header of the published array.
func (m *Manifest) asPublished(out *output, f *FileInfo, e *TensorInfo) error {
	a, err := npy.Open(bytes.NewReader(f.Header), f.Bytes)
	if err != nil {
		return wrap("the server's header of "+quote(f.Name), err)
	}
	info := a.Info()
	if info.Offset != int64(len(f.Header)) || info.DType != e.DType || !info.Shape.Equal(e.Shape) {
		return status.Errorf(status.Internal, "the server's header of %s does not fit its tensor %s", quote(f.Name), quote(e.Name))
	}
	out.head, out.size = f.Header, f.Bytes
	out.offsets = map[int]int64{out.entries[0]: info.Offset}
	if !a.Direct() {
		out.array = a
	}
	return nil
}

// encode writes the elements of an array that are not written as a tensor has them, and the
// header if the output has none.
func (o *output) encode(w io.Writer, t *tensor.Tensor) error {
	if o.array != nil {
		return o.array.Encode(w, t)
	}
	return npy.Write(w, t)
}
