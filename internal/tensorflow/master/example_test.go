package master_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// A stock TensorFlow server at 10.0.0.1:2222, task 0 of the job worker, adds two vectors.
func Example() {
	ctx := context.Background()
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {"10.0.0.1:2222"}})
	if err != nil {
		log.Fatal(err)
	}
	conns := grpctransport.NewConns(grpctransport.ConnsOptions{Self: cluster.ClientTask(), Spec: spec})
	defer conns.Close()
	worker, err := conns.Worker(cluster.Task{Job: "worker", Index: 0})
	if err != nil {
		log.Fatal(err)
	}
	session, err := master.Open(ctx, worker, master.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close(ctx)

	g := session.NewGraph()
	x, y := g.Feed("x", tensor.Float32), g.Feed("y", tensor.Float32)
	sum := g.Add("add", "AddV2", master.Attrs{"T": master.Type(tensor.Float32)}, x, y)
	g.Fetch("sum", sum, tensor.Float32)
	program, err := session.Register(ctx, g)
	if err != nil {
		log.Fatal(err)
	}
	a, err := tensor.FromSlice(tensor.Vector(2), []float32{1, 2})
	if err != nil {
		log.Fatal(err)
	}
	values, err := program.Step(ctx, map[string]*tensor.Tensor{"x": a, "y": a})
	if err != nil {
		log.Fatal(err)
	}
	defer values["sum"].Release()
	fmt.Println(tensor.Values[float32](values["sum"])) // [2 4] <nil>
}
