//go:build !linux

package shm

import (
	"runtime"

	"github.com/tryst-rdma/tryst/verbs"
)

// Devices implements verbs.Provider.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return nil, unavailable("list devices") }

// Open implements verbs.Provider.
func (p *Provider) Open(string) (verbs.Device, error) { return nil, unavailable("open") }

func unavailable(op string) error {
	return verbs.Errorf(op, DeviceName, verbs.ErrUnavailable, "shared memory between processes needs sealed memfds, which %s does not have", runtime.GOOS)
}

type system struct{}

func newSystem() system { return system{} }
