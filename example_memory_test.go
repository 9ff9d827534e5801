package tryst_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Allocator gives memory that the device reads and writes directly. It is the same call with gRPC,
// where it is ordinary memory.
func ExampleServer_Allocator() {
	ctx := context.Background()
	for _, transport := range []string{tryst.TransportGRPC, tryst.TransportVerbs} {
		s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0", Transport: transport, Provider: tryst.ProviderRoCE})
		if err != nil {
			log.Fatal(err)
		}
		t, err := tensor.Make[float32](s.Allocator(), 2, 3)
		if err != nil {
			log.Fatal(err)
		}
		values, err := tensor.Values[float32](t)
		if err != nil {
			log.Fatal(err)
		}
		copy(values, []float32{1, 2, 3, 4, 5, 6}) // the content was undefined
		fmt.Println(transport, t, "registered:", s.Registered(t))
		t.Release()
		if err := s.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// grpc float[2,3] registered: false
	// verbs float[2,3] registered: true
}

// The same memory takes one value after the other. A value that does not fit it is not consumed.
func ExampleStep_RecvInto() {
	ctx := context.Background()
	tasks := startVerbs(ctx)
	defer tasks.close(ctx)
	producer, consumer := tasks.a.Step(1), tasks.b.Step(1)
	defer consumer.Close()
	defer producer.Close()
	for i := range 3 {
		t, err := tensor.FromSlice(tensor.Vector(2), []int64{int64(i), int64(i * i)})
		if err != nil {
			log.Fatal(err)
		}
		if err := producer.Send("/job:worker/task:1", "squares", t); err != nil {
			log.Fatal(err)
		}
		t.Release()
	}

	small, err := tensor.Make[int64](tasks.b.Allocator(), 1)
	if err != nil {
		log.Fatal(err)
	}
	_, err = consumer.RecvInto(ctx, "/job:worker/task:0", "squares", small)
	fmt.Println(status.CodeOf(err))
	small.Release()

	dst, err := tensor.Make[int64](tasks.b.Allocator(), 2)
	if err != nil {
		log.Fatal(err)
	}
	defer dst.Release()
	for range 3 {
		f, err := consumer.RecvInto(ctx, "/job:worker/task:0", "squares", dst)
		if err != nil {
			log.Fatal(err)
		}
		values, err := tensor.Values[int64](dst)
		fmt.Println(values, f.Transport, f.Bytes, err)
	}
	// Output:
	// InvalidArgument
	// [0 0] verbs 16 <nil>
	// [1 1] verbs 16 <nil>
	// [2 4] verbs 16 <nil>
}

// startVerbs starts two tasks of one cluster on this machine, which exchange tensors over verbs alone.
func startVerbs(ctx context.Context, opts ...tryst.Option) pair {
	addresses := freeAddresses(2)
	var tasks [2]*tryst.Server
	for i := range tasks {
		s, err := tryst.Serve(ctx, tryst.Config{
			Cluster:   map[string][]string{"worker": addresses},
			Task:      fmt.Sprintf("/job:worker/task:%d", i),
			Transport: tryst.TransportVerbs,
			Fallback:  tryst.FallbackNone,
			Provider:  tryst.ProviderRoCE,
		}, opts...)
		if err != nil {
			log.Fatal(err)
		}
		tasks[i] = s
	}
	return pair{tasks[0], tasks[1]}
}
