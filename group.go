package tryst

import (
	"context"

	"github.com/tryst-rdma/tryst/internal/collective"
)

// Group is this process's membership in a group of processes that compute together: AllReduce,
// Gather, Broadcast and Barrier. All members call the same operations in the same order. An error of
// one member ends the group at all of them.
type Group = collective.Group

// Merge is how Group.AllReduce merges the elements of the members.
type Merge = collective.Merge

// The values of Merge: what AllReduce computes of the elements. Mean is their sum divided by the number
// of members.
const (
	ReduceAdd  = collective.Add
	ReduceMul  = collective.Mul
	ReduceMin  = collective.Min
	ReduceMax  = collective.Max
	ReduceMean = collective.Mean
)

// Group enters the group with a key, which is not 0, and waits until size members have entered. The
// members find each other through the task Config.CollectiveLeader, and have the ranks of their names.
// TensorFlow's workers can be members, by the collective operations of its eager runtime. Use a key
// once: after an error the members go on with a group of another key. Close the group at the end.
//
// If ctx ends first, Group returns Cancelled or DeadlineExceeded.
func (s *Server) Group(ctx context.Context, key int32, size int) (*Group, error) {
	return s.s.NewGroup(ctx, key, size)
}
