package grpctransport

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// places has a number of places.
type places struct {
	free, taken atomic.Int64
	released    chan struct{}
}

func newPlaces(n int64) *places {
	p := &places{released: make(chan struct{}, 100)}
	p.free.Store(n)
	return p
}

func (p *places) take(n int) (func(), error) {
	if p.free.Add(-int64(n)) < 0 {
		p.free.Add(int64(n))
		return nil, status.New(status.ResourceExhausted, "no place is free")
	}
	p.taken.Add(1)
	return func() {
		p.free.Add(int64(n))
		p.released <- struct{}{}
	}, nil
}

// TestConnectionsWithoutAPlaceAreNotMade: a receive that needs one ends with the reason. A connection that no
// call uses gives its place back, and is made again for the next call.
func TestConnectionsWithoutAPlaceAreNotMade(t *testing.T) {
	var c testCluster
	p := newPlaces(1)
	a, b := c.start(t, 0, nodeOptions{}), c.start(t, 1, nodeOptions{})
	to := c.start(t, 2, nodeOptions{bounds: &Bounds{Place: p.take, Rest: 50 * time.Millisecond}})
	exchange := func(from *node, step int64) error {
		x := float32s(t, tensor.Heap{}, tensor.Vector(1), 1)
		defer x.Release()
		from.send(step, from.key(to, "x"), x)
		v, err := to.manager.Find(step).Recv(t.Context(), from.key(to, "x"), rendezvous.Args{})
		if err == nil {
			v.Tensor.Release()
		}
		return err
	}
	waits, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := to.manager.Find(9).Recv(waits, a.key(to, "never"), rendezvous.Args{})
		ended <- err
	}()
	until(t, func() bool { return p.taken.Load() == 1 }, "the first connection")
	err := exchange(b, 1)
	if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), b.address+": no place is free") {
		t.Errorf("without a place: %v", err)
	}
	if err := exchange(a, 2); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; status.CodeOf(err) != status.Cancelled {
		t.Error(err)
	}
	for i := range 2 {
		<-p.released
		if err := exchange(b, int64(i)+3); err != nil {
			t.Error(err)
		}
	}
	if n := p.taken.Load(); n != 3 {
		t.Errorf("%d connections were made", n)
	}
	to.close()
	if n := p.free.Load(); n != 1 {
		t.Errorf("%d places are free", n)
	}
}

// largeAnswer is a RecvTensorResponse with a tensor of so many bytes, which takes little memory.
type largeAnswer int

func (n largeAnswer) takeBuffers() mem.BufferSlice {
	const part = 1 << 20
	size := int(n)
	dim := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(size/4)) //nolint:gosec // small
	shape := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), dim)
	head := append([]byte{0x08, 1}, protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), shape)...)
	head = protowire.AppendVarint(protowire.AppendTag(head, 4, protowire.BytesType), uint64(size)) //nolint:gosec // small
	all := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), uint64(len(head)+size))
	slices := mem.BufferSlice{mem.SliceBuffer(append(all, head...))}
	block := make([]byte, part)
	for range size / part {
		slices = append(slices, mem.SliceBuffer(block))
	}
	return slices
}

