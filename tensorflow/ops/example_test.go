package ops_test

import (
	"fmt"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// An importer adds an op of its own, and passes the registry to its server.
func ExampleRegistry_Register() {
	set := ops.New()
	err := set.Register("Cube(x: T) -> (y: T); T: {float}", func(*graph.Node, *ops.State) (graph.Kernel, error) {
		return graph.KernelFunc(func(c *graph.Context) error {
			x, err := tensor.Values[float32](c.Input(0))
			if err != nil {
				return err
			}
			t, err := c.Allocate(tensor.Float32, c.Input(0).Shape())
			if err != nil {
				return err
			}
			c.Set(0, t)
			y, err := tensor.Values[float32](t)
			for i := range y {
				y[i] = x[i] * x[i] * x[i]
			}
			return err
		}), nil
	})
	fmt.Println(err, set.OpDef("Cube").GetInputArg()[0].GetTypeAttr())
	// Output: <nil> T
}
