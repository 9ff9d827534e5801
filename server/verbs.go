package server

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// VerbsServer is a Server whose tensors go by RDMA where a peer is reached so: it
// serves VerbsService, exchanges queue pairs with every task of the cluster that
// is up, and with the others when they come, in any order.
type VerbsServer struct{ *Server }

// StartVerbs is Start for a process that needs verbs: settings with another
// transport are InvalidArgument, and a host without a device is
// FailedPrecondition.
func StartVerbs(ctx context.Context, cfg config.Config, o Options) (*VerbsServer, error) {
	if cfg.Transport != verbstransport.Name {
		return nil, status.Errorf(status.InvalidArgument, "transport %q: a verbs server has the transport %s", cfg.Transport, verbstransport.Name)
	}
	s, err := Start(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	v, ok := s.Verbs()
	if !ok {
		return nil, errors.Join(status.New(status.FailedPrecondition, "there is no RDMA device that could be used; the log says why"), s.Close(ctx))
	}
	return v, nil
}

// Verbs returns the server as one with verbs. ok is false when all goes over
// gRPC, by the settings or for want of a device.
func (s *Server) Verbs() (v *VerbsServer, ok bool) {
	if s.rdma == nil {
		return nil, false
	}
	return &VerbsServer{s}, true
}

// Choice returns the device, port and address that are used, with the reason.
func (v *VerbsServer) Choice() discovery.Choice { return v.rdma.Choice }

// Selection returns the device with its provider, and why that one.
func (v *VerbsServer) Selection() Selection { return v.rdma.Selection }

// Links tells for each peer which wire carries its tensors, and why.
func (v *VerbsServer) Links() []verbstransport.Link { return v.rdma.transport.Links() }

// Memory counts the registered memory.
func (v *VerbsServer) Memory() mem.Stats { return v.rdma.transport.Memory() }

// Allocator makes tensors that are sent without a copy.
func (v *VerbsServer) Allocator() tensor.Allocator { return v.rdma.transport.Allocator() }
