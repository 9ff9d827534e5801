package tryst_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// A trainer replaces its weights, and a rollout follows. Neither waits for the other.
func ExampleServer_Update() {
	ctx := context.Background()
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	c, err := tryst.Dial(ctx, s.Addr().String(), tryst.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	first, err := publish(ctx, s, 1)
	if err != nil {
		log.Fatal(err)
	}
	for v, err := range c.Watch(ctx, "policy") {
		if err != nil {
			log.Fatal(err)
		}
		values, err := tensor.Values[float32](v.Tensors[0])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("number", v.Number, "has", values)
		v.Release() // nothing computes with it any more
		if v.Number == 2 {
			break
		}
		if _, err := publish(ctx, s, 2); err != nil {
			log.Fatal(err)
		}
	}
	if err := first.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the memory of number", first.Publication.Number, "is free")

	// Output:
	// number 1 has [1 1]
	// number 2 has [2 2]
	// the memory of number 1 is free
}

// publish makes the next version, all of whose elements are n.
func publish(ctx context.Context, s *tryst.Server, n float32) (*tryst.Lent, error) {
	w, err := tensor.Make[float32](s.Allocator(), 2)
	if err != nil {
		return nil, err
	}
	defer w.Release() // the version has a reference of its own
	values, err := tensor.Values[float32](w)
	if err != nil {
		return nil, err
	}
	for i := range values {
		values[i] = n
	}
	return s.Update(ctx, "policy", []*tensor.Tensor{w.Named("w")})
}
