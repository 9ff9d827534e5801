package graph

import (
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestUpdatesWithTheSameVariablesInAnotherOrderDoNotBlock runs them at once; a lock for each variable in
// the order of the caller would end in a deadlock.
func TestUpdatesWithTheSameVariablesInAnotherOrderDoNotBlock(t *testing.T) {
	a, b := &Variable{DType: tensor.Float32}, &Variable{DType: tensor.Float32}
	keep := func(old []*tensor.Tensor) ([]*tensor.Tensor, error) { return old, nil }
	var wg sync.WaitGroup
	for _, vars := range [][]*Variable{{a, b}, {b, a}} {
		wg.Go(func() {
			for range 20000 {
				if err := UpdateAll(vars, keep); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestUpdateAllSetsEachVariableOfItsCaller(t *testing.T) {
	a, b := &Variable{DType: tensor.Float32}, &Variable{DType: tensor.Float32}
	for _, vars := range [][]*Variable{{a, b}, {b, a}} {
		var set []*tensor.Tensor
		err := UpdateAll(vars, func(old []*tensor.Tensor) ([]*tensor.Tensor, error) {
			for i, o := range old {
				if o != nil {
					o.Release()
				}
				n, err := tensor.FromSlice(tensor.Vector(1), []float32{float32(i)})
				if err != nil {
					return nil, err
				}
				set = append(set, n)
			}
			return set, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range vars {
			s := v.Snapshot()
			if s != set[i] {
				t.Errorf("variable %d has the tensor of another", i)
			}
			s.Release()
		}
	}
	if err := UpdateAll([]*Variable{a, a}, nil); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("the same variable twice: got %v", err)
	}
}

func TestADroppedVariableTakesNoValue(t *testing.T) {
	v := &Variable{DType: tensor.Float32}
	v.Drop()
	err := v.Update(func(*tensor.Tensor) (*tensor.Tensor, error) {
		t.Error("the value would not be released")
		return nil, nil
	})
	if status.CodeOf(err) != status.Aborted {
		t.Errorf("got %v", err)
	}
	if err := UpdateAll([]*Variable{v}, nil); status.CodeOf(err) != status.Aborted {
		t.Errorf("got %v", err)
	}
	if v.Snapshot() != nil {
		t.Error("a dropped variable has a value")
	}
}
