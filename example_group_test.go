package tryst_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// Two tasks compute the mean of their gradients.
func ExampleServer_Group() {
	ctx := context.Background()
	tasks := startVerbs(ctx)
	defer tasks.close(ctx)
	var members sync.WaitGroup
	means := make([]float32, 2)
	for i, s := range []*tryst.Server{tasks.a, tasks.b} {
		members.Go(func() { // in a real program this is each process
			g, err := s.Group(ctx, 1, 2)
			if err != nil {
				log.Fatal(err)
			}
			defer g.Close()
			gradient, err := tensor.Make[float32](s.Allocator(), 1000)
			if err != nil {
				log.Fatal(err)
			}
			defer gradient.Release()
			values, err := tensor.Values[float32](gradient)
			if err != nil {
				log.Fatal(err)
			}
			for j := range values {
				values[j] = float32(g.Rank() + 1)
			}
			mean, err := g.AllReduce(ctx, gradient, tryst.ReduceMean)
			if err != nil {
				log.Fatal(err)
			}
			defer mean.Release()
			values, err = tensor.Values[float32](mean)
			if err != nil {
				log.Fatal(err)
			}
			means[i] = values[999]
		})
	}
	members.Wait()
	fmt.Println(means)
	// Output: [1.5 1.5]
}
