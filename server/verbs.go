package server

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// VerbsServer is a Server that moves tensors by RDMA to and from the peers that RDMA reaches.
// It serves VerbsService and sets up a channel with every task of the cluster as soon as that
// is up. The order in which tasks start does not matter.
type VerbsServer struct{ *Server }

// Selection is a device that a process uses, with its provider and the reasons for both.
type Selection = devices.Selection

// Choice is a device with its port and address, and the reason for them.
type Choice = discovery.Choice

// Rejected is a device that was not chosen (Choice.Against).
type Rejected = discovery.Rejected

// StartVerbs is Start for a process that requires verbs. Settings with another transport are
// InvalidArgument, a host without a usable device is FailedPrecondition.
func StartVerbs(ctx context.Context, cfg Config, o Options) (*VerbsServer, error) {
	if cfg.Transport != TransportVerbs {
		return nil, status.Errorf(status.InvalidArgument, "transport is %q: a verbs server needs transport %s", cfg.Transport, TransportVerbs)
	}
	s, err := Start(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	v, ok := s.Verbs()
	if !ok {
		return nil, errors.Join(status.New(status.FailedPrecondition, "there is no usable RDMA device; see the log for the reason"), s.Close(ctx))
	}
	return v, nil
}

// Verbs returns the server as a VerbsServer. ok is false when all tensors go over gRPC, because
// of the settings or because there is no usable device at present. A VerbsServer that was returned
// before stays valid while there is none: its Connections have the reasons.
func (s *Server) Verbs() (v *VerbsServer, ok bool) {
	if s.rdma == nil {
		return nil, false
	}
	if _, ok := s.rdma.Selection(); !ok {
		return nil, false
	}
	return &VerbsServer{s}, true
}

// Choice returns the device, port and address in use, with the reason for them. While there is
// no device it returns the last ones.
func (v *VerbsServer) Choice() Choice { return v.Selection().Choice }

// Selection returns the first of Devices, with its provider and the reason for it. While there is no
// device it returns the last one.
func (v *VerbsServer) Selection() Selection {
	s, _ := v.rdma.Selection()
	return s
}

// Devices returns all devices that can be used at present, that for RDMA first.
func (v *VerbsServer) Devices() []Selection { return v.rdma.Selections() }

// Connections returns the state and the counts of the channel to each peer.
func (v *VerbsServer) Connections() []verbstransport.Connection {
	return v.rdma.Transport.Connections()
}

// Memory returns statistics of the registered memory.
func (v *VerbsServer) Memory() verbstransport.MemoryStats { return v.rdma.Transport.Memory() }
