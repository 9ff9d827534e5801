package tryst_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/fakemodel"
	"github.com/tryst-rdma/tryst/tensor"
)

// A server publishes tensors, and a client pulls them, each verified.
func Example() {
	ctx := context.Background()
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	weights, err := tensor.FromSlice(tensor.Vector(3), []float32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.PublishTensors(ctx, "model", weights.Named("weights")); err != nil {
		log.Fatal(err)
	}
	weights.Release() // the publication has a reference of its own

	c, err := tryst.Dial(ctx, s.Addr().String(), tryst.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	for t, err := range c.Pull(ctx, "model") {
		if err != nil {
			log.Fatal(err)
		}
		values, err := tensor.Values[float32](t)
		fmt.Println(t.Name(), t, values, err)
		t.Release()
	}
	// Output: weights float[3] [1 2 3] <nil>
}

// A checkpoint is published from its files, and pulled in part.
func ExampleServer_Publish() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tryst")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tiny.safetensors")
	if _, err := fakemodel.Generate(ctx, path, fakemodel.Options{Model: "tiny"}); err != nil {
		log.Fatal(err)
	}

	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	p, err := s.Publish(ctx, "", path)
	fmt.Println(p.Name, p.Tensors, err)

	c, err := tryst.Dial(ctx, s.Addr().String(), tryst.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	for t, err := range c.Pull(ctx, "tiny", tryst.PullTensors("half.*")) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Name(), t)
		t.Release()
	}
	// Output:
	// tiny 54 <nil>
	// half.empty half[5,0]
	// half.matrix half[37,113]
	// half.scalar half[]
}

// Two tasks of a cluster meet in a step: the consumer asks before the producer
// has sent, and nobody waits for the other to be up.
func ExampleStep() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)

	consumer := tasks.b.Step(1)
	defer consumer.Close()
	got := make(chan string)
	consumer.RecvAsync(ctx, "/job:worker/task:0", "gradient", func(v tryst.Value, err error) {
		if err != nil {
			got <- err.Error()
			return
		}
		defer v.Tensor.Release()
		values, err := tensor.Values[float32](v.Tensor)
		got <- fmt.Sprint(v.Tensor, values, err)
	})

	producer := tasks.a.Step(1)
	defer producer.Close()
	gradient, err := tensor.FromSlice(tensor.Vector(2), []float32{0.5, -0.5})
	if err != nil {
		log.Fatal(err)
	}
	if err := producer.Send("/job:worker/task:1", "gradient", gradient); err != nil {
		log.Fatal(err)
	}
	gradient.Release()
	fmt.Println(<-got)
	// Output: float[2] [0.5 -0.5] <nil>
}

// A receive ends with its context and consumes nothing.
func ExampleStep_Recv() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)

	step := tasks.b.Step(7)
	defer step.Close()
	wait, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := step.Recv(wait, "/job:worker/task:0", "never sent")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

// Abort ends a step with an error that all its waiting receives get.
func ExampleStep_Abort() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)

	step := tasks.b.Step(8)
	defer step.Close()
	failed := make(chan error)
	step.RecvAsync(ctx, "/job:worker/task:0", "loss", func(_ tryst.Value, err error) { failed <- err })
	step.Abort(errors.New("the loss is not a number"))
	fmt.Println(<-failed)
	// Output: Unknown: the loss is not a number
}

// pair is two tasks of one cluster, on this machine.
type pair struct{ a, b *tryst.Server }

// startPair starts them. Task 1 knows where task 0 listens; task 0 never asks
// task 1, and need not know.
func startPair(ctx context.Context) pair {
	a, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	return pair{a, startConsumer(ctx, a)}
}

// startConsumer starts task 1 of a cluster whose task 0 is a.
func startConsumer(ctx context.Context, a *tryst.Server) *tryst.Server {
	b, err := tryst.Serve(ctx, tryst.Config{
		Listen:  "127.0.0.1:0",
		Cluster: map[string][]string{"worker": {a.Addr().String(), "127.0.0.1:1"}},
		Task:    "/job:worker/task:1",
	})
	if err != nil {
		log.Fatal(err)
	}
	return b
}

func (p pair) close(ctx context.Context) {
	for _, s := range []*tryst.Server{p.b, p.a} {
		if err := s.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
}
