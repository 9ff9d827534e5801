package tensorproto

import (
	pb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// DTypeToProto returns the message's form of d: the same number.
func DTypeToProto(d tensor.DType) pb.DataType { return pb.DataType(d) }

// DTypeFromProto returns the type of a tensor. What no tensor can have (not
// set, a reference, a number without a meaning) is InvalidArgument.
func DTypeFromProto(p pb.DataType) (tensor.DType, error) {
	d := tensor.DType(p)
	switch {
	case d.Valid():
		return d, nil
	case d == tensor.Invalid:
		return tensor.Invalid, status.Errorf(status.InvalidArgument, "dtype is not set (DT_INVALID)")
	case d.IsRef():
		return tensor.Invalid, status.Errorf(status.InvalidArgument,
			"dtype %v is a reference to a variable, which no tensor can be", d)
	}
	return tensor.Invalid, status.Errorf(status.InvalidArgument, "dtype %d is not known", int32(p))
}

// ShapeToProto returns the message's form of s: one dim for each dimension.
func ShapeToProto(s tensor.Shape) *pb.TensorShapeProto {
	p := &pb.TensorShapeProto{}
	if s.Rank() > 0 {
		p.Dim = make([]*pb.TensorShapeProto_Dim, s.Rank())
		dims := make([]pb.TensorShapeProto_Dim, s.Rank()) // one allocation for all
		for i := range dims {
			dims[i].Size = s.Dim(i)
			p.Dim[i] = &dims[i]
		}
	}
	return p
}

// ShapeFromProto returns the shape of a tensor; no message is a scalar's. A
// shape that is not known in full (rank unknown, a size of −1) or that
// tensor.NewShape refuses is InvalidArgument. The dimensions' names are
// dropped.
func ShapeFromProto(p *pb.TensorShapeProto) (tensor.Shape, error) {
	if p.GetUnknownRank() {
		return tensor.Shape{}, status.Errorf(status.InvalidArgument, "the shape's rank is unknown")
	}
	dims := make([]int64, len(p.GetDim()))
	for i, d := range p.GetDim() {
		dims[i] = d.GetSize()
	}
	return tensor.NewShape(dims...)
}
