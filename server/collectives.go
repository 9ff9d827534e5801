package server

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/collective"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// newCollectives returns the collectives of the server. Its worker is made later.
func (s *Server) newCollectives(leader cluster.Task) *collective.Collectives {
	return collective.New(collective.Options{
		Task: s.task, Devices: s.deviceAttributes, Leader: leader,
		Workers: s.conns, Remoter: s.remoter(), Tryst: s.isTryst,
		Allocator: s.receiveAllocator(), LeaderTimeout: s.peers.PeerTimeout, PeerTimeout: s.peers.PeerTimeout,
	})
}

// deviceAttributes returns the devices as the worker lists them.
func (s *Server) deviceAttributes() []*tfpb.DeviceAttributes {
	resp, _ := s.worker.GetStatus(context.Background(), nil) // it has no errors
	return resp.GetDeviceAttributes()
}

// isTryst reports whether a task is a Tryst process. A peer that is not reached within the peer
// timeout is Unavailable.
func (s *Server) isTryst(ctx context.Context, task cluster.Task) (bool, error) {
	conn, err := s.connTo(task)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.peers.PeerTimeout)
	defer cancel()
	peer, err := conn.Hello(ctx)
	return peer.Tryst, err
}

// Group is this process's membership in a group of processes that compute together.
type Group = collective.Group

// Merge is how Group.AllReduce merges the elements of the members.
type Merge = collective.Merge

// NewGroup enters the group with a key, which is not 0, and waits until size members have entered, or ctx ends.
func (s *Server) NewGroup(ctx context.Context, key int32, size int) (*Group, error) {
	return s.collective.NewGroup(ctx, collective.GroupOptions{Key: key, Size: size})
}
