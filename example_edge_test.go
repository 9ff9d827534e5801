package tryst_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tryst-rdma/tryst/tensor"
)

// An Edge is prepared once and used in many steps.
func ExampleEdge() {
	ctx := context.Background()
	tasks := startVerbs(ctx)
	defer tasks.close(ctx)
	out, err := tasks.a.Edge("/job:worker/task:1", "loss")
	if err != nil {
		log.Fatal(err)
	}
	in, err := tasks.b.Edge("/job:worker/task:0", "loss")
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		producer := tasks.a.NewStep()
		t, err := tensor.FromSlice(tensor.Shape{}, []float32{float32(i) / 2})
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Send(producer, t); err != nil {
			log.Fatal(err)
		}
		t.Release()

		consumer := tasks.b.Step(producer.ID())
		v, err := in.Recv(ctx, consumer)
		if err != nil {
			log.Fatal(err)
		}
		values, err := tensor.Values[float32](v.Tensor)
		fmt.Println(values, err)
		v.Tensor.Release()
		consumer.Close()
		producer.Close()
	}
	// Output:
	// [0] <nil>
	// [0.5] <nil>
	// [1] <nil>
}

// The process that begins the work draws the id of the step, and passes it on: here as a tensor in a
// step whose id is agreed.
func ExampleServer_NewStep() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)
	step := tasks.a.NewStep()
	defer step.Close()
	id, err := tensor.FromSlice(tensor.Shape{}, []int64{step.ID()})
	if err != nil {
		log.Fatal(err)
	}
	if err := tasks.a.Step(1).Send("/job:worker/task:1", "next step", id); err != nil {
		log.Fatal(err)
	}
	id.Release()

	v, err := tasks.b.Step(1).Recv(ctx, "/job:worker/task:0", "next step")
	if err != nil {
		log.Fatal(err)
	}
	defer v.Tensor.Release()
	ids, err := tensor.Values[int64](v.Tensor)
	if err != nil {
		log.Fatal(err)
	}
	same := tasks.b.Step(ids[0])
	defer same.Close()
	fmt.Println(same.ID() == step.ID(), step.ID() > 0)
	// Output: true true
}
