package server

import (
	"net"
	"strconv"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// dialedAddresses returns the addresses at which peers may dial a server with its listener: that of
// its task in the cluster, which may be forwarded, or that on which it listens. For a server that
// listens on all interfaces these are the addresses of the host.
func dialedAddresses(c config.Config, listener net.Addr) []string {
	if own, ok := c.Cluster.Address(c.Task); ok {
		return []string{own}
	}
	at, ok := listener.(*net.TCPAddr)
	if !ok || !at.IP.IsUnspecified() {
		return []string{listener.String()}
	}
	interfaces, err := devices.Interfaces()
	if err != nil {
		return nil // peers know an address, since they dial gRPC
	}
	var all, loopbacks []string
	for _, i := range interfaces {
		for _, p := range i.Addrs {
			a := p.Addr().Unmap()
			switch text := net.JoinHostPort(a.String(), strconv.Itoa(at.Port)); {
			case a.IsLoopback():
				loopbacks = append(loopbacks, text)
			case !a.IsLinkLocalUnicast() && len(all) < maxDialedAddresses:
				all = append(all, text)
			}
		}
	}
	if len(all) == 0 {
		return loopbacks
	}
	return all
}

// acceptor returns the device of this process that takes connections of peers; nil if none does.
func (n *node) acceptor() grpctransport.Acceptor {
	if n.rdma == nil {
		return nil
	}
	for _, s := range n.rdma.selections() {
		if a, ok := s.Device.(grpctransport.Acceptor); ok {
			return a
		}
	}
	return nil
}

// listener returns the listener for gRPC, which shares it with queue pairs if there is a port of them.
func (s *Server) listener() net.Listener {
	var l net.Listener = s.loss.TCP.Listener(s.listeners.steady(s.socket, config.ListenKey))
	if s.port != nil {
		l = s.port.Listener(l)
	}
	return l
}
