package tensorproto

import (
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Size returns how many bytes Append appends for t. It fails like ToProto.
func Size(t *tensor.Tensor) (int, error) {
	if err := checkSize(t); err != nil {
		return 0, err
	}
	return len(appendHeader(nil, t)) + int(contentSize(t)), nil
}

// Reader gives what Append appends for a tensor whose elements are not plain memory, part by
// part: a message of 2 GiB is never whole in memory.
type Reader struct {
	ready   []byte   // encoded and not read
	elems   []string // of the tensor
	lengths int      // how many lengths have been encoded
	next    int      // the element after part
	part    string   // what has not been read of an element
}

// readAhead is how many bytes of lengths are encoded at a time.
const readAhead = 4 << 10

// NewReader returns a reader that begins at an offset. It is valid while the caller holds a
// reference to t. It fails like ToProto, and with InvalidArgument when the elements are plain
// memory: then AppendHeader and the memory itself do without a copy.
func NewReader(t *tensor.Tensor, offset int) (*Reader, error) {
	if t.DType().Plain() {
		return nil, status.Errorf(status.InvalidArgument, "the elements of tensor %v are plain memory; use AppendHeader", t)
	}
	if err := checkSize(t); err != nil {
		return nil, err
	}
	r := &Reader{ready: appendHeader(nil, t), elems: t.Elements()}
	if contentSize(t) == 0 {
		r.elems = nil
	}
	for offset > 0 {
		n := r.take(nil, offset)
		if n == 0 {
			return nil, status.Errorf(status.OutOfRange, "tensor %v ends %d bytes before the offset", t, offset)
		}
		offset -= n
	}
	return r, nil
}

// Read implements io.Reader. It fills p, unless the message ends.
func (r *Reader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		m := r.take(p[n:], len(p)-n)
		if m == 0 {
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

// take goes on by at most limit bytes, copies them to p unless that is nil, and returns how
// many they are: 0 at the end.
func (r *Reader) take(p []byte, limit int) int {
	if len(r.ready) == 0 && r.lengths < len(r.elems) {
		for r.ready = r.ready[:0]; r.lengths < len(r.elems) && len(r.ready) < readAhead; r.lengths++ {
			r.ready = protowire.AppendVarint(r.ready, uint64(len(r.elems[r.lengths])))
		}
	}
	if len(r.ready) > 0 {
		n := min(limit, len(r.ready))
		copy(p, r.ready[:n])
		r.ready = r.ready[n:]
		return n
	}
	for r.part == "" && r.next < len(r.elems) {
		r.part = r.elems[r.next]
		r.next++
	}
	n := min(limit, len(r.part))
	copy(p, r.part[:n])
	r.part = r.part[n:]
	return n
}
