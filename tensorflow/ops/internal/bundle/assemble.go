package bundle

import (
	"context"
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// stored is a part that the file has, of those that a part to be read needs.
type stored struct {
	part   Slice // as the entry of the whole has it; nil for a whole tensor
	box    Slice // its extents
	common Slice // what it has in common with the part to be read
}

// assemble reads a part of a tensor from those that the file has.
func (r *Reader) assemble(ctx context.Context, key string, e *Entry, want Slice, shape tensor.Shape) (*tensor.Tensor, error) {
	box := want.within(e.Shape)
	if shape.Elements() == 0 && e.DType.Plain() {
		return tensor.Allocate(r.memory, e.DType, shape)
	}
	parts, err := r.cover(ctx, key, e, want, box)
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 && parts[0].box.elements() == box.elements() {
		x, err := r.part(key, e, parts[0])
		if err != nil {
			return nil, err
		}
		return r.whole(ctx, parts[0].key(key), x)
	}
	if !e.DType.Plain() {
		return nil, invalid("%s: key %s: Dtype %s not supported: strings are restored in the parts in which they were saved", r.table.name, quote(key), e.DType)
	}
	for _, p := range parts { // before memory is taken for the claim of a shape
		x, err := r.part(key, e, p)
		if err == nil {
			_, err = r.place(p.key(key), x)
		}
		if err != nil {
			return nil, err
		}
	}
	t, err := tensor.Allocate(r.memory, e.DType, shape)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if err := r.copy(ctx, key, e, p, t, box); err != nil {
			t.Release()
			return nil, err
		}
	}
	return t, nil
}

// cover returns the parts of the file that have something of box, all of which they must cover without overlaps.
func (r *Reader) cover(ctx context.Context, key string, e *Entry, want, box Slice) ([]stored, error) {
	all := e.Slices
	if len(all) == 0 {
		all = []Slice{nil}
	}
	if err := r.parsed.take(int64(len(all)) * int64(len(box)+1) * 64); err != nil {
		return nil, err
	}
	var parts []stored
	covered := int64(0)
	for _, part := range all {
		p := stored{part: part, box: part.within(e.Shape)}
		var ok bool
		if p.common, ok = p.box.meet(box); !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, status.From(err)
		}
		for _, o := range parts {
			if o.box.overlaps(p.box) {
				return nil, damaged("%s: key %s: Overlapping slices: existing slice = %s, new slice = %s", r.table.name, quote(key), o.part, part)
			}
		}
		parts, covered = append(parts, p), covered+p.common.elements()
	}
	if covered != box.elements() {
		if want == nil {
			want = make(Slice, len(box))
			for i := range want {
				want[i].Length = Full
			}
		}
		return nil, invalid("Does not have sufficient slices for partitioned tensor %s to restore in slice_spec: %s", quote(key), want)
	}
	return parts, nil
}

// key is the key of the part.
func (p stored) key(name string) string {
	if p.part == nil {
		return name
	}
	return p.part.key(name)
}

// part returns the entry of a part of the tensor of e.
func (r *Reader) part(key string, e *Entry, p stored) (*Entry, error) {
	if p.part == nil {
		return e, nil
	}
	used := r.parsed.used
	defer func() { r.parsed.used = used }() // of the part no list is kept
	x, err := r.entry(p.part.key(key))
	if err != nil {
		return nil, err
	}
	shape, err := p.part.Shape(e.Shape)
	if err != nil {
		return nil, err
	}
	if x.DType != e.DType || !x.Shape.Equal(shape) {
		return nil, damaged("%s: key %s is %s%s, and its part %s is %s%s", r.table.name, quote(key), e.DType, e.Shape, p.part, x.DType, x.Shape)
	}
	return x, nil
}

// copy reads a part and copies what t, the elements of box, needs of it.
func (r *Reader) copy(ctx context.Context, key string, e *Entry, p stored, t *tensor.Tensor, box Slice) error {
	x, err := r.part(key, e, p)
	if err != nil {
		return err
	}
	size := int64(e.DType.Size())
	if at, ok := contiguous(p.box, box); ok {
		f, err := r.place(p.key(key), x)
		if err != nil {
			return err
		}
		return r.plain(ctx, p.key(key), x, f, t.Bytes()[at*size:at*size+x.size])
	}
	from, err := r.whole(ctx, p.key(key), x)
	if err != nil {
		return err
	}
	defer from.Release()
	dst, src := t.Bytes(), from.Bytes()
	eachRun(p.common, box, p.box, func(to, at, n int64) {
		copy(dst[to*size:(to+n)*size], src[at*size:(at+n)*size])
	})
	return nil
}

// contiguous returns where the elements of part are in those of box, if they are all there and without gaps.
func contiguous(part, box Slice) (at int64, ok bool) {
	at, row := 0, int64(1)
	for i, b := range slices.Backward(box) {
		switch p := part[i]; {
		case p.Start < b.Start, p.Start+p.Length > b.Start+b.Length:
			return 0, false
		case i > 0 && p.Length != b.Length:
			return 0, false
		default:
			at += (p.Start - b.Start) * row
			row *= b.Length
		}
	}
	return at, true
}

// eachRun calls f with the offsets of each run of elements of common in two parts that have them, in elements.
func eachRun(common, dst, src Slice, f func(to, at, n int64)) {
	last := len(common) - 1
	index := make([]int64, last)
	for {
		to, at := int64(0), int64(0)
		for i, e := range common {
			x := e.Start
			if i < last {
				x += index[i]
			}
			to, at = to*dst[i].Length+x-dst[i].Start, at*src[i].Length+x-src[i].Start
		}
		f(to, at, common[last].Length)
		i := last - 1
		for ; i >= 0; i-- {
			if index[i]++; index[i] < common[i].Length {
				break
			}
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}
