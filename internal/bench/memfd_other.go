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

// memfdMapping does not exist here.
type memfdMapping struct{}

func openMemfd(string, bareRun, tensor.Allocator) (*memfdMapping, error) {
	return nil, errors.ErrUnsupported
}

func (*memfdMapping) copy(int) error { return errors.ErrUnsupported }

func (*memfdMapping) close() error { return nil }
