package tryst_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// A Value says how it came.
func ExampleValue() {
	ctx := context.Background()
	grpc, verbs := startPair(ctx), startVerbs(ctx)
	defer grpc.close(ctx)
	defer verbs.close(ctx)
	for _, tasks := range []pair{grpc, verbs} {
		sendOne(tasks.a, "/job:worker/task:1")
		v, err := tasks.b.Step(1).Recv(ctx, "/job:worker/task:0", "x")
		if err != nil {
			log.Fatal(err)
		}
		v.Tensor.Release()
		fmt.Println(v.Transport, v.Bytes, v.Attempts, v.Duration > 0, v.Device != "")
	}
	sendOne(grpc.a, "/job:worker/task:0")
	v, err := grpc.a.Step(1).Recv(ctx, "/job:worker/task:0", "x")
	if err != nil {
		log.Fatal(err)
	}
	v.Tensor.Release()
	fmt.Println(v.Transport, v.Bytes, v.Attempts, v.Duration > 0, v.Device != "")
	// Output:
	// grpc 12 1 true false
	// verbs 12 1 true true
	// local 12 1 false false
}

// Links says how each peer is reached, Received how many tensors came over each transport, and Sent how many
// went out.
func ExampleServer_Links() {
	ctx := context.Background()
	tasks := startVerbs(ctx)
	defer tasks.close(ctx)
	sendOne(tasks.a, "/job:worker/task:1")
	v, err := tasks.b.Step(1).Recv(ctx, "/job:worker/task:0", "x")
	if err != nil {
		log.Fatal(err)
	}
	v.Tensor.Release()
	for _, l := range tasks.b.Links() {
		fmt.Println(l.Task, l.Route, l.State) // and l.Reason, l.Error when it is not verbs
	}
	fmt.Println(tasks.b.Received(), tasks.a.Sent())
	// Output:
	// /job:worker/replica:0/task:0 verbs up
	// map[verbs:1] map[verbs:1]
}

// sendOne sends three floats in step 1.
func sendOne(s *tryst.Server, to string) {
	t, err := tensor.FromSlice(tensor.Vector(3), []float32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Release()
	if err := s.Step(1).Send(to, "x", t); err != nil {
		log.Fatal(err)
	}
}
