package tryst_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// A pull receives tensors into memory that the caller chose by name, such as that of a model in use.
func ExamplePullInto() {
	ctx := context.Background()
	s, c := startPublisher(ctx)
	defer s.Close(ctx)
	defer c.Close(ctx)

	m, err := c.Describe(ctx, "model")
	if err != nil {
		log.Fatal(err)
	}
	into, err := tryst.TensorsFor(slices.Values(m.Entries), c.Allocator()) // or tensors that exist already
	if err != nil {
		log.Fatal(err)
	}
	for t, err := range c.Pull(ctx, "model", tryst.PullInto(into)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Name(), "is in its memory:", &t.Bytes()[0] == &into[t.Name()].Bytes()[0])
		t.Release() // into has a reference of its own
	}
	for _, t := range into {
		t.Release()
	}
	// Output:
	// bias is in its memory: true
	// weights is in its memory: true
}

// The result of a pull says which transport carried its tensors, in sum and for each.
func ExampleSummarize() {
	ctx := context.Background()
	s, c := startPublisher(ctx)
	defer s.Close(ctx)
	defer c.Close(ctx)

	var sum tryst.Summary
	each := func(t tryst.PulledTensor) { fmt.Println(t.Name, t.Arrivals[0].Transport, t.Arrivals[0].Bytes) }
	for t, err := range c.Pull(ctx, "model", tryst.Summarize(&sum), tryst.OnPulled(each)) {
		if err != nil {
			log.Fatal(err)
		}
		t.Release()
	}
	if sum.Over("grpc") > 0 {
		log.Fatal("a tensor went over gRPC: ", c.Links())
	}
	fmt.Println(sum.Tensors, "tensors,", sum.Bytes, "bytes, verified:", sum.Verified)
	// Output:
	// bias verbs 400
	// weights verbs 400000
	// 2 tensors, 400400 bytes, verified: true
}

// startPublisher starts a server with a publication of two tensors, and a client, for verbs.
func startPublisher(ctx context.Context) (*tryst.Server, *tryst.Client) {
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0", Transport: tryst.TransportVerbs, Provider: tryst.ProviderRoCE})
	if err != nil {
		log.Fatal(err)
	}
	var tensors []*tensor.Tensor
	for i, name := range []string{"bias", "weights"} {
		t, err := tensor.Make[float32](s.SendAllocator(), []int64{100, 100_000}[i])
		if err != nil {
			log.Fatal(err)
		}
		tensors = append(tensors, t.Named(name))
	}
	if _, err := s.PublishTensors(ctx, "model", tensors...); err != nil {
		log.Fatal(err)
	}
	for _, t := range tensors {
		t.Release()
	}
	c, err := tryst.Dial(ctx, s.Addr().String(), tryst.Config{
		Transport: tryst.TransportVerbs, Fallback: tryst.FallbackNone, Provider: tryst.ProviderRoCE, // no tensor goes over gRPC
	})
	if err != nil {
		log.Fatal(err)
	}
	return s, c
}
