package server

import (
	"net"

	"github.com/tryst-rdma/tryst/internal/config"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// acceptor returns the device of this process that takes connections of peers; nil if none does.
func (n *node) acceptor() grpctransport.Acceptor {
	if n.rdma == nil {
		return nil
	}
	for _, s := range n.rdma.Selections() {
		if a, ok := s.Device.(grpctransport.Acceptor); ok {
			return a
		}
	}
	return nil
}

// listener returns the listener for gRPC, which shares it with queue pairs if there is a port of them.
func (s *Server) listener() net.Listener {
	l := s.loss.TCP.Listener(s.listeners.Steady(s.socket, config.ListenKey))
	if s.grpc.Port != nil {
		l = s.grpc.Port.Listener(l)
	}
	return l
}
