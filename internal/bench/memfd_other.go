//go:build !linux

package bench

import (
	"errors"
	"os"

	"github.com/tryst-rdma/tryst/tensor"
)

func makeMemfds(map[int64]*tensor.Tensor) ([]*os.File, map[int64]string, error) {
	return nil, nil, errors.ErrUnsupported
}

// memfdSource does not exist here.
type memfdSource struct{}

func openMemfd(string, bareRun, tensor.Allocator) (*memfdSource, error) {
	return nil, errors.ErrUnsupported
}

func (*memfdSource) copy(int) error { return errors.ErrUnsupported }

func (*memfdSource) close() error { return nil }
