package tryst_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A producer before a slow consumer keeps no more than the bound in memory, 1 MiB here: a third block of
// 512 KiB waits until the consumer has the first.
func ExampleStep_SendWait() {
	ctx := context.Background()
	s, err := tryst.Serve(ctx, tryst.Config{
		Listen: "127.0.0.1:0",
		Limits: tryst.Limits{SendBound: 1 << 20},
	})
	if err != nil {
		log.Fatal(err)
	}
	tasks := pair{s, startConsumer(ctx, s)}
	defer tasks.close(ctx)
	producer, consumer := tasks.a.Step(1), tasks.b.Step(1)
	defer consumer.Close()
	defer producer.Close()
	block, err := tensor.Make[byte](tasks.a.Allocator(), 512<<10)
	if err != nil {
		log.Fatal(err)
	}
	defer block.Release()
	recv := func() {
		v, err := consumer.Recv(ctx, "/job:worker/task:0", "blocks")
		if err != nil {
			log.Fatal(err)
		}
		v.Tensor.Release()
	}

	for range 2 {
		if _, err := producer.SendWait(ctx, "/job:worker/task:1", "blocks", block); err != nil {
			log.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = producer.SendWait(short, "/job:worker/task:1", "blocks", block)
	fmt.Println("full:", status.CodeOf(err))

	recv()
	third, err := producer.SendWait(ctx, "/job:worker/task:1", "blocks", block)
	fmt.Println("space:", err)
	recv()
	recv()
	fmt.Println("delivered:", third.Wait(ctx))
	// Output:
	// full: DeadlineExceeded
	// space: <nil>
	// delivered: <nil>
}
