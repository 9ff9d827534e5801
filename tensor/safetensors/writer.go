package safetensors

import (
	"io"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/internal/fileio"
)

// Writer writes one file from front to back, a tensor at a time, and keeps
// none of them. It is used by one goroutine.
type Writer struct {
	*Header // of the file being written

	w    io.Writer
	next int   // index in Header.tensors
	err  error // of w; nothing is written after it
}

// NewWriter writes the header of a file with the given tensors, in the given
// order, and metadata to w. The same arguments give the same bytes. It is
// InvalidArgument for a type that the format lacks, a name that is not UTF-8
// text or a header above MaxHeader, AlreadyExists for a name that stands
// twice.
//
// The data begins at a multiple of 8. What follows stays aligned when each
// tensor's bytes are a multiple of the next one's element size, as in the
// order of Sort.
func NewWriter(w io.Writer, specs []Spec, metadata map[string]string) (*Writer, error) {
	text, h, err := layout(specs, metadata)
	if err != nil {
		return nil, prefixed("safetensors", err)
	}
	if err := fileio.Write(w, text); err != nil {
		return nil, prefixed("safetensors header", err)
	}
	return &Writer{Header: h, w: w}, nil
}

// Write writes t as the named tensor, which must be the next in order and have
// the announced type and shape; else nothing is written, and the error is
// FailedPrecondition or InvalidArgument. t is only read, and not kept. After
// an error of the underlying writer every call returns that error.
func (w *Writer) Write(name string, t *tensor.Tensor) error {
	if w.err != nil {
		return w.err
	}
	if w.next == len(w.tensors) {
		return status.Errorf(status.FailedPrecondition, "tensor %s: all %d tensors of the file are written", quote(name), w.next)
	}
	info := w.tensors[w.next]
	if name != info.Name {
		return status.Errorf(status.FailedPrecondition, "tensor %s: the next one to write is %s", quote(name), quote(info.Name))
	}
	if err := info.check(t); err != nil {
		return err
	}
	if err := fileio.Write(w.w, t.Bytes()); err != nil {
		w.err = prefixed("tensor "+quote(name), err)
		return w.err
	}
	w.next++
	return nil
}

// Close checks that the file is complete: it is FailedPrecondition when a
// tensor is missing. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if n := len(w.tensors) - w.next; n > 0 {
		return missing(w.tensors[w.next].Name, n)
	}
	return nil
}

// WriterAt writes one file with its tensors in any order. Its methods may be
// called from any goroutine; tensors are written side by side.
type WriterAt struct {
	*Header // of the file being written

	w io.WriterAt

	mu      sync.Mutex // protects the fields below
	state   []progress // by index in Header.tensors
	written int        // how many are done
	err     error      // the first error of w
}

type progress uint8

const (
	pending progress = iota
	writing
	done
)

// NewWriterAt is NewWriter for tensors that come in any order. The file must
// be empty or have exactly Size bytes: nothing beyond them is cut off.
func NewWriterAt(w io.WriterAt, specs []Spec, metadata map[string]string) (*WriterAt, error) {
	text, h, err := layout(specs, metadata)
	if err != nil {
		return nil, prefixed("safetensors", err)
	}
	if err := fileio.Write(io.NewOffsetWriter(w, 0), text); err != nil {
		return nil, prefixed("safetensors header", err)
	}
	return &WriterAt{Header: h, w: w, state: make([]progress, len(h.tensors))}, nil
}

// Write writes t as the named tensor, which must have the announced type and
// shape (else InvalidArgument), be part of the file (else NotFound) and not be
// written before or meanwhile (else AlreadyExists). t is only read, and not
// kept. An error of the underlying writer is also what Close returns.
func (w *WriterAt) Write(name string, t *tensor.Tensor) error {
	info, err := w.find(name)
	if err != nil {
		return err
	}
	if err := info.check(t); err != nil {
		return err
	}
	if err := w.begin(name); err != nil {
		return err
	}
	err = fileio.Write(io.NewOffsetWriter(w.w, info.Offset), t.Bytes())
	if err != nil {
		err = prefixed("tensor "+quote(name), err)
	}
	w.end(name, err)
	return err
}

func (w *WriterAt) begin(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	state := &w.state[w.byName[name]]
	if *state != pending {
		return status.Errorf(status.AlreadyExists, "tensor %s is written already", quote(name))
	}
	*state = writing
	return nil
}

func (w *WriterAt) end(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if w.err == nil {
			w.err = err
		}
		return
	}
	w.state[w.byName[name]] = done
	w.written++
}

// Close checks that the file is complete: it is FailedPrecondition when a
// tensor is missing or still being written. It does not close the underlying
// writer.
func (w *WriterAt) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	for i, state := range w.state {
		if state != done {
			return missing(w.tensors[i].Name, len(w.tensors)-w.written)
		}
	}
	return nil
}

func missing(first string, n int) error {
	return status.Errorf(status.FailedPrecondition, "%d tensors are not written; the first is %s", n, quote(first))
}

// check compares t with what the header announced.
func (i *Info) check(t *tensor.Tensor) error {
	if t.DType() != i.DType || !t.Shape().Equal(i.Shape) {
		return invalid("tensor %s is %v; the header says %v%v", quote(i.Name), t, i.DType, i.Shape)
	}
	return nil
}
