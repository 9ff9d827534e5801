package library

import (
	"slices"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// kernelDef is what decides whether a kernel for CPUs fits a node: a part of KernelDef.
type kernelDef struct {
	label       string
	constraints []constraint
}

// constraint says which types an attribute may have.
type constraint struct {
	attr  string
	types []tfpb.DataType
}

// The field numbers of KernelList, KernelDef and its AttrConstraint (kernel_def.proto).
const (
	fieldKernel         = 1
	fieldDevice         = 2
	fieldConstraint     = 3
	fieldLabel          = 5
	fieldConstraintName = 1
	fieldAllowed        = 2
)

// supported says whether TensorFlow has a kernel for a node, before a step needs it.
func (c *cutter) supported(n *node) error {
	if c.library.has(n.op) {
		return nil
	}
	kernels, err := c.set.kernelsOf(n.op)
	if err != nil {
		return graph.NodeError(n.name, err)
	}
	label := string(n.def.GetAttr()["_kernel"].GetS())
	for _, k := range kernels {
		if k.label == label && k.fits(n) {
			return nil
		}
	}
	if len(kernels) == 0 {
		return graph.NodeError(n.name, status.Errorf(status.Unimplemented,
			"node %q: this TensorFlow (%s) has no kernel of op %s for a CPU; use another op, or place the node on another task", n.name, c.set.Version(), n.op))
	}
	return graph.NodeError(n.name, status.Errorf(status.Unimplemented,
		"node %q: this TensorFlow (%s) has no kernel of op %s for a CPU with these types: %s; cast its inputs, or place the node on another task",
		n.name, c.set.Version(), n.op, types(n)))
}

// types lists the attributes of a node that are types.
func types(n *node) (text string) {
	for _, a := range n.opDef.GetAttr() {
		if v, ok := n.def.GetAttr()[a.GetName()]; ok && a.GetType() == "type" {
			if text != "" {
				text += ", "
			}
			text += a.GetName() + "=" + v.GetType().String()
		}
	}
	return text
}

// fits reports whether the types of a node are among those of the kernel.
func (k *kernelDef) fits(n *node) bool {
	for _, c := range k.constraints {
		for _, t := range n.types(c.attr) {
			if !slices.Contains(c.types, t) {
				return false
			}
		}
	}
	return true
}

// kernelsOf returns the kernels of an op for CPUs.
func (s *Set) kernelsOf(op string) ([]*kernelDef, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.kernels[op]; ok {
		return k, nil
	}
	if s.ops[op] == nil {
		return nil, nil // and nothing is kept: a body in a stranger's graph may have any op
	}
	e, err := s.liveLocked()
	if err != nil {
		return nil, err
	}
	list, err := e.kernels(op)
	if err != nil {
		return nil, err
	}
	var kernels []*kernelDef
	err = eachMessage(list, fieldKernel, func(m []byte) error {
		k := new(kernelDef)
		var device string
		if err := eachMessage(m, fieldDevice, func(b []byte) error { device = string(b); return nil }); err != nil {
			return err
		}
		if err := eachMessage(m, fieldLabel, func(b []byte) error { k.label = string(b); return nil }); err != nil {
			return err
		}
		if device != "CPU" && device != "DEFAULT" {
			return nil
		}
		kernels = append(kernels, k)
		return eachMessage(m, fieldConstraint, k.addConstraint)
	})
	if err != nil {
		return nil, status.Errorf(status.Internal, "the kernels of %s: %v", op, err)
	}
	s.kernels[op] = kernels
	return kernels, nil
}

// addConstraint adds an AttrConstraint message.
func (k *kernelDef) addConstraint(m []byte) error {
	var c constraint
	err := eachMessage(m, fieldConstraintName, func(b []byte) error { c.attr = string(b); return nil })
	if err != nil {
		return err
	}
	err = eachMessage(m, fieldAllowed, func(b []byte) error {
		var v tfpb.AttrValue
		if err := proto.Unmarshal(b, &v); err != nil {
			return err
		}
		c.types = append(c.types, v.GetList().GetType()...)
		return nil
	})
	k.constraints = append(k.constraints, c)
	return err
}
