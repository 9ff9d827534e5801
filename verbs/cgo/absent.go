//go:build !linux || !cgo

package libibverbs

import (
	"runtime"

	"github.com/tryst-rdma/tryst/verbs"
)

// Provider is the provider of a build without libibverbs: it has no devices, and
// says why.
type Provider struct{ library string }

var _ verbs.Provider = (*Provider)(nil)

// New makes a provider. It opens nothing.
func New(opts Options) *Provider {
	if opts.Library == "" {
		opts.Library = DefaultLibrary
	}
	return &Provider{opts.Library}
}

// Name is Name.
func (p *Provider) Name() string { return Name }

// Devices says why there are none.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return nil, p.reason() }

// Open says why there is none.
func (p *Provider) Open(string) (verbs.Device, error) { return nil, p.reason() }

func (p *Provider) reason() error {
	if runtime.GOOS != "linux" {
		return unavailable(p.library, "", "there is no libibverbs on %s", runtime.GOOS)
	}
	return unavailable(p.library, "build it with CGO_ENABLED=1, a C compiler and the headers of libibverbs (libibverbs-dev, rdma-core-devel)",
		"this program was built without cgo")
}
