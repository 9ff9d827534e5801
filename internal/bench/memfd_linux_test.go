package bench

import (
	"bytes"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// TestBareCopiesReachEveryBuffer, with the content of the other process's tensor.
func TestBareCopiesReachEveryBuffer(t *testing.T) {
	b, err := startBareServer(t.Context(), []int64{5000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	m, err := openMemfd(b.where.Memfds[5000], bareRun{Inflight: 2, Buffers: 5, Size: 5000}, tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	for _, dst := range m.buffers {
		clear(dst.Bytes())
	}
	for range 3 {
		for worker := range 2 {
			if err := m.copy(worker); err != nil {
				t.Error(err)
			}
		}
	}
	for i, dst := range m.buffers {
		if !bytes.Equal(dst.Bytes(), b.tensors[5000].Bytes()) {
			t.Errorf("buffer %d was not written", i)
		}
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}
