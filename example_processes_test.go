package tryst_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// Two processes exchange tensors over verbs, each in memory of its own. This one is the consumer; it
// starts the producer, which runs the function produce and need not be up before the first receive.
// On two hosts the cluster has their addresses, as in {"producer": {"10.0.0.1:2222"}, …}.
func Example_twoProcesses() {
	ctx := context.Background()
	addresses := freeAddresses(2)
	producer := exec.CommandContext(ctx, os.Args[0])
	producer.Env = append(os.Environ(), "TRYST_EXAMPLE_PRODUCER="+addresses[0], "TRYST_EXAMPLE_CONSUMER="+addresses[1])
	producer.Stdout, producer.Stderr = os.Stdout, os.Stderr
	stop, err := producer.StdinPipe() // the producer ends with it
	if err != nil {
		log.Fatal(err)
	}
	if err := producer.Start(); err != nil {
		log.Fatal(err)
	}

	s, err := tryst.Serve(ctx, config("/job:consumer/task:0", addresses[0], addresses[1]))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	dst, err := tensor.Make[float32](s.Allocator(), 1024, 1024) // registered: the producer's device writes here
	if err != nil {
		log.Fatal(err)
	}
	defer dst.Release()
	for range 3 {
		f, err := s.Step(1).RecvInto(ctx, "/job:producer/task:0", "gradient", dst)
		if err != nil {
			log.Fatal(err)
		}
		values, err := tensor.Values[float32](dst)
		fmt.Println(values[0], f.Transport, f.Bytes, "zero copy:", f.ZeroCopy, err)
	}
	fmt.Println("over gRPC:", s.Received()["grpc"])
	if err := stop.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("producer:", producer.Wait())
	// Output:
	// 0.5 verbs 4194304 zero copy: true <nil>
	// 1.5 verbs 4194304 zero copy: true <nil>
	// 2.5 verbs 4194304 zero copy: true <nil>
	// over gRPC: 0
	// producer: <nil>
}

// config is the same in both processes, except for the task.
func config(task, producer, consumer string) tryst.Config {
	return tryst.Config{
		Task:      task, // listens at its address in the cluster
		Cluster:   map[string][]string{"producer": {producer}, "consumer": {consumer}},
		Transport: tryst.TransportVerbs,
		Fallback:  tryst.FallbackNone, // on both sides: a receive that verbs cannot serve waits, and then fails
		Provider:  tryst.ProviderRoCE, // RDMA in user space, on any machine. Leave it out to use an adapter
	}
}

// produce is the other process.
func produce() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel() // also when the consumer has died
	}()
	s, err := tryst.Serve(ctx, config("/job:producer/task:0", os.Getenv("TRYST_EXAMPLE_PRODUCER"), os.Getenv("TRYST_EXAMPLE_CONSUMER")))
	if err != nil {
		log.Fatal(err)
	}
	step := s.Step(1)
	for i := range 3 {
		t, err := tensor.Make[float32](s.SendAllocator(), 1024, 1024) // registered: sent without a copy
		if err != nil {
			log.Fatal(err)
		}
		values, err := tensor.Values[float32](t)
		if err != nil {
			log.Fatal(err)
		}
		values[0] = float32(i) + 0.5
		delivery, err := step.SendWait(ctx, "/job:consumer/task:0", "gradient", t) // waits while the consumer is behind
		if err != nil {
			log.Fatal(err)
		}
		t.Release() // the step has a reference of its own
		if i == 2 {
			if err := delivery.Wait(ctx); err != nil && ctx.Err() == nil { // nil: the consumer has the last one
				log.Fatal(err)
			}
		}
	}
	<-ctx.Done()
	if err := s.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// freeAddresses returns addresses that nobody listens on, below the ports that systems give to others.
func freeAddresses(n int) (all []string) {
	for len(all) < n {
		lis, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err != nil {
			continue
		}
		all = append(all, lis.Addr().String())
		defer lis.Close() // after all are found, so that they differ
	}
	return all
}