// TestResponsesAreReservedUntilTheyAreParsed: what does not fit ends its receive, and takes no memory. What fits comes,
// and nothing stays reserved.
func TestResponsesAreReservedUntilTheyAreParsed(t *testing.T) {
	const limit = 64 << 20
	var size atomic.Int64
	a := answering(t, method(tensorflowWorker, "RecvTensor", func(context.Context, *tfpb.RecvTensorRequest) (any, error) {
		return largeAnswer(size.Load()), nil
	}))
	pool := tensor.NewPool(tensor.PoolOptions{Limit: limit, Keep: -1})
	b := new(testCluster).start(t, 1, nodeOptions{
		addresses: map[int]string{0: a.address}, alloc: pool,
		bounds: &Bounds{Place: newPlaces(1).take, Responses: pool},
	})
	receive := func(step int64, bytes int64) error {
		size.Store(bytes)
		v, err := b.manager.Find(step).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
		if err == nil {
			if v.Tensor.Size() != bytes {
				t.Errorf("%d bytes came", v.Tensor.Size())
			}
			v.Tensor.Release()
		}
		return err
	}
	if err := receive(1, 16<<20); err != nil {
		t.Error(err)
	}
	used := allocated(func() {
		err := receive(2, 256<<20)
		if status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "larger than what this process has left") {
			t.Errorf("256 MiB: %v", err)
		}
	})
	if used > limit+limit/2 {
		t.Errorf("%d bytes were allocated", used)
	}
	if err := receive(3, 40<<20); status.CodeOf(err) != status.ResourceExhausted { // twice, while it is parsed
		t.Errorf("40 MiB: %v", err)
	}
	size.Store(4 << 20)
	var all sync.WaitGroup
	for step := range int64(20) {
		all.Go(func() {
			v, err := b.manager.Find(10+step).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
			if err == nil {
				v.Tensor.Release()
			} else if status.CodeOf(err) != status.ResourceExhausted {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := receive(4, 16<<20); err != nil {
		t.Error(err)
	}
	b.close()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
}

// TestChunksAreReservedOneByOne: a large tensor of a Tryst peer needs its size once.
func TestChunksAreReservedOneByOne(t *testing.T) {
	var c testCluster
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 40 << 20, Keep: -1})
	a := c.start(t, 0, nodeOptions{unaryLimit: 1 << 20})
	b := c.start(t, 1, nodeOptions{alloc: pool, bounds: &Bounds{Place: newPlaces(1).take, Responses: pool}})
	x := value(t, tensor.Heap{}, 8<<20)
	defer x.Release()
	key := a.key(b, "x")
	a.send(1, key, x)
	v := b.recv(1, key)
	if !bytes.Equal(v.Tensor.Bytes(), x.Bytes()) {
		t.Error("other values came")
	}
	v.Tensor.Release()
	b.close()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
}

// TestCompressedResponsesWithBoundsAreRefused: some bytes could become a message of 2 GiB.
func TestCompressedResponsesWithBoundsAreRefused(t *testing.T) {
	a := answering(t, method(tensorflowWorker, "RecvTensor", func(ctx context.Context, _ *tfpb.RecvTensorRequest) (any, error) {
		if err := grpc.SetSendCompressor(ctx, gzip.Name); err != nil {
			t.Error(err)
		}
		return largeAnswer(32 << 20), nil
	}))
	b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: a.address},
		bounds: &Bounds{Place: newPlaces(1).take, Responses: tensor.NewPool(tensor.PoolOptions{})}})
	_, err := b.manager.Find(1).Recv(t.Context(), a.key(b, "x"), rendezvous.Args{})
	if err == nil || status.CodeOf(err) == status.Unavailable {
		t.Error(err)
	}
}

// TestLandedResponsesStayReserved until their calls return, the largest ones longest: which is whose is not known.
func TestLandedResponsesStayReserved(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{})
	a := newAnswers(pool)
	c := a.connect()
	c.out.skip = 0
	frameOf := func(kind, flags byte, stream uint32, payload []byte) []byte {
		return append(appendFrame(nil, frame{kind: kind, flags: flags, stream: stream, length: len(payload)}), payload...)
	}
	used := func(want int64) {
		t.Helper()
		if n := pool.Stats().InUse; n < want || n > want+want/4+chargeStep {
			t.Errorf("%d bytes are reserved, want about %d", n, want)
		}
	}
	large := append([]byte{0, 0, 1, 0, 0}, make([]byte, 16<<10-5)...)
	for _, stream := range []uint32{1, 3, 5} {
		a.begin()
		c.wrote(frameOf(frameHeaders, 0, stream, nil))
	}
	for range 4 {
		c.read(frameOf(frameData, 0, 1, large))
		large = make([]byte, 16<<10)
	}
	c.read(frameOf(frameData, 0, 3, append([]byte{0, 0, 1, 0, 0}, make([]byte, 16<<10-5)...)))
	used(80<<10 - 2*firstBytes)
	c.read(frameOf(frameHeaders, flagEndStream, 1, nil))
	c.read(frameOf(frameData, flagEndStream, 3, make([]byte, 1)))
	used(80<<10 - 2*firstBytes)
	a.end()
	used(64<<10 - firstBytes)
	a.end()
	used(0)
	for range 4 {
		c.read(frameOf(frameData, 0, 3, large)) // the stream has ended
	}
	used(0)
	c.read(frameOf(frameData, 0, 5, large))
	used(16<<10 - firstBytes)
	c.close()
	used(16<<10 - firstBytes)
	a.end()
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}
