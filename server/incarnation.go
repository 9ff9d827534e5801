package server

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// askIncarnation requests the incarnation over any route that reaches the peer. again reports
// whether the peer may answer later.
func (s *Server) askIncarnation(ctx context.Context, d cluster.Device) (n uint64, again bool, err error) {
	conn, err := s.connTo(d.Task)
	if err != nil {
		return 0, false, err
	}
	n, err = s.requestIncarnation(ctx, conn, d)
	_, lost := errors.AsType[*transport.LostError](err)
	return n, lost || ctx.Err() != nil || status.CodeOf(err) == status.Unavailable, err
}

// requestIncarnation sends one request. A Tryst process answers Hello; it has one device, with the
// incarnation of the process. Any other worker is TensorFlow's and answers GetStatus.
func (s *Server) requestIncarnation(ctx context.Context, conn transport.Conn, d cluster.Device) (uint64, error) {
	peer, err := conn.Hello(ctx)
	if err != nil {
		return 0, err
	}
	if peer.Tryst && d == cluster.DeviceOf(d.Task) {
		s.incarnations.List(d.Task, d)
		return peer.Incarnation, nil
	}
	if peer.Tryst {
		s.incarnations.List(d.Task, cluster.DeviceOf(d.Task))
		return 0, status.Errorf(status.NotFound, "%s has no device %s", d.Task, d)
	}
	w, err := s.conns.Worker(d.Task)
	if err != nil {
		return 0, err
	}
	resp, err := w.GetStatus(ctx, &tfpb.GetStatusRequest{})
	if err != nil {
		return 0, err
	}
	var has []cluster.Device
	n, found := uint64(0), false
	for _, a := range resp.GetDeviceAttributes() {
		other, err := cluster.ParseDevice(a.GetName())
		if err != nil {
			continue
		}
		has = append(has, other)
		if other == d {
			n, found = a.GetIncarnation(), true
		}
	}
	s.incarnations.List(d.Task, has...)
	if found {
		return n, nil
	}
	return 0, status.Errorf(status.NotFound, "%s has no device %s", d.Task, d)
}

// connTo returns the connection to a task, over verbs or gRPC.
func (s *Server) connTo(task cluster.Task) (transport.Conn, error) {
	if s.rdma != nil {
		return s.rdma.Transport.Conn(task)
	}
	return s.transport.Conn(task)
}
