package ops

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func (b *bench) variable(name string, value graph.Value) graph.Value {
	b.t.Helper()
	v := b.runNamed(name, "VariableV2", attrs{"dtype": value.Tensor.DType(), "shape": value.Tensor.Shape()})[0]
	b.run("Assign", nil, v, value)
	return v
}

func (b *bench) read(v graph.Value) graph.Value {
	b.t.Helper()
	t := v.Var.Snapshot()
	if t == nil {
		b.t.Fatal("the variable has no value")
	}
	return graph.Value{Tensor: t}
}

func TestAVariableKeepsItsValueBetweenGraphs(t *testing.T) {
	b := newBench(t)
	v := b.variable("w", vec[float32](1, 2))
	b.run("AssignAdd", nil, v, vec[float32](10, 20))
	again := b.runNamed("w", "VariableV2", attrs{"dtype": tensor.Float32, "shape": tensor.Vector(2)})[0]
	b.want(b.read(again), "float[2]: 11 22")
	b.run("AssignSub", nil, v, vec[float32](1, 1))
	b.want(b.read(again), "float[2]: 10 21")
}

func TestAnUpdateDoesNotChangeAValueThatWasRead(t *testing.T) {
	b := newBench(t)
	v := b.variable("w", vec[float32](1, 2))
	before := b.read(v)
	b.run("AssignAdd", nil, v, vec[float32](10, 20))
	b.want(before, "float[2]: 1 2")
}

func TestAssignOfAnotherShapeIsRefused(t *testing.T) {
	b := newBench(t)
	v := b.variable("w", vec[float32](1, 2))
	err := b.fails("Assign", nil, v, vec[float32](1, 2, 3))
	if !strings.Contains(err.Error(), "lhs shape= [2] rhs shape= [3]") {
		t.Error(err)
	}
	b.run("Assign", attrs{"validate_shape": false}, v, vec[float32](1, 2, 3))
	b.want(b.read(v), "float[3]: 1 2 3")
}

func TestResetDropsTheVariablesOfAContainer(t *testing.T) {
	b := newBench(t)
	v := b.variable("w", vec[float32](1))
	b.state.Reset([]string{"another"})
	b.want(b.run("IsVariableInitialized", nil, v)[0], "bool[]: true")
	b.state.Reset([]string{"localhost"})
	v = b.runNamed("w", "VariableV2", attrs{"dtype": tensor.Float32, "shape": tensor.Vector(1)})[0]
	b.want(b.run("IsVariableInitialized", nil, v)[0], "bool[]: false")
	if err := b.fails("AssignAdd", nil, v, vec[float32](1)); !strings.Contains(err.Error(), "Attempting to use uninitialized value w") {
		t.Error(err)
	}
}

func TestAResourceVariableIsReadAndUpdated(t *testing.T) {
	b := newBench(t)
	h := b.runNamed("h", "VarHandleOp", attrs{"dtype": tensor.Float32, "shape": tensor.Vector(2)})[0]
	b.want(b.run("VarIsInitializedOp", nil, h)[0], "bool[]: false")
	err := b.fails("ReadVariableOp", attrs{"dtype": tensor.Float32}, h)
	if status.CodeOf(err) != status.FailedPrecondition || !strings.Contains(err.Error(), "Could not find variable h") {
		t.Error(err)
	}
	b.run("AssignVariableOp", nil, h, vec[float32](1, 2))
	b.run("AssignAddVariableOp", nil, h, vec[float32](1, 2))
	b.run("AssignSubVariableOp", nil, h, vec[float32](0, 1))
	b.want(b.run("ReadVariableOp", attrs{"dtype": tensor.Float32}, h)[0], "float[2]: 2 3")
	b.want(b.run("VariableShape", nil, h)[0], "int32[1]: 2")
	b.run("DestroyResourceOp", nil, h)
	h = b.runNamed("h", "VarHandleOp", attrs{"dtype": tensor.Float32, "shape": tensor.Vector(2)})[0]
	b.want(b.run("VarIsInitializedOp", nil, h)[0], "bool[]: false")
}

func TestAdamComputesAsTensorFlow(t *testing.T) {
	b := newBench(t)
	v := b.variable("w", vec[float32](1, 2))
	m, s := b.variable("m", vec[float32](0, 0)), b.variable("v", vec[float32](0, 0))
	for range 2 {
		b.run("ApplyAdam", nil, v, m, s, scalar[float32](0.9), scalar[float32](0.999), scalar[float32](0.1),
			scalar[float32](0.9), scalar[float32](0.999), scalar[float32](1e-8), vec[float32](0.5, -1))
	}
	b.want(b.read(v), "float[2]: 0.7656162 2.2343838")
	if err := b.fails("ApplyAdam", nil, v, v, s, scalar[float32](0.9), scalar[float32](0.999), scalar[float32](0.1),
		scalar[float32](0.9), scalar[float32](0.999), scalar[float32](1e-8), vec[float32](0.5, -1)); !strings.Contains(err.Error(), "same variable") {
		t.Error(err)
	}
}

// As in TensorFlow, a reset that names no container is one of the default container.
func TestAResetWithoutNamesKeepsOtherContainers(t *testing.T) {
	b := newBench(t)
	in := func(container string) graph.Value {
		return b.runNamed("w", "VariableV2", attrs{"dtype": tensor.Float32, "shape": tensor.Vector(1), "container": container})[0]
	}
	b.run("Assign", nil, in(""), vec[float32](1))
	b.run("Assign", nil, in("box"), vec[float32](1))
	b.state.Reset(nil)
	b.want(b.run("IsVariableInitialized", nil, in(""))[0], "bool[]: false")
	b.want(b.run("IsVariableInitialized", nil, in("box"))[0], "bool[]: true")
	last := in("box")
	b.state.Close()
	b.want(b.run("IsVariableInitialized", nil, last)[0], "bool[]: false")
}
