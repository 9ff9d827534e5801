//go:build linux

package storm_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

const (
	// misfits is the share of receives into memory of a wrong size.
	misfits = 0.1
	// unwritten is how long after a receive that failed a peer may still write into its memory:
	// some 10 s, while its process may be stopped and the connection cut.
	unwritten = 40 * time.Second
	// watched is how long memory that nobody may write any more is watched.
	watched = 100 * time.Millisecond
	// poison is what is in it.
	poison = 0xaa
)

// memory returns memory for a value of a size, or, at times, for another one.
func (p *part) memory(size int) *tensor.Tensor {
	if rand.Float64() < misfits {
		size++
	}
	var a tensor.Allocator = p.n.pool
	if rand.IntN(2) == 0 {
		a = p.n.server.Allocator()
	}
	t, err := tensor.Allocate(a, tensor.Uint8, tensor.Vector(size))
	if err != nil { // registered memory is bounded
		return nil
	}
	return t
}

// receiveInto is receiveOne into memory.
func (p *part) receiveInto(ctx context.Context, e edge, dst *tensor.Tensor, r record, done func(*content, string, error) error) error {
	filled := func(f server.Filled, err error) error {
		if err != nil {
			err = done(nil, "", err)
			p.n.work.Go(func() { p.n.watch(dst, r) })
			return err
		}
		defer dst.Release()
		c := content{Dead: true}
		if !f.Dead {
			c = look(dst.Bytes(), false)
		}
		if !dst.Buffer().Unique() {
			c.Torn = "the memory has other references after the receive"
		}
		return done(&c, routeOf(f.Arrival), nil)
	}
	if !e.async {
		return filled(p.n.server.RecvInto(ctx, p.step, taskName(e.from), e.name, dst))
	}
	result := make(chan error, 2) // a second call of the callback must not block
	p.n.server.RecvIntoAsync(ctx, p.step, taskName(e.from), e.name, dst, func(f server.Filled, err error) { result <- filled(f, err) })
	return <-result
}

// watch checks that memory of a receive that failed is free after a while, and that nobody writes
// into it then.
func (n *node) watch(dst *tensor.Tensor, r record) {
	defer dst.Release()
	r.Kind = kindMem
	for late := time.Now().Add(unwritten); !dst.Buffer().Unique(); {
		if time.Now().After(late) {
			r.Text = "the transport still holds it"
			n.log.write(r)
			return
		}
		if !pause(n.ctx, watched) {
			return
		}
	}
	b := dst.Bytes()
	for i := range b {
		b[i] = poison
	}
	pause(n.ctx, watched)
	if bytes.Count(b, []byte{poison}) != len(b) {
		r.Text = "it was written after the transport had given it back"
		n.log.write(r)
	}
}
